"""A version of a table: replay of its log, and its files as Arrow columns."""

"""A version of a table: replay of its log, and its live files as Arrow columns."""

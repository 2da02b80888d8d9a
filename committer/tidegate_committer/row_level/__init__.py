"""Deletes of rows from files that stay in the table, and rows that were moved to other files."""

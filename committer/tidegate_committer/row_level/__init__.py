"""Rows deleted from files that stay, and rows that moved to other files."""

"""Checks of a proposal by itself, against the table that it read, and against the head."""

"""Readers and writers of a table's files: log, checkpoints, rows, deletion vectors, change rows."""

"""A table's files, read and written: its log, checkpoints, rows, vectors, changes."""

"""Keeps the log short to read: checkpoints, log compactions, version checksums."""

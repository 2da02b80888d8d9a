"""Keeps table logs short to read: checkpoints, log compactions, version checksums."""

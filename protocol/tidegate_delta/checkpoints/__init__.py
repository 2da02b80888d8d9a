"""The content of checkpoints, log compactions and version checksum files."""

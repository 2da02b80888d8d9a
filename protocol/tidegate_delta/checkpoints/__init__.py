"""What checkpoints, log compactions and version checksums hold."""

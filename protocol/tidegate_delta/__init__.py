"""PROTOCOL.md as values and pure functions: no clock, no files, no network."""

"""The commands of `tidegate changes`."""

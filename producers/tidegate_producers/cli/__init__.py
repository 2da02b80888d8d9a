"""The commands `tidegate table` and `tidegate proposals`."""

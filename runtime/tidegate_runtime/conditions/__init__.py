"""SQL conditions as predicate trees, and the time zones in which their timestamps are read."""

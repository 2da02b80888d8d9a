"""Table properties, and the parsers of their values."""

"""What is remembered of a table, as values: its state, its entries, its live files."""

"""What the committer keeps of a table, as values: its state, its entries and its live files."""

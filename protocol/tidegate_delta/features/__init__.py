"""Table features: which ones a table uses, and which ones we read, write and refuse."""

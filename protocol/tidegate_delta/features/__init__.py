"""Table features and properties: what a table asks for, and what we read, write and refuse."""

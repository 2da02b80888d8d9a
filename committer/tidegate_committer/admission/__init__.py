"""What is refused of a proposal whatever others did: by itself, by the table read, by the head."""

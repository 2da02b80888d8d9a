"""What shares an entry, in which order, what is assigned late, and the bytes of an entry."""

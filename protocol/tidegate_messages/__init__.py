"""Our messages and topics; they would be the same on any bus."""

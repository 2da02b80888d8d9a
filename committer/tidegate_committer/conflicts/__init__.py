"""What a winner rules out, and what following it makes of a proposal."""

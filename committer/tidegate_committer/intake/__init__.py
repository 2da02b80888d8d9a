"""From the bytes of a record to a checked `Candidate`, and the values that it is made of."""

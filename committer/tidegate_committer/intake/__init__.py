"""Read a Kafka record's bytes into a checked `Candidate`, and the values that it consists of."""

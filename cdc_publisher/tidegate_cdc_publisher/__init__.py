"""Rows that changed, in order, as a Kafka topic per table."""

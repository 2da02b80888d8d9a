"""Change data capture: publishes row changes, in order, to one Kafka topic per table."""

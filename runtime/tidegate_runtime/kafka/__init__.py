"""Kafka clients on confluent-kafka, and the administration of topics."""

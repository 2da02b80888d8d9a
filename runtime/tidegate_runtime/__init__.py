"""All input and output of the services: stores, Kafka, Parquet, settings, logs, clock."""

"""`tidegate ingest`: copies Kafka topics into Delta tables with Spark, each record exactly once."""

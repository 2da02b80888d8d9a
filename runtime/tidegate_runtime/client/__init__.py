"""The client that sends proposals and waits for their outcomes. It needs no Spark."""

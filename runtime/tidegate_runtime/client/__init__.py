"""The client that proposes a transaction and waits for its outcome. It needs no Spark."""

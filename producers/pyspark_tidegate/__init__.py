"""The hook by which Spark finds `format("tidegate")`."""

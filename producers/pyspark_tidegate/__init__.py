"""The hook by which Spark finds `format("tidegate")`: it looks into modules named `pyspark_*`."""

from tidegate_producers.datasource import TidegateSource as DefaultSource

__all__ = ["DefaultSource"]

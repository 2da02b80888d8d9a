"""Registers `format("tidegate")`: Spark looks for data sources in modules named `pyspark_*`."""

from tidegate_producers.datasource import TidegateSource as DefaultSource

__all__ = ["DefaultSource"]

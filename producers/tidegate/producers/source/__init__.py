"""`format("tidegate")`: Spark's Python Data Source API, batch and stream, writing and reading."""

from tidegate.producers.source.data_source import TidegateSource

__all__ = ["TidegateSource"]

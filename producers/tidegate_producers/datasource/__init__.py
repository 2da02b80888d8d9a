"""`format("tidegate")`: Spark's Python Data Source API, batch and stream, writing and reading."""

from tidegate_producers.datasource.data_source import TidegateSource, use_session

__all__ = ["TidegateSource", "use_session"]

"""`format("tidegate")`: Spark's Python Data Source API, batch and stream, writing and reading."""

from tidegate.producers.source.data_source import TidegateSource
from tidegate.producers.source.threads import use_session

__all__ = ["TidegateSource", "use_session"]

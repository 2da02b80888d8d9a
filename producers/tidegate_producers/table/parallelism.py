"""How many tasks a session runs at once, in a classic session and over Spark Connect."""

from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

_SETTINGS: Final = ("spark.sql.leafNodeDefaultParallelism", "spark.default.parallelism")
_SHUFFLES: Final = "spark.sql.shuffle.partitions"


def tasks_at_once(spark: SparkSession) -> int:
    """Return how many tasks a step with many files should have at least, to use every core.

    Spark Connect does not tell the number of cores: there it is what the session's settings say.
    """
    if not is_remote():
        return int(spark.sparkContext.defaultParallelism)
    said = (spark.conf.get(name, None) for name in (*_SETTINGS, _SHUFFLES))
    return int(next(value for value in said if value is not None))

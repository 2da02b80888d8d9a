"""Spark's Python workers, with what our data source imports: loaded once, before they fork.

Spark ends a worker that was idle for a minute, and a new one would import for a second.
"""

import pyarrow.parquet  # noqa: F401
from pyspark.daemon import manager

import tidegate_producers.datasource.data_source
import tidegate_producers.table.table  # noqa: F401

if __name__ == "__main__":
    manager()

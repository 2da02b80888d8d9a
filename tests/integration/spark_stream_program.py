"""A stream as a process that tests can kill: SOURCE CHECKPOINT TABLE BOOTSTRAP PREFIX."""

import sys

from tests.integration.spark_session import open_session


def main(source: str, checkpoint: str, table: str, bootstrap: str, prefix: str) -> None:
    """Write one batch per file until no file is left."""
    query = (
        open_session()
        .readStream.schema("k long")
        .option("maxFilesPerTrigger", 1)
        .parquet(source)
        .writeStream.format("tidegate")
        .option("partitionColumns", "")
        .option("checkpointLocation", checkpoint)
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topicPrefix", prefix)
        .trigger(availableNow=True)
        .start(table)
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])

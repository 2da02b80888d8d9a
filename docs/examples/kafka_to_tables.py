"""Copy a Kafka topic of events into two Delta tables, each event exactly once, with Spark.

    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 \
        kafka_to_tables.py BROKERS TOPIC FOLDER CHECKPOINTS [json|avro] [--once]

A value of the topic is an event, `{"id": 17, "account": "a", "amount": 2.5}`. FOLDER/events gets a
row for each event. FOLDER/accounts has a row for each account with the sum of its events, which
upserts keep. Kill the program at any moment and start it again with the same arguments. Avro needs
the package `org.apache.spark:spark-avro_2.13:4.2.0`, too. With --once it copies what there is, and
ends.
"""

import argparse

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as in Spark's documents
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.streaming.query import StreamingQuery

from tidegate import Table

EVENT = {"id": "BIGINT", "account": "STRING", "amount": "DOUBLE"}
ACCOUNT = {"account": "STRING", "events": "BIGINT", "amount": "DOUBLE"}
AVRO = """{"type": "record", "name": "Event", "fields": [
    {"name": "id", "type": "long"},
    {"name": "account", "type": "string"},
    {"name": "amount", "type": "double"}]}"""


def decoded(value: Column, form: str) -> Column:
    """Return the event in a record's value."""
    if form == "avro":
        return from_avro(value, AVRO)
    fields = ", ".join(f"{name} {kind}" for name, kind in EVENT.items())
    return F.from_json(value.cast("string"), fields)


def add_up(accounts: Table, events: DataFrame) -> None:
    """Add the events of a batch to their accounts. A batch that is repeated adds nothing."""
    news = events.groupBy("account").agg(
        F.count("*").alias("events"), F.sum("amount").alias("amount")
    )
    (
        accounts.alias("t")
        .merge(news.alias("s"), "t.account = s.account")
        .whenMatchedUpdate(set={"events": "t.events + s.events", "amount": "t.amount + s.amount"})
        .whenNotMatchedInsertAll()
        .execute()
    )


def main() -> None:
    """Run both streams until one of them ends."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("brokers", "topic", "folder", "checkpoints"):
        parser.add_argument(name)
    parser.add_argument("form", choices=["json", "avro"], default="json", nargs="?")
    parser.add_argument("--once", action="store_true")
    arguments = parser.parse_args()

    spark = SparkSession.builder.getOrCreate()
    kafka = {"kafka.bootstrap.servers": arguments.brokers}
    events_path, accounts_path = f"{arguments.folder}/events", f"{arguments.folder}/accounts"
    for path, columns in ((events_path, EVENT), (accounts_path, ACCOUNT)):
        table = Table.createIfNotExists(spark, kafka).location(path)
        for name, kind in columns.items():
            table.addColumn(name, kind)
        table.execute()

    source = spark.readStream.format("kafka").options(**kafka)
    source = source.option("subscribe", arguments.topic).option("startingOffsets", "earliest")
    events = (
        source.load()
        .select(decoded(F.col("value"), arguments.form).alias("event"))
        .select("event.*")
    )

    trigger = {"availableNow": True} if arguments.once else {"processingTime": "1 second"}
    append = events.writeStream.format("tidegate").options(**kafka).trigger(**trigger)
    append = append.option("checkpointLocation", f"{arguments.checkpoints}/events")
    accounts = Table(spark, accounts_path, {**kafka, "txnAppId": "accounts"})
    upsert = events.writeStream.foreachBatch(accounts.foreach_batch(add_up)).trigger(**trigger)
    upsert = upsert.option("checkpointLocation", f"{arguments.checkpoints}/accounts")
    queries: list[StreamingQuery] = [append.start(events_path), upsert.start()]
    if arguments.once:
        for query in queries:
            query.awaitTermination()
    else:
        spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main()

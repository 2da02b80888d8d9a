"""Print a table as its change stream gives it, with Kafka's client alone.

    python plain_consumer.py BROKERS TOPIC

It reads the topic to its end and prints a row a line: the last image of each key. It is right while
the table's columns do not change.
"""

import argparse
import json

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition


def main() -> None:
    """Read every topic partition to its end."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("brokers", "topic"):
        parser.add_argument(name)
    arguments = parser.parse_args()
    consumer = Consumer(
        {
            "bootstrap.servers": arguments.brokers,
            "group.id": "plain-consumer",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            # Without it aborted records come, too.
            "isolation.level": "read_committed",
        }
    )
    partitions = (
        consumer.list_topics(arguments.topic, timeout=30.0).topics[arguments.topic].partitions
    )
    consumer.assign(
        [TopicPartition(arguments.topic, number, OFFSET_BEGINNING) for number in partitions]
    )
    waiting = set(partitions)
    rows: dict[bytes | None, object] = {}
    while waiting:
        message = consumer.poll(30.0)
        if message is None:
            raise SystemExit("the brokers do not answer")
        error = message.error()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            waiting.discard(message.partition())
            continue
        if error is not None:
            raise SystemExit(str(error))
        content = message.value()
        value = None if content is None else json.loads(content)
        rows.pop(message.key(), None)
        if value is not None and value["after"] is not None:
            rows[message.key()] = value["after"]
    consumer.close()
    for row in rows.values():
        print(json.dumps(row))


if __name__ == "__main__":
    main()

"""A member that is stopped while it holds a partition. Arguments: broker, topic and group.

It prints `assigned`, waits for a line, then commits and prints the result.
"""

import sys

from tidegate_delta.errors import TidegateError
from tidegate_runtime.kafka.client_protocols import Offset, TopicPartition
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.kafka.settings import KafkaSettings


def main(broker: str, topic: str, group: str) -> None:
    settings = KafkaSettings(bootstrap_servers=broker, session_timeout_ms=2_000)
    consumer = KafkaBus(settings, "zombie").consumer(group, [topic])
    while not consumer.poll(1, 1.0).assigned:
        pass
    sys.stdout.write("assigned\n")
    sys.stdout.flush()
    sys.stdin.readline()
    try:
        consumer.commit({TopicPartition(topic, 0): Offset(7)})
    except TidegateError as error:
        sys.stdout.write(f"{type(error).__name__}\n")
    else:
        sys.stdout.write("committed\n")


main(*sys.argv[1:])

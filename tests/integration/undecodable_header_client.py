"""A client that sends a header name that is not UTF-8. Arguments: broker and topic.

librdkafka takes names as text; aiokafka without its compiled parts accepts any bytes.
"""

import asyncio
import os
import sys

os.environ["AIOKAFKA_NO_EXTENSIONS"] = "1"

from aiokafka import AIOKafkaProducer  # aiokafka reads the environment when it is imported


class Misnamed(str):
    """A name with other bytes on the wire."""

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        """Return bytes that are not valid text."""
        return b"\xff\xfe"


async def main(broker: str, topic: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=broker)
    await producer.start()
    await producer.send_and_wait(topic, b"{", headers=[(Misnamed("x"), b"value")])
    await producer.stop()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

"""A client that names a header in bytes that are no UTF-8: arguments are broker and topic.

librdkafka takes names as text, aiokafka without its compiled parts takes what we give it.
"""

import asyncio
import os
import sys

os.environ["AIOKAFKA_NO_EXTENSIONS"] = "1"

from aiokafka import AIOKafkaProducer  # it looks at the environment first


class Misnamed(str):
    """A name that is spelt otherwise on the wire."""

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        """Return what no text is."""
        return b"\xff\xfe"


async def main(broker: str, topic: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=broker)
    await producer.start()
    await producer.send_and_wait(topic, b"{", headers=[(Misnamed("x"), b"value")])
    await producer.stop()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

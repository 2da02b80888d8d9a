"""Which release this is, and what it calls itself in a table's log."""

from importlib.metadata import version
from typing import Final

RELEASE: Final = version("tidegate")
ENGINE: Final = f"Tidegate/{RELEASE}"
KAFKA_VERSION: Final = "4.1.1"
"""Of the Kafka that `tidegate up` and the tests start."""

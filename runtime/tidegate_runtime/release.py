"""The version of this release, and the engine name that it writes into a table's log."""

from importlib.metadata import version
from typing import Final

RELEASE: Final = version("tidegate")
ENGINE: Final = f"Tidegate/{RELEASE}"
KAFKA_VERSION: Final = "4.1.1"
"""The version of Kafka that `tidegate up` and the tests start."""

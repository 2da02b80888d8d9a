"""Which release this is, and what it calls itself in a table's log."""

from importlib.metadata import version
from typing import Final

RELEASE: Final = version("tidegate")
ENGINE: Final = f"Tidegate/{RELEASE}"

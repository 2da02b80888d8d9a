"""Two tables on disk, of which followers fail at the one in the folder `bad`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

from tests.fakes.memory_store import MemoryBus
from tests.unit.cdc_publisher.written_table import WrittenTable
from tidegate_messages.topics import Topics


class Odd(Exception):
    """An exception class that no handler names."""


def bad_and_good(folder: Path, bus: MemoryBus, topics: Topics) -> tuple[WrittenTable, WrittenTable]:
    """Create and register two tables."""
    bad, good = (
        WrittenTable(folder / name, id=UUID(int=at)).create()
        for at, name in enumerate(("bad", "good"), 1)
    )
    for table in (bad, good):
        table.register(bus.producer(), topics)
    return bad, good


def failing(home: Any, name: str, error: Exception | None = None) -> Callable[..., Any]:
    """Return a function that fails if one of its arguments is the table `bad`, or its store."""
    real = getattr(home, name)

    def is_bad(argument: object) -> bool:
        return "/bad" in str(getattr(argument, "root", argument)) or (
            getattr(argument, "name", None) == "bad"
        )

    def function(*arguments: Any, **named: Any) -> Any:
        if any(map(is_bad, arguments)):
            raise error or Odd("of an odd kind")
        return real(*arguments, **named)

    return function

"""Which stream a command of `tidegate changes` is about."""

from typing import Annotated, Final

import typer

from tidegate_delta.errors import InvalidRequest
from tidegate_messages.published_records import TableRecord
from tidegate_messages.topics import Topics
from tidegate_runtime.kafka.client_protocols import Bus
from tidegate_runtime.table_registry import find_table, read_registry

CLIENT_ID: Final = "tidegate-changes"

TableArgument = Annotated[str, typer.Argument(help="The table's registered name, or its root.")]


def find_stream(bus: Bus, topics: Topics, table: str) -> TableRecord:
    """Return a table's registration. Raises: InvalidRequest (`TableNotRegistered`)."""
    record = find_table(read_registry(bus, topics), table)
    if record is None:
        raise InvalidRequest(
            f"no table {table!r} is registered; `tidegate changes list` shows those that are",
            error_class="TableNotRegistered",
        )
    return record

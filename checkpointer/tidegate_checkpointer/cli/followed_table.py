"""Where a table lies that a command is given by its root or its registered name."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tidegate_checkpointer.settings import CheckpointerSettings
from tidegate_messages.published_records import TableRecord
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.storage.open_store import open_store
from tidegate_runtime.storage.root_paths import canonical_root
from tidegate_runtime.table_registry import find_table, read_registry

CLIENT_ID = "tidegate-table-maintenance"

TableUri = Annotated[str, typer.Argument(help="The table's root, or its registered name.")]


@dataclass(frozen=True)
class FollowedTable:
    """A table's store, and its registration; None if it has none, or no broker was asked."""

    store: LogStore
    record: TableRecord | None
    bus: KafkaBus | None

    @property
    def root(self) -> str:
        """The table's root."""
        return self.store.root


def followed_table(
    uri: str, settings: CheckpointerSettings, *, offline: bool = False
) -> FollowedTable:
    """Return a table by its root or name. Raises: Misconfigured; Unavailable."""
    if offline:
        return FollowedTable(open_store(canonical_root(uri), settings.storage), None, None)
    bus = KafkaBus(settings.kafka, CLIENT_ID)
    record = find_table(read_registry(bus, settings.kafka.topics), uri)
    root = canonical_root(uri) if record is None else record.table_root
    return FollowedTable(open_store(root, settings.storage), record, bus)


def by_path(uri: str, settings: CheckpointerSettings) -> FollowedTable:
    """Return a table; the registry is read only for a name. Raises: as `followed_table`."""
    return followed_table(uri, settings, offline="/" in uri or Path(uri).exists())

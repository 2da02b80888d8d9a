"""Checks that the folder of a table to be registered is not registered under another root.

Two registrations of one folder would have two committers, each of which publishes, checkpoints and
halts the table by itself.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

from tidegate_committer.decision.published_record_limits import short
from tidegate_committer.dependencies import Dependencies
from tidegate_committer.state.table_state import TableState
from tidegate_delta.errors import InvalidRequest, Misconfigured, Unavailable
from tidegate_messages.published_records import TableRecord
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.storage.root_paths import joined

_FOLDER: Final = "_tidegate"


def is_one_place(store: LogStore, other: LogStore, name: str) -> bool:
    """Return whether two stores are the same folder, by a scratch file with the unique name `name`.

    Raises: Unavailable.
    """
    path, content = joined(_FOLDER, f"place-{name}"), name.encode()
    store.put(path, content)
    try:
        return other.read(path) == content
    finally:
        # If it cannot be deleted, it stays: readers ignore folders that begin with `_`.
        with suppress(Unavailable):
            store.delete(path)


def check_alone(
    store: LogStore,
    state: TableState,
    record: TableRecord,
    others: Iterable[TableRecord],
    dependencies: Dependencies,
) -> None:
    """Check that no table that is already registered is in the same folder under another root.

    Raises: InvalidRequest (`table_exists`), if one is; Unavailable.
    """
    if state.version < 0:
        return
    for other in _with_its_id(state.table_definition.metadata.id, record, others):
        try:
            other_store = dependencies.open_store(other.table_root)
        except Misconfigured:
            # We cannot open that root, so we serve no table there.
            continue
        try:
            is_taken = is_one_place(store, other_store, dependencies.new_id().hex)
        except Unavailable as error:
            raise Unavailable(
                f"whether {record.table_root} is the folder that is registered as {other.name!r} "
                f"cannot be told ({error}); where that table is gone, drop it first"
            ) from error
        if is_taken:
            raise InvalidRequest(
                f"{record.table_root} is the folder that is registered as {other.name!r} under "
                f"{other.table_root}; use that root, or drop that table first",
                error_class="table_exists",
            )


def is_overtaken(
    record: TableRecord, table_id: str, before: Iterable[TableRecord], now: Iterable[TableRecord]
) -> bool:
    """Return whether a table registered since `before` has the same root, name or metaData id.
    `check_alone` did not know of it.
    """
    known = {(table.table, table.table_id) for table in before}
    return any(
        (table.table, table.table_id) not in known
        and table.table != record.table
        and table.status != "staged"
        and (
            table.table_root == record.table_root
            or table.name == record.name
            or table.table_id == table_id
        )
        for table in now
    )


def _with_its_id(
    table_id: str, record: TableRecord, others: Iterable[TableRecord]
) -> Iterator[TableRecord]:
    """Yield other tables with this metaData id: copies of the table, or the table itself."""
    for other in others:
        is_there = other.status not in ("staged", "dropped")
        is_same = short(other.table_id) == short(table_id)
        if is_there and is_same and other.table != record.table:
            yield other

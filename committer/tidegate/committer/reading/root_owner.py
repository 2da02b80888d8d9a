"""One table a folder: checks that a table to be registered is not registered under another root.

Two registrations of one folder would have two committers, each of which publishes, checkpoints and
halts the table for itself; without put-if-absent (`ratify`) they would not even see each other.
"""

from collections.abc import Iterable, Iterator

from tidegate.committer.doors import Doors
from tidegate.committer.judging.record_limits import short
from tidegate.committer.tables.state import TableState
from tidegate.delta.errors import InvalidRequest, Misconfigured, Unavailable
from tidegate.pipeline.published import TableRecord
from tidegate.runtime.stores.log_store import LogStore
from tidegate.runtime.stores.same_root import is_one_place


def check_alone(
    store: LogStore,
    state: TableState,
    record: TableRecord,
    others: Iterable[TableRecord],
    doors: Doors,
) -> None:
    """Check that no table that was registered before lies in the same folder, by another root.

    Raises: InvalidRequest (`table_exists`), where one is; Unavailable.
    """
    if state.version < 0:
        return
    for other in _with_its_id(state.basis.metadata.id, record, others):
        try:
            there = doors.open_store(other.table_root)
        except Misconfigured:
            # We can't open that root, so we serve no table there.
            continue
        try:
            is_taken = is_one_place(store, there, doors.new_id().hex)
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
    """Return whether a table registered since `before` has the same root, name or metaData id:
    `check_alone` did not know of it.
    """
    known = {(one.table, one.table_id) for one in before}
    return any(
        (one.table, one.table_id) not in known
        and one.table != record.table
        and one.status != "staged"
        and (
            one.table_root == record.table_root
            or one.name == record.name
            or one.table_id == table_id
        )
        for one in now
    )


def _with_its_id(
    table_id: str, record: TableRecord, others: Iterable[TableRecord]
) -> Iterator[TableRecord]:
    """Yield other tables with the metaData's id: copies of the table, or the table itself."""
    for other in others:
        is_there = other.status not in ("staged", "dropped")
        is_same = short(other.table_id) == short(table_id)
        if is_there and is_same and other.table != record.table:
            yield other

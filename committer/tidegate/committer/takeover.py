"""A table that is to be registered as it stands: what its log has to say before it is."""

from collections.abc import Iterable

from tidegate.committer.candidate import Candidate
from tidegate.committer.desk import Desk
from tidegate.committer.doors import Doors
from tidegate.committer.registration import Known
from tidegate.committer.verdicts import Verdict, denied
from tidegate.delta.errors import Misconfigured
from tidegate.pipeline.published import TableRecord
from tidegate.runtime.one_place import is_one_place


def objection(candidate: Candidate, desk: Desk, known: Known, doors: Doors) -> Verdict | None:
    """Return why the table whose log a desk has read can't be registered, or None.

    A folder that is registered under another root has its committer: two would publish, summarise
    and halt it each for itself, and where a partition decides, each by a partition of its own.
    Raises: Unavailable.
    """
    assert desk.state is not None, "the table was loaded"
    root = desk.record.table_root
    if desk.state.version < 0:
        reason = f"table_root: {root} holds no Delta table; create it first"
        return denied(candidate, "NotADeltaTable", reason)
    table_id = desk.state.basis.metadata.id
    for other in _with_its_id(table_id, desk.record, known):
        try:
            there = doors.open_store(other.table_root)
        except Misconfigured:
            # Who can't open it serves no table there.
            continue
        if is_one_place(desk.store, there, doors.new_id().hex):
            reason = (
                f"table_root: {root} is the folder that is registered as {other.name!r} under "
                f"{other.table_root}; use that root, or drop that table first"
            )
            return denied(candidate, "table_exists", reason)
    return None


def _with_its_id(table_id: str, record: TableRecord, known: Known) -> Iterable[TableRecord]:
    """Yield other tables with the metaData's id: copies of the table, or the table itself."""
    for other in known.tables.values():
        is_there = other.status not in ("staged", "dropped")
        if is_there and other.table_id == table_id and other.table != record.table:
            yield other

"""The change topic of a table, published into memory by the real publisher, and replayed."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from tests.unit.cdc_publisher.memory_change_topic import Topic, stream
from tests.unit.cdc_publisher.written_table import WrittenTable
from tidegate_cdc_publisher.machine import SnapshotMode
from tidegate_cdc_publisher.record_form import Envelope, RecordForm
from tidegate_cdc_publisher.settings import TableChanges


def replayed(path: str, head: int) -> list[str]:
    """Return the rows that remain of all changes from the first version on."""
    rows: Counter[str] = Counter()
    for change in _changes(path, head, "no_data", 0):
        if change["before"] is not None:
            rows[_shown(change["before"])] -= 1
        if change["after"] is not None:
            rows[_shown(change["after"])] += 1
    lacking = [row for row, count in rows.items() if count < 0]
    assert not lacking, f"rows were removed that were never there: {lacking}"
    return sorted(rows.elements())


def snapshot(path: str, head: int) -> list[str]:
    """Return the rows of a version, as the publisher's snapshot has them."""
    return sorted(_shown(change["after"]) for change in _changes(path, head, "initial", None))


def read(path: str, envelope: Envelope) -> None:
    """Read the changes from the first version on as JSON, in which a name may stand once."""
    head = max(int(file.stem) for file in Path(path, "_delta_log").glob("*.json"))
    table, topic, form = WrittenTable(Path(path)), Topic(), RecordForm(envelope=envelope)
    unkeyed = TableChanges(key="none")
    stream(table, topic, unkeyed, mode="no_data", start=0, form=form).catch_up(head)
    for record in topic.records:
        if record.value is not None:
            json.loads(record.value, object_pairs_hook=_once)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len(dict(pairs)) == len(pairs), f"a name stands twice: {[name for name, _ in pairs]}"
    return dict(pairs)


def _changes(path: str, head: int, mode: SnapshotMode, start: int | None) -> list[dict[str, Any]]:
    table, topic = WrittenTable(Path(path)), Topic()
    stream(table, topic, TableChanges(key="none"), mode=mode, start=start).catch_up(head)
    return topic.told


def _shown(row: dict[str, Any]) -> str:
    return repr(_sorted(row))


def _sorted(value: Any) -> Any:
    """Return a JSON value without what is null: a row before a field was added lacks it."""
    if isinstance(value, dict):
        return sorted((name, _sorted(item)) for name, item in value.items() if item is not None)
    if isinstance(value, list):
        return [_sorted(item) for item in value]
    return value

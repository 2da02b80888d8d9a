"""A delete, copy-on-write: find the files, rewrite those with matching rows, propose the exchange.

Its read set is exact: the predicate, and the files that were read or removed because of it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.delta.actions import Add, Metadata
from tidegate.delta.files.columns import rows_to_adds
from tidegate.delta.files.predicate import Predicate, columns_of, prune
from tidegate.delta.snapshot import Snapshot
from tidegate.pipeline.outcome import Outcome
from tidegate.producers import draft
from tidegate.producers.client import Client
from tidegate.producers.connection import store_for
from tidegate.producers.files.parquet import Layout, layout_of
from tidegate.producers.files.rewriting import Rewritten, whole_files
from tidegate.producers.options import Place
from tidegate.producers.table.condition import predicate_of
from tidegate.producers.writing import (
    Saying,
    check_may_remove,
    check_open_to,
    propose,
    stamp_for,
)
from tidegate.runtime.data_files import rows_of
from tidegate.runtime.open_table import open_snapshot


@dataclass(frozen=True)
class Rewriting:
    """What a task needs to rewrite files of a table."""

    place: Place
    metadata: Metadata
    predicate: Predicate

    @property
    def layout(self) -> Layout:
        """How the table's rows become files."""
        return layout_of(self.metadata)


Runner = Callable[[Rewriting, Sequence[Mapping[str, Any]]], Sequence[Rewritten]]
"""Rewrites files, given as rows of ADD_SCHEMA, wherever it likes."""


def delete(
    client: Client, place: Place, condition: str, saying: Saying, runner: Runner
) -> Outcome | None:
    """Delete the rows that match a condition; None where none does, and nothing is proposed.

    Raises: Rejected, OutcomeUnknown, InvalidRequest, UnsupportedFeature, BrokenLog, Unavailable.
    """
    store = store_for(place)
    record = client.require(place.root, saying.timeout_s)
    began_ms = client.clock.now_ms()
    snapshot = open_snapshot(store)
    schema = check_open_to(snapshot, place.root)
    predicate = predicate_of(condition, schema)
    check_may_remove(snapshot, place.root)
    rewriting = Rewriting(place, snapshot.metadata, predicate)
    deletion = _deletion(snapshot, rewriting, condition, runner)
    if not deletion.removed:
        return None
    target = draft.Target(
        record.table, record.table_root, int(snapshot.version), snapshot.metadata.id
    )
    stamp = stamp_for(client, saying, began_ms)
    proposal = draft.delete(target, stamp, deletion)
    return propose(client, store, proposal, saying.timeout_s)


def _deletion(
    snapshot: Snapshot, rewriting: Rewriting, condition: str, runner: Runner
) -> draft.Deletion:
    layout, predicate = rewriting.layout, rewriting.predicate
    if columns_of(predicate) <= set(layout.partition_columns):
        return _by_file(snapshot, rewriting, condition)
    candidates = prune(predicate, snapshot.files, snapshot.metadata)
    rewritten = runner(rewriting, list(rows_of(candidates))) if candidates.num_rows else ()
    touched = {one.path: one for one in rewritten if one.deleted_rows}
    live = rows_to_adds(candidates)
    removed = [add for add in live if add.path in touched]
    added = [add for one in touched.values() for add in one.adds]
    metrics = {
        "numRemovedFiles": len(removed),
        "numAddedFiles": len(added),
        "numDeletedRows": sum(one.deleted_rows for one in touched.values()),
        "numCopiedRows": sum(one.copied_rows for one in touched.values()),
    }
    return draft.Deletion(condition, predicate, [add.path for add in live], removed, added, metrics)


def _by_file(snapshot: Snapshot, rewriting: Rewriting, condition: str) -> draft.Deletion:
    """Return the removal of whole files: partition values alone say which; no file is opened."""
    whole = whole_files(snapshot, rewriting.predicate, rewriting.layout)
    removed: list[Add] = rows_to_adds(whole)
    paths = [add.path for add in removed]
    metrics = {"numRemovedFiles": len(removed), "numAddedFiles": 0, "numCopiedRows": 0}
    return draft.Deletion(condition, rewriting.predicate, paths, removed, (), metrics)

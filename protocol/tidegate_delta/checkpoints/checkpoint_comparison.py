"""Compare what a checkpoint holds with a fold of the log that did not use it.

Spec: "Checkpoints"
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_delta.checkpoints.checkpoint_rows import live_tombstones
from tidegate_delta.properties.table_properties import txn_retention_ms
from tidegate_delta.snapshots.raw_stats import row_counts, with_texts
from tidegate_delta.snapshots.replay import keys
from tidegate_delta.snapshots.snapshot import Snapshot

_COMPARED: Final = (
    "size",
    "modificationTime",
    "baseRowId",
    "defaultRowCommitVersion",
    "clusteringProvider",
)
_MAPS: Final = ("partitionValues", "tags")


def differences(checkpoint: Snapshot, folded: Snapshot, now_ms: int) -> tuple[str, ...]:
    """Return what of a checkpoint contradicts a fold of the log up to its version.

    A checkpoint may lack what has expired: tombstones, application transactions, removed domains.
    Of statistics only the number of rows is compared, since typed ones and JSON differ in form.

    Law: differences(s, s, now) == ()
    Units: `now_ms` is a Unix time.
    """
    return tuple(_differences(checkpoint, folded, now_ms))


def _differences(checkpoint: Snapshot, folded: Snapshot, now_ms: int) -> Iterator[str]:
    if checkpoint.protocol != folded.protocol:
        yield "its protocol is another"
    if checkpoint.metadata != folded.metadata:
        yield "its metaData is another"
    yield from _transactions(checkpoint, folded)
    yield from _domains(checkpoint, folded)
    yield from _files(checkpoint, folded)
    needed = pc.unique(keys(live_tombstones(folded, now_ms)))
    # The sum of no values is null, not 0.
    held = pc.sum(pc.is_in(needed, keys(checkpoint.tombstones)), min_count=0).as_py()
    if missing := len(needed) - held:
        yield f"it lacks {missing} tombstones that have not expired"


def _transactions(checkpoint: Snapshot, folded: Snapshot) -> Iterator[str]:
    held, known = checkpoint.app_transactions, folded.app_transactions
    if differing := sorted(app for app, txn in held.items() if known.get(app) != txn):
        yield f"its transaction of application {differing[0]!r} is another"
    may_expire = txn_retention_ms(folded.metadata) is not None
    if not may_expire and (missing := sorted(known.keys() - held.keys())):
        yield f"it lacks the transaction of application {missing[0]!r}"


def _domains(checkpoint: Snapshot, folded: Snapshot) -> Iterator[str]:
    held, known = (
        {name: domain for name, domain in snapshot.domains.items() if not domain.removed}
        for snapshot in (checkpoint, folded)
    )
    if differing := sorted(
        name for name in held.keys() | known.keys() if held.get(name) != known.get(name)
    ):
        yield f"its domain {differing[0]!r} is another"


def _files(checkpoint: Snapshot, folded: Snapshot) -> Iterator[str]:
    held_keys, known_keys = checkpoint.file_keys, folded.file_keys
    held_order, known_order = pc.sort_indices(held_keys), pc.sort_indices(known_keys)
    if not held_keys.take(held_order).equals(known_keys.take(known_order)):
        held, known = set(held_keys.to_pylist()), set(known_keys.to_pylist())
        missing, extra = sorted(known - held), sorted(held - known)
        if missing:
            yield f"it lacks {len(missing)} live files, {missing[0]} for one"
        if extra:
            yield f"it has {len(extra)} files that are not live, {extra[0]} for one"
        if not missing and not extra:
            yield "it names a file twice"
        return
    held_files = with_texts(checkpoint.files).take(held_order)
    known_files = with_texts(folded.files).take(known_order)
    for name in _COMPARED:
        if not held_files[name].equals(known_files[name]):
            yield f"it states another {name} of a file"
    for name in _MAPS:
        if not _same_maps(held_files[name], known_files[name]):
            yield f"it states other {name} of a file"
    if not row_counts(held_files).equals(row_counts(known_files)):
        yield "it states another number of rows of a file"
    if not _cardinalities(held_files).equals(_cardinalities(known_files)):
        yield "it states another number of deleted rows of a file"


def _same_maps(held: pa.ChunkedArray, known: pa.ChunkedArray) -> bool:
    """Return whether maps are equal in any order, an empty text being a null."""
    return held.equals(known) or (
        [_plain(mapping) for mapping in held.to_pylist()]
        == [_plain(mapping) for mapping in known.to_pylist()]
    )


def _plain(entries: Any) -> Mapping[str, str | None]:
    return {key: value or None for key, value in entries or ()}


def _cardinalities(files: pa.Table) -> pa.ChunkedArray:
    return pc.struct_field(files["deletionVector"], "cardinality")

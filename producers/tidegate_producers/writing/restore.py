"""Restores a table to an older version: files and metadata become those of that version again."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import pyarrow.compute as pc

from tidegate_delta.deletion_vectors.descriptors import is_inline, path_of
from tidegate_delta.errors import BrokenLog, InvalidRequest
from tidegate_delta.features.supported_features import check_writable
from tidegate_delta.log.actions import Add, Metadata
from tidegate_delta.properties.table_properties import max_column_id
from tidegate_delta.snapshots.file_action_columns import rows_to_adds
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_messages.outcome import Outcome
from tidegate_messages.proposal import Operation, Proposal
from tidegate_producers.cached_clients import store_for
from tidegate_producers.options import TableLocation
from tidegate_producers.writing.column_checks import (
    Attestation,
    in_table_already,
    with_attestation,
)
from tidegate_producers.writing.table_write import (
    WriteRequest,
    check_may_remove,
    propose,
    stamp_for,
)
from tidegate_runtime.client import proposal_builders
from tidegate_runtime.client.client import Client
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.open_table import open_snapshot
from tidegate_runtime.table_io.table_files import open_table_file

LOOKS_AT_ONCE: Final = 16
_NAMED_MAX: Final = 5
"""How many missing files an error names."""


@dataclass(frozen=True)
class RestorePoint:
    """The version to restore, or the time whose version it is, as given. Units: ms since the Unix
    epoch.
    """

    version: int | None = None
    timestamp_ms: int | None = None
    text: str | None = None


@dataclass(frozen=True)
class Restoration:
    """What a restore changes: files that leave, files that come back, and the size after it.

    Units: `size` in bytes.
    """

    version: int
    removed: tuple[Add, ...]
    restored: tuple[Add, ...]
    files: int
    size: int
    changes_metadata: bool

    @property
    def is_nothing(self) -> bool:
        """Whether the table is as it was already."""
        return not (self.removed or self.restored or self.changes_metadata)

    @property
    def metrics(self) -> dict[str, int]:
        """The metrics of the version, by delta-spark's names."""
        return {
            "numRestoredFiles": len(self.restored),
            "numRemovedFiles": len(self.removed),
            "restoredFilesSize": sum(add.size for add in self.restored),
            "removedFilesSize": sum(add.size for add in self.removed),
            "numOfFilesAfterRestore": self.files,
            "tableSizeAfterRestore": self.size,
        }


def survey(place: TableLocation, moment: RestorePoint) -> Restoration:
    """Return what a restore would change; nothing is written. Raises: as `restore`."""
    return _planned(store_for(place), moment)[0]


def restore(
    client: Client, place: TableLocation, moment: RestorePoint, request: WriteRequest
) -> tuple[Restoration, Outcome | None]:
    """Restore a table, and return what changed and the outcome; None if it is as it was already.

    The protocol stays: a feature that came since is not taken back.
    Raises: InvalidRequest (`TableNotRegistered`, `VersionNotFound`, `DataFileMissing`, for files
    that a vacuum deleted); UnsupportedFeature; Rejected, if others change the table meanwhile (run
    it again); OutcomeUnknown; Unavailable.
    """
    store = store_for(place)
    record = client.require(place.root, request.timeout_s)
    planned, now, target_snapshot = _planned(store, moment)
    if planned.is_nothing:
        return planned, None
    _check_files_exist(store, planned)
    stamp = stamp_for(client, request)
    target = proposal_builders.Target(
        record.table, record.table_root, int(now.version), now.metadata.id
    )
    metadata = restored_metadata(now.metadata, target_snapshot.metadata)
    # The rows met the constraints of the version from which they come. Change files would say which
    # of them came back; without them readers compare the files.
    attestation = Attestation(in_table_already(metadata, now.protocol), "implicit")
    proposal = with_attestation(_draft(target, stamp, planned, metadata, moment), attestation)
    return planned, propose(client, store, proposal, request.timeout_s)


def _planned(store: LogStore, moment: RestorePoint) -> tuple[Restoration, Snapshot, Snapshot]:
    now = open_snapshot(store)
    target = open_snapshot(store, moment.version, moment.timestamp_ms)
    check_writable(now.protocol, now.metadata, store.root)
    goes = pc.invert(pc.is_in(now.file_keys, value_set=target.file_keys))
    comes = pc.invert(pc.is_in(target.file_keys, value_set=now.file_keys))
    removed = rows_to_adds(now.files.filter(goes))
    if removed:
        check_may_remove(now, store.root)
    # A compaction's files say that they change no data. Brought back, they do.
    restored = [add.with_(data_change=True) for add in rows_to_adds(target.files.filter(comes))]
    plan = Restoration(
        version=int(target.version),
        removed=tuple(removed),
        restored=tuple(restored),
        files=target.files.num_rows,
        size=int(pc.sum(target.files["size"]).as_py() or 0),
        changes_metadata=_differs(now, target),
    )
    return plan, now, target


def restored_metadata(now: Metadata, target: Metadata) -> Metadata:
    """Return the metadata of a version as it comes back: no id of a column is given twice.

    Spec: "Column Mapping"
    """
    highest = max(max_column_id(now), max_column_id(target))
    if highest == max_column_id(target):
        return target
    configuration = {**target.configuration, max_column_id.key: str(highest)}
    return target.with_(configuration=configuration)


def _differs(now: Snapshot, target: Snapshot) -> bool:
    compared = ("name", "description", "schema_string", "partition_columns", "configuration")
    return any(getattr(now.metadata, name) != getattr(target.metadata, name) for name in compared)


def _check_files_exist(store: LogStore, planned: Restoration) -> None:
    """Check that the files to restore are in the store. Raises: InvalidRequest; Unavailable."""
    paths = [add.path for add in planned.restored]
    paths += [
        path_of(vector)
        for add in planned.restored
        if (vector := add.deletion_vector) is not None and not is_inline(vector)
    ]
    with ThreadPoolExecutor(LOOKS_AT_ONCE, "look") as pool:
        are_there = pool.map(lambda path: _exists(store, path), paths)
        missing = [path for path, is_there in zip(paths, are_there, strict=True) if not is_there]
    if missing:
        missing_text = ", ".join(missing[:_NAMED_MAX])
        raise InvalidRequest(
            f"{store.root}: version {planned.version} needs {len(missing)} files that are not "
            f"there any more, as after a vacuum ({missing_text}): restore a newer version, or "
            "bring the files back; nothing was proposed",
            error_class="DataFileMissing",
        )


def _exists(store: LogStore, path: str) -> bool:
    try:
        with open_table_file(store, path):
            return True
    except (FileNotFoundError, BrokenLog):
        return False


def _draft(
    target: proposal_builders.Target,
    stamp: proposal_builders.Stamp,
    planned: Restoration,
    metadata: Metadata,
    moment: RestorePoint,
) -> Proposal:
    version = None if moment.version is None else str(moment.version)
    parameters: Mapping[str, str | None] = {"version": version, "timestamp": moment.text}
    metrics = {name: str(value) for name, value in planned.metrics.items()}
    operation = Operation(name="RESTORE", parameters=dict(parameters), metrics=metrics)
    removes = [proposal_builders.removal(add, stamp.created_ms) for add in planned.removed]
    definition = [metadata] if planned.changes_metadata else []
    actions = (*definition, *removes, *planned.restored)
    rows = tuple(action.to_row() for action in actions)
    body = proposal_builders.Body(operation, rows, proposal_builders.WHOLE_TABLE)
    return proposal_builders.of_body("commit", target, stamp, body)

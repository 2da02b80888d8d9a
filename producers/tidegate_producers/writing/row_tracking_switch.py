"""Row tracking turned on and off for a table with files: each gets its first row id, or loses it.

A backfill adds files again as they are, and the committer numbers them. It is committed in parts,
so that what an interrupted run has done stays.
"""

import logging
from collections.abc import Sequence
from typing import Final

from tidegate_delta.features import row_tracking
from tidegate_delta.log.actions import Add
from tidegate_delta.properties.table_properties import FEATURE_PREFIX
from tidegate_delta.snapshots.file_action_columns import rows_to_adds
from tidegate_messages.metadata_patch import PatchChange, SetProperty
from tidegate_messages.outcome import Outcome
from tidegate_messages.proposal import Operation
from tidegate_producers.cached_clients import store_for
from tidegate_producers.options import TableLocation
from tidegate_producers.writing.alter_table import alter, change
from tidegate_producers.writing.column_checks import row_columns
from tidegate_producers.writing.table_write import WriteRequest, propose, stamp_for
from tidegate_runtime.client import proposal_builders
from tidegate_runtime.client.client import Client
from tidegate_runtime.observability.logs import log_event
from tidegate_runtime.table_io.open_table import open_keys, open_snapshot
from tidegate_runtime.table_io.row_ids import has_row_ids, lacks_row_ids

FILES_MAX: Final = 1_000
"""How many files a backfill numbers in one version."""

_BACKFILL: Final = "ROW TRACKING BACKFILL"
_UNBACKFILL: Final = "ROW TRACKING UNBACKFILL"
_logger = logging.getLogger("tidegate_producers")


def backfill(client: Client, place: TableLocation, request: WriteRequest) -> list[int]:
    """Give each file of a table that lists the feature its first row id; return the versions.

    Raises: Rejected; OutcomeUnknown; Unavailable; BrokenLog.
    """
    return _added_again(client, place, request, _BACKFILL)


def unbackfill(client: Client, place: TableLocation, request: WriteRequest) -> list[int]:
    """Take the first row id from each file of a table whose row tracking is suspended; return the
    versions.

    Raises: as `backfill`.
    """
    return _added_again(client, place, request, _UNBACKFILL)


def alter_prepared(
    client: Client, place: TableLocation, changes: Sequence[PatchChange], request: WriteRequest
) -> Outcome:
    """Change a table's metadata as `alter` does. Before row tracking is turned on, each file gets
    its first row id.

    Raises: as `alter` and `backfill`.
    """
    if not any(map(_turns_on, changes)):
        return alter(client, place, changes, request)
    live_keys = open_keys(store_for(place))
    if row_tracking.is_enabled(live_keys.metadata):
        return alter(client, place, changes, request)
    if not row_tracking.supports(live_keys.protocol):
        key = f"{FEATURE_PREFIX}{row_tracking.FEATURE}"
        alter(client, place, [change(op="set_property", key=key, value="supported")], request)
    backfill(client, place, request)
    columns = row_columns(live_keys.metadata, client.new_id)
    column_properties = (
        change(op="set_property", key=key, value=name) for key, name in columns.items()
    )
    return alter(client, place, [*column_properties, *changes], request)


def _turns_on(patch_change: PatchChange) -> bool:
    if (
        not isinstance(patch_change, SetProperty)
        or patch_change.key.lower() != row_tracking.ENABLED.lower()
    ):
        return False
    return patch_change.value.strip().lower() == "true"


def _added_again(
    client: Client, place: TableLocation, request: WriteRequest, operation: str
) -> list[int]:
    record = client.require(place.root, request.timeout_s)
    versions: list[int] = []
    while True:
        snapshot = open_snapshot(store_for(place))
        mark = lacks_row_ids if operation == _BACKFILL else has_row_ids
        files = snapshot.files.filter(mark(snapshot.files))
        if not files.num_rows:
            return versions
        target = proposal_builders.Target(
            record.table, record.table_root, int(snapshot.version), snapshot.metadata.id
        )
        # A table is counted again only where others add files meanwhile.
        for start in range(0, files.num_rows, FILES_MAX):
            adds = [
                _as_stated(add, operation) for add in rows_to_adds(files.slice(start, FILES_MAX))
            ]
            body = proposal_builders.Body(
                Operation(name=operation),
                tuple(add.to_row() for add in adds),
                proposal_builders.NOTHING,
            )
            stamp = stamp_for(client, request)
            proposal = proposal_builders.of_body("commit", target, stamp, body)
            outcome = propose(client, store_for(place), proposal, request.timeout_s)
            assert outcome.version is not None, "what is committed has a version"
            versions.append(outcome.version)
            log_event(
                _logger,
                "backfill_progress",
                table=place.root,
                version=outcome.version,
                files_done=start + len(adds),
                files_planned=files.num_rows,
            )


def _as_stated(add: Add, operation: str) -> Add:
    if operation == _BACKFILL:
        return add.with_(data_change=False)
    return add.with_(data_change=False, base_row_id=None, default_row_commit_version=None)

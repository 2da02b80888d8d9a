"""Computes the statistics of files that lack them from their rows, and adds the files again with
these. No row changes, and no file is written.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_delta.log.actions import Add
from tidegate_delta.schema.arrow_types import to_arrow
from tidegate_delta.snapshots.file_action_columns import rows_to_adds
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_messages.proposal import Operation
from tidegate_producers.cached_clients import store_for
from tidegate_producers.options import TableLocation
from tidegate_producers.parquet.data_file_encoding import as_it_is, layout_of, statistics
from tidegate_producers.writing.table_write import WriteRequest, propose, stamp_for
from tidegate_runtime.client import proposal_builders
from tidegate_runtime.client.client import Client
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.data_file_reader import read_file, rows_of

OPERATION: Final = "COMPUTE STATS"

NOT_AS_READ: Final = frozenset({"added_file_live", "rows_from_nowhere"})
"""The rules by which it is refused where another commit removed a file, or deleted rows of it."""


def with_statistics(store: LogStore, snapshot: Snapshot, paths: Sequence[str]) -> Iterator[Add]:
    """Yield live files again with statistics of all their rows, those included that a deletion
    vector deletes. One file's rows are in memory at a time.

    Raises: as `read_file`.
    """
    metadata = snapshot.metadata
    layout = as_it_is(layout_of(metadata))
    shape, names = to_arrow(layout.schema), layout.stored.names
    files = snapshot.files.filter(pc.is_in(snapshot.files["path"], pa.array(paths, pa.string())))
    for add, row in zip(rows_to_adds(files), rows_of(files), strict=True):
        batches = read_file(store, {**row, "deletionVector": None}, metadata)
        rows = pa.Table.from_batches(batches, schema=shape).select(names)
        stats = statistics(rows, layout)
        if add.deletion_vector is not None:
            stats = f'{stats[:-1]},"tightBounds":false}}'
        yield add.with_(stats=stats, data_change=False)


def add_again(
    client: Client,
    place: TableLocation,
    snapshot: Snapshot,
    adds: Sequence[Add],
    request: WriteRequest,
) -> None:
    """Propose live files of a snapshot again, with their new statistics.

    Raises: InvalidRequest (`TableNotRegistered`); Rejected; OutcomeUnknown; Unavailable.
    """
    record = client.require(place.root, request.timeout_s)
    target = proposal_builders.Target(
        record.table, record.table_root, int(snapshot.version), snapshot.metadata.id
    )
    operation = Operation(name=OPERATION, metrics={"numFiles": str(len(adds))})
    rows = tuple(add.to_row() for add in adds)
    # It reads no other rows, and is refused if one of its files is not as it was.
    body = proposal_builders.Body(operation, rows, proposal_builders.NOTHING)
    proposal = proposal_builders.of_body("commit", target, stamp_for(client, request), body)
    propose(client, store_for(place), proposal, request.timeout_s)

"""Replaces a table by an empty one with other columns and properties: `REPLACE TABLE`."""

from collections.abc import Mapping, Sequence

from tidegate_delta.definitions.definition import Definition, refuse
from tidegate_delta.definitions.resolve_definition import resolve_definition
from tidegate_delta.log.actions import Action
from tidegate_delta.schema.types import StructType
from tidegate_delta.snapshots.file_action_columns import rows_to_adds
from tidegate_messages.outcome import Outcome
from tidegate_messages.proposal import Operation
from tidegate_producers.cached_clients import store_for
from tidegate_producers.options import WriteOptions
from tidegate_producers.writing.constraint_attestation import (
    Attestation,
    in_table_already,
    with_attestation,
)
from tidegate_producers.writing.table_write import (
    WriteRequest,
    check_may_remove,
    creation,
    propose,
    stamp_for,
)
from tidegate_runtime.client import proposal_drafts
from tidegate_runtime.client.client import Client
from tidegate_runtime.table_io.open_table import open_snapshot


def replace_table(
    client: Client,
    options: WriteOptions,
    schema: StructType,
    partition_columns: Sequence[str],
    properties: Mapping[str, str],
    operation: str,
) -> Outcome:
    """Propose that a table has no rows, and these columns and properties, and return the outcome.

    Older versions stay readable. `operation` is the name in the history. The protocol is not
    lowered.
    Raises: InvalidRequest, naming the column or property; Rejected, if others change the table
    meanwhile; OutcomeUnknown; UnsupportedFeature; Unavailable.
    """
    request, store = WriteRequest.of(options), store_for(options.place)
    record = client.require(options.place.root, request.timeout_s)
    seen = open_snapshot(store)
    check_may_remove(seen, options.place.root)
    made = creation(client, schema, partition_columns, options, properties)
    settled = resolve_definition(Definition(seen.metadata, seen.protocol), made.metadata)
    refuse(settled.flaws, f"{options.place.root} is to become")
    after = settled.definition
    stamp = stamp_for(client, request)
    target = proposal_drafts.Target(
        record.table, record.table_root, int(seen.version), seen.metadata.id
    )
    protocol: list[Action] = [after.protocol] if after.protocol != seen.protocol else []
    live = rows_to_adds(seen.files)
    removes = [proposal_drafts.removal(add, stamp.created_ms) for add in live]
    actions = (*protocol, after.metadata, *removes)
    body = proposal_drafts.Body(
        Operation(name=operation, metrics={"numRemovedFiles": str(len(live))}),
        tuple(action.to_row() for action in actions),
        proposal_drafts.WHOLE_TABLE,
    )
    proposal = proposal_drafts.of_body("commit", target, stamp, body)
    # No row is left that could violate a constraint.
    held = Attestation(in_table_already(after.metadata, after.protocol), "implicit")
    proposal = with_attestation(proposal, held)
    return propose(client, store, proposal, request.timeout_s)

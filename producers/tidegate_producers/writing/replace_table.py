"""Creates an empty table, or replaces one by an empty one: `CREATE TABLE`, `REPLACE TABLE`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidegate_delta.features.clustering import DOMAIN
from tidegate_delta.log.actions import DomainMetadata, Metadata, Protocol
from tidegate_delta.schema.types import StructType
from tidegate_delta.snapshots.file_action_columns import rows_to_adds
from tidegate_messages.outcome import Outcome
from tidegate_messages.proposal import Operation
from tidegate_producers.cached_clients import store_for
from tidegate_producers.options import WriteOptions
from tidegate_producers.writing.clustering import FEATURES, clustered_by
from tidegate_producers.writing.column_checks import (
    Attestation,
    in_table_already,
    with_attestation,
)
from tidegate_producers.writing.table_write import (
    WriteRequest,
    check_may_remove,
    commit,
    creating,
    creation,
    new_metadata,
    propose,
    redefined,
    stamp_for,
)
from tidegate_runtime.client import proposal_builders
from tidegate_runtime.client.client import Client
from tidegate_runtime.table_io.open_table import open_snapshot


@dataclass(frozen=True)
class NewTable:
    """What a table shall be: columns, partitioning or clustering, properties and comment."""

    schema: StructType
    partition_columns: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    clustered_by: Sequence[str] = ()
    description: str | None = None


def create_table(client: Client, options: WriteOptions, new: NewTable) -> Outcome | None:
    """Propose an empty table, and return the outcome. Raises: as `creation` and `commit`."""
    features = FEATURES if new.clustered_by else {}
    properties = {**new.properties, **features}
    table_creation = creation(client, new.schema, new.partition_columns, options, properties)
    table_creation = replace(
        table_creation,
        metadata=table_creation.metadata.with_(description=new.description),
        domains=_domains(table_creation.metadata, new, options.place.root),
    )
    planned = creating(table_creation, options.place)
    return commit(client, planned, (), WriteRequest.of(options))


def replace_table(client: Client, options: WriteOptions, new: NewTable, operation: str) -> Outcome:
    """Propose that a table has no rows, and these columns and properties, and return the outcome.

    Older versions stay readable. `operation` is the name in the history. The protocol is not
    lowered.
    Raises: InvalidRequest, naming the column or property; Rejected, if others change the table
    meanwhile; OutcomeUnknown; UnsupportedFeature; Unavailable.
    """
    request, store, root = WriteRequest.of(options), store_for(options.place), options.place.root
    record = client.require(root, request.timeout_s)
    snapshot = open_snapshot(store)
    check_may_remove(snapshot, root)
    features = FEATURES if new.clustered_by else {}
    properties = {**new.properties, **features}
    requested = new_metadata(client, new.schema, new.partition_columns, options, properties)
    requested = requested.with_(description=new.description)
    definition = redefined(client, snapshot, requested, root, overwrites=True)
    metadata = next(
        (action for action in definition if isinstance(action, Metadata)), snapshot.metadata
    )
    protocol = next(
        (action for action in definition if isinstance(action, Protocol)), snapshot.protocol
    )
    domains = _domains(metadata, new, root)
    if not domains and (clustered := snapshot.domains.get(DOMAIN)) and not clustered.removed:
        domains = (clustered.with_(removed=True),)
    stamp = stamp_for(client, request)
    target = proposal_builders.Target(
        record.table, record.table_root, int(snapshot.version), snapshot.metadata.id
    )
    live = rows_to_adds(snapshot.files)
    removes = [proposal_builders.removal(add, stamp.created_ms) for add in live]
    actions = (*definition, *domains, *removes)
    body = proposal_builders.Body(
        Operation(name=operation),
        tuple(action.to_row() for action in actions),
        proposal_builders.WHOLE_TABLE,
    )
    proposal = proposal_builders.of_body("commit", target, stamp, body)
    # No row is left that could violate a constraint.
    attestation = Attestation(in_table_already(metadata, protocol), "implicit")
    proposal = with_attestation(proposal, attestation)
    return propose(client, store, proposal, request.timeout_s)


def _domains(metadata: Metadata, new: NewTable, root: str) -> tuple[DomainMetadata, ...]:
    return (clustered_by(metadata, new.clustered_by, root),) if new.clustered_by else ()

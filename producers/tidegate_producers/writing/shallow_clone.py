"""Makes a shallow clone: a table of its own whose files are, to begin with, those of another one.

The clone's log names them by URIs. What is written to the clone later lies below its own root.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tidegate_delta.definitions.definition import Definition
from tidegate_delta.definitions.feature_directives import canonical_keys
from tidegate_delta.definitions.resolve_definition import resolve_definition
from tidegate_delta.deletion_vectors.descriptors import ABSOLUTE, RELATIVE, path_of
from tidegate_delta.errors import InvalidRequest
from tidegate_delta.features import row_tracking
from tidegate_delta.features.in_commit_timestamps import ENABLEMENT
from tidegate_delta.features.supported_features import check_writable, with_features
from tidegate_delta.log.actions import Action, Add, DomainMetadata, LogicalFile
from tidegate_delta.log.file_paths import canonical_path, is_absolute
from tidegate_delta.log.protocol_versions import supported_features
from tidegate_delta.properties.table_properties import (
    check_names,
    row_commit_version_column,
    row_id_column,
    validate,
)
from tidegate_delta.snapshots.chunked_arrays import total
from tidegate_delta.snapshots.file_action_columns import rows_to_adds
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_messages.outcome import Outcome
from tidegate_messages.proposal import Operation
from tidegate_producers.cached_clients import store_for
from tidegate_producers.options import TableLocation, WriteOptions
from tidegate_producers.writing.column_checks import (
    Attestation,
    in_table_already,
    row_columns,
    with_attestation,
)
from tidegate_producers.writing.restore import RestorePoint
from tidegate_producers.writing.table_write import (
    WriteRequest,
    check_may_remove,
    propose,
    stamp_for,
)
from tidegate_runtime.client import proposal_builders
from tidegate_runtime.client.client import Client
from tidegate_runtime.table_io.open_table import head_version, open_snapshot

_SPELT: Final = {"s3": "s3a"}
"""The schemes by which Spark's file systems know a store; other readers know them as well."""


@dataclass(frozen=True)
class CloneRequest:
    """What to clone, as of which version or time, and the properties that the clone shall have.
    `replaces` says that a table at the target becomes the clone.
    """

    source: TableLocation
    moment: RestorePoint = field(default_factory=RestorePoint)
    replaces: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)


def clone(client: Client, options: WriteOptions, request: CloneRequest) -> Outcome:
    """Propose a shallow clone of a table at the place of the options, and return the outcome.

    Columns, partitioning, properties, protocol and domains are the source's; row ids are new.
    Raises: InvalidRequest (`VersionNotFound`, or a table at the target that is not to be replaced);
    UnsupportedFeature; Rejected; OutcomeUnknown; BrokenLog; Unavailable.
    """
    store, root = store_for(options.place), options.place.root
    write = WriteRequest.of(options)
    now = open_snapshot(store) if head_version(store) is not None else None
    if now is not None and not request.replaces:
        raise InvalidRequest(
            f"{root} is a table already: clone to another path, or give replace=True, which keeps "
            "its older versions; nothing was proposed",
            error_class="DELTA_TABLE_ALREADY_EXISTS",
        )
    if root == request.source.root:
        raise InvalidRequest(
            f"{root} can't be cloned to itself: use restoreToVersion for an older version; nothing "
            "was proposed",
            error_class="DELTA_CLONE_AMBIGUOUS_TARGET",
        )
    moment = request.moment
    source = open_snapshot(store_for(request.source), moment.version, moment.timestamp_ms)
    check_writable(source.protocol, source.metadata, request.source.root)
    stamp = stamp_for(client, write)
    if now is None:
        target = proposal_builders.Target(
            client.new_id(), root, proposal_builders.NO_VERSION, None, options.name
        )
    else:
        check_may_remove(now, root)
        record = client.require(root, write.timeout_s)
        target = proposal_builders.Target(
            record.table, record.table_root, int(now.version), now.metadata.id
        )
    definition = _definition(client, source, now, request)
    removed, adds = _differences(now, source, request.source.root)
    removes = [proposal_builders.removal(add, stamp.created_ms) for add in removed]
    body = proposal_builders.Body(
        _operation(request.source.root, source, removed),
        tuple(item.to_row() for item in (*definition, *_domains(source, now), *removes, *adds)),
        proposal_builders.NOTHING if now is None else proposal_builders.WHOLE_TABLE,
    )
    proposal = proposal_builders.of_body("commit", target, stamp, body)
    held = Attestation(
        in_table_already(source.metadata, source.protocol), None if now is None else "implicit"
    )
    return propose(client, store, with_attestation(proposal, held), write.timeout_s)


def _definition(
    client: Client, source: Snapshot, now: Snapshot | None, request: CloneRequest
) -> tuple[Action, ...]:
    """Return the protocol and metadata of the clone. Raises: InvalidRequest."""
    given = canonical_keys(request.properties)
    check_names(given)
    validate(given)
    left_out = {*ENABLEMENT, row_id_column.key, row_commit_version_column.key}
    kept = {key: text for key, text in source.metadata.configuration.items() if key not in left_out}
    metadata = source.metadata.with_(
        id=str(client.new_id()) if now is None else now.metadata.id,
        configuration={**kept, **given},
        created_time=client.clock.now_ms(),
    )
    if row_tracking.is_enabled(metadata):
        # Rows get ids of their own: those in the source's files are in columns of other names.
        # A table keeps the names that it has.
        own = {} if now is None else now.metadata.configuration
        names = {
            key: own[key]
            for key in (row_id_column.key, row_commit_version_column.key)
            if key in own
        }
        metadata = metadata.with_(configuration={**metadata.configuration, **names})
        names = row_columns(metadata, client.new_id)
        metadata = metadata.with_(configuration={**metadata.configuration, **names})
    if now is None:
        made = resolve_definition(None, metadata, source.protocol).definition
        return (made.protocol, made.metadata)
    before = Definition(now.metadata, now.protocol)
    # A table keeps the features that it has.
    grown = with_features(now.protocol, sorted(supported_features(source.protocol)))
    made = resolve_definition(before, metadata, grown).definition
    changed = () if made.protocol == now.protocol else (made.protocol,)
    return (*changed, made.metadata)


def _domains(source: Snapshot, now: Snapshot | None) -> list[DomainMetadata]:
    """Return the domains of the clone, and removals of those that only the replaced table has."""
    result = {
        name: one
        for name, one in source.domains.items()
        if name != row_tracking.DOMAIN and not one.removed
    }
    if now is not None:
        gone = now.domains.keys() - result.keys() - {row_tracking.DOMAIN}
        result |= {
            name: now.domains[name].with_(removed=True)
            for name in gone
            if not now.domains[name].removed
        }
    return [result[name] for name in sorted(result)]


def _differences(now: Snapshot | None, source: Snapshot, root: str) -> tuple[list[Add], list[Add]]:
    """Return the files that leave a table which is replaced, and those that come. What an earlier
    clone brought, and the source still has with the same deleted rows, stays.
    """
    live = {} if now is None else {_key(add): add for add in rows_to_adds(now.files)}
    placed = [_placed(add, root) for add in rows_to_adds(source.files)]
    cloned = {_key(add): add for add in placed}
    leaving = [add for key, add in live.items() if key not in cloned]
    return leaving, [add for key, add in cloned.items() if key not in live]


def _key(add: Add) -> LogicalFile:
    return add.key._replace(path=canonical_path(add.path))


def _placed(add: Add, root: str) -> Add:
    """Return a file of the source as the clone's log names it."""
    vector = add.deletion_vector
    if vector is not None and vector.storage_type == RELATIVE:
        path = _uri(root, path_of(vector))
        vector = vector.with_(storage_type=ABSOLUTE, path_or_inline_dv=path)
    return add.with_(
        path=_uri(root, add.path),
        deletion_vector=vector,
        data_change=True,
        base_row_id=None,
        default_row_commit_version=None,
    )


def _uri(root: str, path: str) -> str:
    """Return the URI of a file at a path of a table's log."""
    if is_absolute(path):
        return path
    scheme, _, place = root.partition("://")
    return f"{_SPELT.get(scheme, scheme)}://{place}/{path}"


def _operation(root: str, source: Snapshot, removed: list[Add]) -> Operation:
    size = total(source.files["size"]) or 0
    parameters = {"source": root, "sourceVersion": str(source.version), "isShallow": "true"}
    metrics = {
        "sourceTableSize": size,
        "sourceNumOfFiles": source.files.num_rows,
        "numRemovedFiles": len(removed),
        "numCopiedFiles": 0,
        "removedFilesSize": sum(add.size for add in removed),
        "copiedFilesSize": 0,
    }
    result = {name: str(value) for name, value in metrics.items()}
    return Operation(name="CLONE", parameters=parameters, metrics=result)

"""One write from beginning to end, without Spark: plan, then files, then one proposal.

The plan is made before any row is written, and is sent to the tasks that write files. `commit`
proposes the files of all tasks and waits for the outcome.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal
from uuid import UUID

from tidegate_delta.definitions.definition import Definition, refuse
from tidegate_delta.definitions.feature_directives import canonical_keys
from tidegate_delta.definitions.resolve_definition import define_new, resolve_definition
from tidegate_delta.errors import InvalidRequest, Unavailable
from tidegate_delta.features.supported_features import check_writable
from tidegate_delta.log.actions import Action, Add, DomainMetadata, Metadata, Protocol
from tidegate_delta.log.protocol_versions import writer_features
from tidegate_delta.properties.table_properties import (
    FEATURE_PREFIX,
    append_only,
    check_names,
    validate,
)
from tidegate_delta.schema.column_mapping import ColumnMappingMode, mode_of
from tidegate_delta.schema.column_mapping_assignment import MODE
from tidegate_delta.schema.types import VOID, StructType, format_schema, holds, parse_schema
from tidegate_delta.schema_evolution.evolve_on_write import evolved, overwritten
from tidegate_delta.snapshots.file_action_columns import rows_to_adds
from tidegate_delta.snapshots.snapshot import LiveKeys, Snapshot
from tidegate_messages.outcome import Outcome
from tidegate_messages.proposal import AppTxn, AppTxnAdvance, Isolation, Proposal
from tidegate_messages.published_records import TableRecord
from tidegate_producers.cached_clients import store_for
from tidegate_producers.options import TableLocation, WriteOptions
from tidegate_producers.parquet.data_file_encoding import FileLayout, layout_of
from tidegate_producers.writing import column_checks
from tidegate_producers.writing.column_checks import (
    NOTHING,
    Attestation,
    as_nullable,
    as_stored,
    assigned,
    check_frame,
    check_new,
    check_partitioning,
    in_table_already,
    resolve_partition_columns,
    with_attestation,
)
from tidegate_producers.writing.partial_overwrite import (
    ReplaceWhere,
    partitions_written,
    rows_where,
)
from tidegate_producers.writing.rerun import rerun
from tidegate_runtime.client import proposal_builders
from tidegate_runtime.client.client import APP_TXN_SEEN, TABLE_EXISTS, Client, Rejected, result
from tidegate_runtime.release import ENGINE
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.open_table import head_version, open_keys, open_snapshot

WriteMode = Literal["append", "overwrite"]

OpenedTable = Snapshot | LiveKeys
"""A table as its writer opened it."""

NO_PROPERTIES: Final[Mapping[str, str]] = {}
GRACE_MS: Final = 10 * 60 * 1000
"""How long a proposal may still be committed after its writer has stopped waiting."""


@dataclass(frozen=True)
class Creation:
    """A table that this write creates: its id in the registry, and the actions of version 0."""

    table: UUID
    protocol: Protocol
    metadata: Metadata
    domains: tuple[DomainMetadata, ...] = ()


@dataclass(frozen=True)
class WritePlan:
    """What is decided before any row is written, at `since_ms`.

    `is_derived` says that the rows are computed from the table's own at `read_version`.
    `definition` is the metadata, and the protocol, that the table gets with the rows.
    """

    place: TableLocation
    mode: WriteMode
    layout: FileLayout
    read_version: int
    table_id: str | None
    since_ms: int
    creation: Creation | None = None
    is_derived: bool = False
    definition: tuple[Action, ...] = ()
    replace_where: ReplaceWhere | None = None

    @property
    def is_blind_overwrite(self) -> bool:
        """Whether it replaces rows of a table, and may replace those of a newer version instead."""
        keeps_definition = self.creation is None and not self.definition
        return self.mode == "overwrite" and keeps_definition and not self.is_derived


@dataclass(frozen=True)
class WriteRequest:
    """A writer's requests and statements about its proposal, and how long it waits.

    `proposal_id` is that of one proposal only; without it each one gets a fresh id.
    """

    timeout_s: float
    isolation: Isolation = "default"
    user_metadata: str | None = None
    app_txn: AppTxn | None = None
    app_txns: tuple[AppTxnAdvance, ...] = ()
    batch: proposal_builders.StreamBatch | None = None
    name: str | None = None
    attestation: Attestation = NOTHING
    proposal_id: UUID | None = None

    @classmethod
    def of(cls, options: WriteOptions, app_txn: AppTxn | None = None) -> "WriteRequest":
        """Return the request that the options of a write give."""
        return cls(
            timeout_s=options.outcome_timeout_s,
            isolation=options.isolation,
            user_metadata=options.user_metadata,
            app_txn=app_txn,
            name=options.name,
            attestation=Attestation(options.constraints_enforced),
        )

    @classmethod
    def of_batch(
        cls, options: WriteOptions, batch: proposal_builders.StreamBatch
    ) -> "WriteRequest":
        """Return the request for a stream's micro-batch, whose app transaction has its batch id."""
        app_id = options.txn_app_id or batch.query_id
        txn = AppTxn(app_id=app_id, version=batch.batch_id)
        return replace(cls.of(options, txn), batch=batch)


def plan(
    client: Client,
    frame: StructType,
    mode: WriteMode,
    options: WriteOptions,
    *,
    is_computed: bool = False,
) -> WritePlan:
    """Return the plan of a write, after every check that needs no row.

    `is_computed` says that the rows come with what the table computes and checks.
    Raises: InvalidRequest, naming the column; UnsupportedFeature; BrokenLog; Unavailable.
    """
    place, now_ms = options.place, client.clock.now_ms()
    store = store_for(place)
    read_version = options.read_version
    if read_version is None and head_version(store) is None:
        return _plan_creation(client, frame, mode, options)
    # A plan needs no file list, and a stream makes two plans for each batch.
    opened_table = open_keys(store, read_version)
    check_open_to(opened_table, place.root)
    _check_properties(options, opened_table)
    definition = _definition(client, opened_table, frame, mode, options)
    metadata = next(
        (action for action in definition if isinstance(action, Metadata)), opened_table.metadata
    )
    protocol = next(
        (action for action in definition if isinstance(action, Protocol)), opened_table.protocol
    )
    if not is_computed:
        enforced = options.constraints_enforced
        for table in ((opened_table.protocol, opened_table.metadata), (protocol, metadata)):
            column_checks.check_new_rows(*table, place.root, enforced, frame.names)
    schema = parse_schema(metadata.schema_string)
    check_frame(frame, schema, place.root)
    if not options.overwrite_schema:
        columns = metadata.partition_columns
        check_partitioning(options.partition_columns, schema, columns, place.root)
    if mode == "overwrite":
        check_may_remove(opened_table, place.root)
    layout = layout_of(metadata, options.compression, options.records_per_file_max)
    return WritePlan(
        place,
        mode,
        layout,
        int(opened_table.version),
        opened_table.metadata.id,
        now_ms,
        is_derived=read_version is not None,
        definition=definition,
    )


def _check_properties(options: WriteOptions, opened_table: OpenedTable) -> None:
    """Refuse properties that a table that exists does not have. Raises: InvalidRequest."""
    listed = {f"{FEATURE_PREFIX}{name.lower()}" for name in writer_features(opened_table.protocol)}
    for key, value in canonical_keys(options.properties).items():
        if key not in listed and opened_table.metadata.configuration.get(key) != value:
            raise InvalidRequest(
                f"option {key}={value}: it is for a table that the write makes, and "
                f"{options.place.root} exists, without it: set it with Table.alter(properties=...) "
                "first, or leave it out; nothing was proposed",
                error_class="DELTA_ILLEGAL_OPTION",
            )


def _definition(
    client: Client,
    opened_table: OpenedTable,
    frame: StructType,
    mode: WriteMode,
    options: WriteOptions,
) -> tuple[Action, ...]:
    """Return the metadata, and the protocol, that the table gets for the columns of the rows.

    Raises: InvalidRequest, naming the column; UnsupportedFeature.
    """
    root, schema = options.place.root, parse_schema(opened_table.metadata.schema_string)
    overwrites = options.overwrite_schema and mode == "overwrite"
    if overwrites:
        metadata = _overwritten(opened_table, frame, options)
    elif options.merge_schema:
        check_typed(frame, schema, root)
        metadata = evolved(opened_table.metadata, opened_table.protocol, as_stored(frame, schema))
    else:
        return ()
    return redefined(client, opened_table, metadata, root, overwrites=overwrites)


def redefined(
    client: Client,
    opened_table: OpenedTable,
    metadata: Metadata,
    root: str,
    *,
    overwrites: bool = False,
) -> tuple[Action, ...]:
    """Return the actions by which a table gets other metadata, beside its rows; none if it is the
    same. New columns are mapped, and the features that the metadata asks for are listed.

    Raises: InvalidRequest, for metadata that the table does not allow.
    """
    if metadata == opened_table.metadata:
        return ()
    mapped = assigned(opened_table.metadata, metadata, client.new_id, overwrites=overwrites)
    resolved = resolve_definition(Definition(opened_table.metadata, opened_table.protocol), mapped)
    refuse(resolved.flaws, root)
    new_definition = resolved.definition
    grown = () if new_definition.protocol == opened_table.protocol else (new_definition.protocol,)
    return (*grown, new_definition.metadata)


def _overwritten(opened_table: OpenedTable, frame: StructType, options: WriteOptions) -> Metadata:
    """Return the metadata of a table whose rows and columns are all replaced.

    As in delta-spark, it has no partitions unless the option names them.
    """
    root = options.place.root
    fresh = as_nullable(frame)
    is_mapped = mode_of(opened_table.metadata) is not ColumnMappingMode.NONE
    check_new(fresh, options.partition_columns or (), root, is_mapped=is_mapped)
    check_typed(frame, StructType(()), root)
    return overwritten(opened_table.metadata, fresh, options.partition_columns or ())


def check_typed(frame: StructType, table: StructType, root: str) -> None:
    """Refuse a new column of the null type, which no data file can hold."""
    table_names = {name.lower() for name in table.names}
    for column in frame:
        if column.name.lower() not in table_names and holds(column.kind, lambda kind: kind == VOID):
            raise InvalidRequest(
                f"{root}: the new column {column.name!r} has type {column.kind}, which has no "
                "values: cast it to the type that it shall have; nothing was proposed",
                error_class="DELTA_FAILED_TO_MERGE_FIELDS",
            )


def check_mode(options: WriteOptions, mode: WriteMode) -> None:
    """Refuse options of an overwrite that are given to an append. Raises: InvalidRequest."""
    overwrite_options = {
        "replaceWhere": options.replace_where is not None,
        "overwriteSchema": options.overwrite_schema,
        "partitionOverwriteMode=dynamic": options.overwrite_mode == "dynamic",
    }
    if mode == "append" and any(overwrite_options.values()):
        name = next(name for name, is_given in overwrite_options.items() if is_given)
        raise InvalidRequest(
            f"the option {name} is for an overwrite, and this is an append: give "
            'mode("overwrite"), or leave it out; nothing was proposed',
            error_class="DELTA_ILLEGAL_OPTION",
        )


def check_served(client: Client, written: WritePlan, servers: str) -> None:
    """Check that brokers answer and the committer takes commits, before any row is computed.

    `servers` is the address of the brokers, for the message.
    Raises: Unavailable; InvalidRequest (`TableNotRegistered`), also for a table that was dropped.
    """
    root = written.place.root
    try:
        if written.creation is not None:
            client.tables()
            return
        record = client.require(root)
    except Unavailable as error:
        raise Unavailable(
            f"{root}: no broker answers at {servers}, so that nothing could be proposed: check the "
            "option kafka.bootstrap.servers, and that Kafka runs there; no row was written "
            f"({error})",
            error_class=error.error_class,
        ) from error
    if record.status == "dropped":
        raise InvalidRequest(
            f"{record.table_root} was dropped from the gate, which takes no more commits for "
            "it; write to a table under another root, or with another engine",
            error_class="TableNotRegistered",
        )


def commit(
    client: Client,
    written: WritePlan,
    adds: Sequence[Add],
    request: WriteRequest,
    *,
    by_partition: bool = False,
) -> Outcome | None:
    """Propose the files of a write and return the outcome; None if there is nothing to propose.

    `by_partition` says that an overwrite replaces only the partitions of the new files. A write
    whose app transaction is already in the table is no error: its rejection is returned. An
    overwrite that another commit overtook replaces the rows of the newest version, unless its rows
    were computed from the table (`is_derived`).
    Raises: Rejected, OutcomeUnknown, InvalidRequest (`TableNotRegistered`, and for a stream's batch
    older than its application's version in the table), Unavailable.
    """
    store = store_for(written.place)
    is_empty = written.creation is None and not adds and not written.definition
    if is_empty and (written.mode == "append" or by_partition):
        return None
    runs = 0

    def run() -> Outcome:
        nonlocal runs
        current_plan = written if runs == 0 else _at_newest(store, written)
        runs += 1
        return propose(
            client, store, _drafted(client, current_plan, adds, request, by_partition), timeout_s
        )

    timeout_s = request.timeout_s
    try:
        if written.is_blind_overwrite:
            return rerun(run, written.place.root, client.clock, timeout_s)
        return run()
    except Rejected as rejected:
        if rejected.rule == TABLE_EXISTS and head_version(store) is None:
            raise _log_is_gone(written.place.root, rejected) from rejected
        if request.app_txn is None or not _is_in(store, request.app_txn, rejected):
            raise
        if request.batch is not None and request.batch.query_id != request.app_txn.app_id:
            _check_repeated(store, request.batch, request.app_txn)
        return rejected.outcome


def _at_newest(store: LogStore, written: WritePlan) -> WritePlan:
    """Return the plan for the newest version of the table, whose columns must be the plan's.

    Raises: InvalidRequest.
    """
    live_keys = open_keys(store)
    newest = layout_of(live_keys.metadata)
    planned = written.layout
    columns = (planned.schema, planned.partition_columns)
    if (
        live_keys.metadata.id != written.table_id
        or (newest.schema, newest.partition_columns) != columns
    ):
        raise InvalidRequest(
            f"{written.place.root}: version {live_keys.version} has other columns than the rows "
            "were written for: run the write again; nothing was committed",
            error_class="DELTA_METADATA_CHANGED",
        )
    return replace(written, read_version=int(live_keys.version))


def _drafted(
    client: Client,
    written: WritePlan,
    adds: Sequence[Add],
    request: WriteRequest,
    by_partition: bool,
) -> Proposal:
    stamp = stamp_for(client, request, written.since_ms)
    store = store_for(written.place)
    if written.creation is not None:
        proposal = _draft_creation(written, written.creation, stamp, adds, request)
    else:
        target = target_of(client.require(written.place.root, request.timeout_s), written)
        if by_partition or (written.replace_where is not None and written.mode == "overwrite"):
            proposal = _draft_partial_overwrite(client, store, target, stamp, written, adds)
        else:
            proposal = _draft_change(store, target, stamp, written, adds, request.batch)
    return with_attestation(proposal, request.attestation)


def propose(client: Client, store: LogStore, proposal: Proposal, timeout_s: float) -> Outcome:
    """Send a proposal, as a claim check if it is too large, and return its `committed` outcome.

    Raises: Rejected, OutcomeUnknown, Unavailable.
    """
    sent, content = proposal_builders.with_claim_check(proposal)
    if content is not None and sent.claim_check is not None:
        store.put(sent.claim_check.path, content)
    return result(client.insist(sent, timeout_s))


def stamp_for(
    client: Client, request: WriteRequest, since_ms: int | None = None
) -> proposal_builders.Stamp:
    """Return the stamp of a new proposal."""
    now_ms = client.clock.now_ms()
    return proposal_builders.Stamp(
        proposal_id=request.proposal_id or client.new_id(),
        created_ms=now_ms,
        deadline_ms=now_ms + round(request.timeout_s * 1000) + GRACE_MS,
        files_since_ms=since_ms,
        isolation=request.isolation,
        app_txn=request.app_txn,
        app_txns=request.app_txns,
        engine_info=ENGINE,
        user_metadata=request.user_metadata,
    )


def target_of(record: TableRecord, written: WritePlan) -> proposal_builders.Target:
    """Return the target of a write to a registered table."""
    return proposal_builders.Target(
        record.table, record.table_root, written.read_version, written.table_id
    )


def check_open_to(opened_table: OpenedTable, root: str) -> StructType:
    """Return the schema of a table that our writers can write. Raises: UnsupportedFeature."""
    check_writable(opened_table.protocol, opened_table.metadata, root)
    return parse_schema(opened_table.metadata.schema_string)


def check_may_remove(opened_table: OpenedTable, root: str) -> None:
    """Check that rows may be removed from the table. Raises: InvalidRequest."""
    if append_only(opened_table.metadata):
        raise InvalidRequest(
            f"{root} is append-only (delta.appendOnly=true): rows can be added, but not removed; "
            "nothing was proposed",
            error_class="DELTA_CANNOT_MODIFY_APPEND_ONLY",
        )


def creation(
    client: Client,
    schema: StructType,
    partition_columns: Sequence[str],
    options: WriteOptions,
    properties: Mapping[str, str] = NO_PROPERTIES,
) -> Creation:
    """Return the creation of a table, after checking its schema and properties.

    Raises: InvalidRequest, naming the column or property; UnsupportedFeature.
    """
    metadata = new_metadata(client, schema, partition_columns, options, properties)
    definition = define_new(assigned(None, metadata, client.new_id))
    return Creation(client.new_id(), definition.protocol, definition.metadata)


def new_metadata(
    client: Client,
    schema: StructType,
    partition_columns: Sequence[str],
    options: WriteOptions,
    properties: Mapping[str, str] = NO_PROPERTIES,
) -> Metadata:
    """Return the metadata of a new table, or of one that is replaced, as it is asked for.

    Raises: InvalidRequest, naming the column or property.
    """
    root = options.place.root
    spelt = canonical_keys(properties)
    check_names(spelt)
    validate(spelt)
    check_new(schema, partition_columns, root, is_mapped=MODE in spelt)
    return Metadata(
        id=str(client.new_id()),
        name=options.name,
        schema_string=format_schema(schema),
        partition_columns=resolve_partition_columns(schema, partition_columns, root),
        configuration=spelt,
        created_time=client.clock.now_ms(),
    )


def creating(table_creation: Creation, place: TableLocation) -> WritePlan:
    """Return the plan of creating an empty table."""
    layout, since_ms = layout_of(table_creation.metadata), table_creation.metadata.created_time or 0
    return WritePlan(
        place, "append", layout, proposal_builders.NO_VERSION, None, since_ms, table_creation
    )


def _is_in(store: LogStore, txn: AppTxn, rejected: Rejected) -> bool:
    """Return whether an earlier attempt, whose outcome was lost, committed these rows."""
    if rejected.rule == APP_TXN_SEEN:
        return True
    if rejected.rule != TABLE_EXISTS:
        return False
    last_txn = open_keys(store).app_transactions.get(txn.app_id)
    return last_txn is not None and last_txn.version >= txn.version


def _log_is_gone(root: str, rejected: Rejected) -> InvalidRequest:
    return InvalidRequest(
        f"a table is registered at {root}, but there is none: its folder was removed, or this job "
        "looks elsewhere (the options storage.*, a mount); bring it back, or write to another "
        f"path, because the gate registers a root only once ({rejected})",
        error_class=rejected.error_class,
    )


def _check_repeated(store: LogStore, batch: proposal_builders.StreamBatch, txn: AppTxn) -> None:
    """Refuse a batch that was rejected as a repeat but can't be one: its rows may be new.

    A stream repeats only its last batch. Under a user's `txnAppId`, a batch with an older id comes
    from another stream, or from this one with another checkpoint.
    """
    last_txn = open_keys(store).app_transactions.get(txn.app_id)
    if last_txn is not None and last_txn.version > txn.version:
        raise InvalidRequest(
            f"batch {txn.version} of stream {batch.query_id} is older than version "
            f"{last_txn.version}, which the table has for application {txn.app_id!r}: another "
            "stream has that txnAppId, or this one had another checkpoint; the batch's rows may be "
            "in no version: give the stream a txnAppId of its own, or leave the option out",
            error_class="DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS",
        )


def _plan_creation(
    client: Client, frame: StructType, mode: WriteMode, options: WriteOptions
) -> WritePlan:
    columns = options.partition_columns or ()
    table_creation = creation(client, as_nullable(frame), columns, options, options.properties)
    layout = layout_of(table_creation.metadata, options.compression, options.records_per_file_max)
    now_ms = client.clock.now_ms()
    return WritePlan(
        options.place, mode, layout, proposal_builders.NO_VERSION, None, now_ms, table_creation
    )


def _draft_creation(
    written: WritePlan,
    table_creation: Creation,
    stamp: proposal_builders.Stamp,
    adds: Sequence[Add],
    request: WriteRequest,
) -> Proposal:
    name = request.name
    target = proposal_builders.Target(
        table_creation.table, written.place.root, proposal_builders.NO_VERSION, None, name
    )
    return proposal_builders.create(
        target,
        stamp,
        table_creation.protocol,
        table_creation.metadata,
        adds or None,
        table_creation.domains,
    )


def _draft_change(
    store: LogStore,
    target: proposal_builders.Target,
    stamp: proposal_builders.Stamp,
    written: WritePlan,
    adds: Sequence[Add],
    batch: proposal_builders.StreamBatch | None,
) -> Proposal:
    if written.mode == "append":
        reads = proposal_builders.WHOLE_TABLE if written.is_derived else proposal_builders.NOTHING
        return proposal_builders.append(target, stamp, adds, batch, reads, written.definition)
    live = rows_to_adds(open_snapshot(store, written.read_version).files)
    return proposal_builders.overwrite(target, stamp, adds, live, batch, written.definition)


def _draft_partial_overwrite(
    client: Client,
    store: LogStore,
    target: proposal_builders.Target,
    stamp: proposal_builders.Stamp,
    written: WritePlan,
    adds: Sequence[Add],
) -> Proposal:
    """Return the overwrite of some rows; it marks or copies the rows of files that it opens."""
    snapshot = open_snapshot(store, written.read_version)
    condition = written.replace_where
    if condition is None:
        replaced = partitions_written(snapshot, adds)
    else:
        replaced = rows_where(store, snapshot, condition, client.clock, written.place.root)
    vectors, content = proposal_builders.vectors_of(replaced, client.new_id())
    if content is not None:
        store.put(*content)
    definition = written.definition
    proposal = proposal_builders.overwrite_some(target, stamp, adds, replaced, vectors, definition)
    if replaced.added:
        enforced = in_table_already(snapshot.metadata, snapshot.protocol)
        proposal = with_attestation(proposal, Attestation(enforced))
    if written.is_derived:
        proposal = proposal.model_copy(update={"reads": proposal_builders.WHOLE_TABLE})
    return proposal

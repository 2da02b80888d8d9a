"""What the versions of a table look like in its stream: their columns, key columns and schemas."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from tidegate_cdc_publisher.change_batch import NO_SCHEMAS, InlineSchemas, SourceBlock
from tidegate_cdc_publisher.commit_origin import commit_time_ms, provenance
from tidegate_cdc_publisher.connect_schema import layout
from tidegate_cdc_publisher.envelopes import inline_schemas
from tidegate_cdc_publisher.key_column_history import DeclaredKeys
from tidegate_cdc_publisher.key_columns import KeyColumns, keys_of_order, order_of
from tidegate_cdc_publisher.large_rows import LargeRowRule
from tidegate_cdc_publisher.machine import (
    OnGap,
    SnapshotDue,
    VersionDue,
    reordered,
)
from tidegate_cdc_publisher.record_form import PLAIN, REGISTERED, PayloadEncoder, RecordForm
from tidegate_cdc_publisher.schema_markers import (
    OnSchemaChange,
    SchemaState,
    check_may_change,
    in_words,
    schema_steps,
    value_form,
)
from tidegate_cdc_publisher.settings import TableChanges
from tidegate_delta.errors import (
    BrokenLog,
    InvalidRequest,
)
from tidegate_delta.log import actions
from tidegate_delta.log.actions import Metadata
from tidegate_delta.log.commit import Commit
from tidegate_delta.log.file_names import Version
from tidegate_delta.schema.arrow_types import to_arrow
from tidegate_delta.schema.column_mapping import mode_of
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_messages.schema_announcement import SchemaChange, columns_between
from tidegate_messages.stream_position import Position
from tidegate_runtime.clock import Clock
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.data_file_reader import schema_of
from tidegate_runtime.table_io.open_table import open_keys, open_snapshot, read_commit

GAP: Final = "GAP"
"""The error class of a stream that can't continue without omitting changes."""


@dataclass(frozen=True)
class StreamSource:
    """A table, and how its changes are published."""

    table: UUID
    name: str
    logical_name: str
    topic: str
    changes: TableChanges
    chunk_rows: int
    form: RecordForm = PLAIN
    on_schema_change: OnSchemaChange = "marker"
    on_gap: OnGap = "fail"
    schema_changes_topic: str = "tidegate.cdc-schema-changes"
    registry: PayloadEncoder | None = None
    has_transactions: bool = False
    large_rows: LargeRowRule | None = None
    notifications_topic: str | None = None


@dataclass(frozen=True)
class TableShape:
    """A table's protocol and metadata at a version."""

    protocol: actions.Protocol
    metadata: Metadata


class VersionLayouts:
    """What the versions of a table look like in its stream: their columns, keys and schemas.

    `position` returns the stream's. `head` is the newest version that is known.
    """

    def __init__(
        self,
        source: StreamSource,
        store: LogStore,
        clock: Clock,
        position: Callable[[], Position | None],
    ) -> None:
        self.head = -1
        self._source = source
        self._store = store
        self._clock = clock
        self._position = position
        self.declared_keys = DeclaredKeys(source.name, source.changes, self._head_metadata)
        self._gone_error: BrokenLog | None = None

    def is_log_gone(self, error: BrokenLog) -> bool:
        """Whether an error is the one of `gone`."""
        return error is self._gone_error

    def keys(
        self, due: SnapshotDue | VersionDue, metadata: Metadata, before: Metadata
    ) -> KeyColumns:
        """Return the key columns of a version with `metadata`; `before` is that of the one before.

        A version that is published in part is finished with the columns that it began with.
        """
        key_columns = keys_of_order(due.order) if due.start else None
        columns = to_arrow(schema_of(metadata))
        if key_columns is not None and set(key_columns) <= set(columns.names):
            self._source.form.check(self._source.name, columns, key_columns)
            return key_columns
        keys = self.declared_keys.resolved(metadata, before, self._position())
        self._source.form.check(self._source.name, columns, keys)
        if stranded := reordered(due, order_of(keys)):
            raise self.stranded(stranded.reason)
        return keys

    def around(
        self, due: VersionDue, before: Metadata, after: Metadata
    ) -> tuple[SchemaState, SchemaState]:
        """Return the columns and key columns before a version, and those from it on."""
        position = self._position()
        keys = self.keys(due, after, before)
        old = self.declared_keys.before(keys, after, before, position)
        return SchemaState(before, old), SchemaState(after, keys)

    def change(
        self, origin: SourceBlock, old: SchemaState, new: SchemaState
    ) -> SchemaChange | None:
        """Return the change of the schema with a version, if any.

        Raises: InvalidRequest (`SchemaChanged`).
        """
        steps = schema_steps(old, new)
        if not steps:
            return None
        policy = self._source.on_schema_change
        rules, columns = self._source.form.columns, columns_between(old.metadata, new.metadata)
        update = {"steps": rules.steps(steps), "columns": rules.visible(columns)}
        change = self.introduction(origin, new).model_copy(update=update)
        check_may_change(change, policy)
        anew = policy == "resnapshot" and change.is_followed_by_rows
        return change.model_copy(update={"snapshot": anew})

    def register_schemas(
        self, origin: SourceBlock, change: SchemaChange | None, *, has_deletes: bool
    ) -> None:
        """Register the schemas of a version that changes them, before any of its deletes is sent.

        Raises: InvalidRequest (`SchemaIncompatible`); as `PayloadEncoder.encoded`.
        """
        form, schemas = self._source.form, origin.schemas
        sides = (
            ("key", form.key_format, schemas.key_of_deletes, schemas.key),
            ("value", form.value_format, schemas.value_of_deletes, schemas.value),
        )
        for of, record_format, before, after in sides:
            is_changed = before is not None and after is not None and before != after
            if origin.registry is None or record_format not in REGISTERED or not is_changed:
                continue
            subject = f"{origin.topic}-{of}"
            try:
                if has_deletes:
                    origin.registry.encoded(subject, record_format, str(before), ())
                origin.registry.evolve(subject, record_format, str(before), str(after))
            except InvalidRequest as error:
                steps = "; ".join(in_words(step) for step in change.steps) if change else "its form"
                raise InvalidRequest(
                    f"version {origin.version} of table {origin.table_name} changes its schema "
                    f"({steps}): {error}",
                    error_class=error.error_class,
                ) from error

    def introduction(self, origin: SourceBlock, layout: SchemaState) -> SchemaChange:
        """Return the announcement of the schema with which a stream begins."""
        operation = origin.more.get("operation")
        return SchemaChange(
            table=origin.table,
            name=origin.table_name,
            version=origin.version,
            timestamp_ms=origin.timestamp_ms,
            operation=None if operation is None else str(operation),
            columns=self._source.form.columns.visible(
                columns_between(layout.metadata, layout.metadata)
            ),
            key_columns=layout.keys,
            form=value_form(self._source.form),
            schema_string=layout.metadata.schema_string,
        )

    def origin_at(self, version: int, layout: SchemaState) -> SourceBlock:
        """Return what the rows of a version share, even if its commit file is gone."""
        entry = read_commit(self._store, version)
        commit = Commit(Version(version), ()) if entry is None else entry[0]
        return self.origin(commit, layout, layout)

    def origin(self, commit: Commit, before: SchemaState, after: SchemaState) -> SourceBlock:
        """Return what the changes of a version share."""
        return SourceBlock(
            self._source.table,
            self._source.name,
            self._source.logical_name,
            commit.version,
            commit_time_ms(self._store, commit, self._clock.now_ms()),
            provenance(commit, after.metadata),
            self._schemas(before, after),
            self._source.form,
            topic=self._source.topic,
            registry=self._source.registry,
        )

    def _schemas(self, before: SchemaState, after: SchemaState) -> InlineSchemas:
        form, topic = self._source.form, self._source.topic
        if not form.has_schema:
            return NO_SCHEMAS
        old, new = (
            layout(schema_of(shape.metadata), mode_of(shape.metadata), shape.keys)
            for shape in (before, after)
        )
        return inline_schemas(form, topic, old, new)

    def _head_metadata(self) -> Metadata | None:
        return open_keys(self._store, self.head).metadata if self.head >= 0 else None

    def opened(self, version: int) -> tuple[TableShape, Snapshot]:
        """Return a version's shape and snapshot.

        Raises: BrokenLog (`GAP`), if it can't be read any more.
        """
        try:
            snapshot = open_snapshot(self._store, version)
        except InvalidRequest as error:
            raise self.gone(f"version {version} can't be read any more ({error})") from error
        return TableShape(snapshot.protocol, snapshot.metadata), snapshot

    def shape_before(self, commit: Commit) -> TableShape:
        """Return the shape before a version, or at the version if the one before is gone."""
        try:
            snapshot = open_snapshot(self._store, commit.version - 1)
        except InvalidRequest:
            return self.opened(commit.version)[0]
        return TableShape(snapshot.protocol, snapshot.metadata)

    def shape_at(self, version: int) -> TableShape | None:
        """Return the shape of a version, or None if it can't be read."""
        try:
            return self.opened(version)[0]
        except BrokenLog as error:
            if error is self._gone_error:
                return None
            raise

    def gone(self, reason: str) -> BrokenLog:
        """Return the error for a version that is due and can't be read any more."""
        name = self._source.name
        self._gone_error = self.stranded(
            f"{reason}; publish all rows instead with `tidegate changes snapshot {name}`, go on "
            f"behind it with `tidegate changes skip {name} --to VERSION`, or set cdc.on_gap"
        )
        return self._gone_error

    def stranded(self, reason: str) -> BrokenLog:
        """Return the error of a stream that can't continue."""
        return BrokenLog(f"table {self._source.name}: {reason}", error_class=GAP)

"""Tables built by the functions of the protocol package; `feature_tables` uses them.

Their entries pass the real committer. What the committer does not write, such as tables read as
Iceberg, the protocol's functions can still form: the entries of such a table are written `by_hand`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from tests import builders
from tests.conformance.written_tables import CLOCK, Written
from tidegate_delta.data_skipping.file_statistics import compute
from tidegate_delta.data_skipping.predicate_tree import Predicate
from tidegate_delta.definitions.definition import Definition
from tidegate_delta.definitions.resolve_definition import define_new, resolve_definition
from tidegate_delta.log.actions import Action, Add, Cdc, CommitInfo, Metadata, Protocol, Remove
from tidegate_delta.log.commit import Commit
from tidegate_delta.log.file_names import Version, commit_name, in_log
from tidegate_delta.properties import table_properties
from tidegate_delta.schema.arrow_types import arrow_type
from tidegate_delta.schema.column_mapping import (
    ColumnMappingMode,
    field_id,
    mode_of,
    physical_name,
    to_physical,
)
from tidegate_delta.schema.column_mapping_assignment import map_columns, physical_names
from tidegate_delta.schema.partition_values import serialize
from tidegate_delta.schema.types import (
    INTEGER,
    LONG,
    STRING,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    format_schema,
    parse_schema,
)
from tidegate_delta.snapshots.file_action_columns import rows_to_adds
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_messages.codec import encode, headers
from tidegate_messages.proposal import Operation, Proposal, ReadSet
from tidegate_producers.parquet.file_rewrite import Rewriter
from tidegate_producers.writing.column_checks import in_table_already
from tidegate_producers.writing.table_write import WriteRequest, stamp_for
from tidegate_runtime.client import proposal_builders
from tidegate_runtime.clock import new_id
from tidegate_runtime.kafka.client_protocols import TopicPartition
from tidegate_runtime.table_io.data_file_reader import read_table, rows_of
from tidegate_runtime.table_io.open_table import open_snapshot
from tidegate_runtime.table_io.row_ids import ROW_COMMIT_VERSION, ROW_ID

Rows = Sequence[Mapping[str, Any]]
NO_READS = ReadSet()
ID_COLUMN, COMMIT_COLUMN = "_row-id-col-x", "_row-commit-version-col-x"
MATERIALIZED = {
    table_properties.row_id_column.key: ID_COLUMN,
    table_properties.row_commit_version_column.key: COMMIT_COLUMN,
}
"""Properties of a table with row tracking whose files may materialize the ids of relocated rows."""


def column(name: str, kind: DataType, *, nullable: bool = True, **metadata: Any) -> StructField:
    """Return a column; `__` stands for a dot in its metadata keys."""
    return StructField(
        name, kind, nullable, {key.replace("__", "."): text for key, text in metadata.items()}
    )


def row(k: int, **more: Any) -> dict[str, Any]:
    """Return a row with a key, a text and the given values."""
    return {"k": k, "s": f"s{k}", **more}


def local(*parts: int) -> datetime:
    """Return a timestamp without a zone."""
    year, month, day, hour, minute, second, micros = (*parts, *(0,) * (7 - len(parts)))
    return datetime(year, month, day, hour, minute, second, micros, UTC).replace(tzinfo=None)


def supported(*names: str) -> dict[str, str]:
    """Return the properties that request support of some features."""
    return {f"delta.feature.{name}": "supported" for name in names}


K = column("k", LONG)
S = column("s", STRING)
P = column("p", INTEGER)


@dataclass
class Grown(Written):
    """A table, with a method for each change that makes a version."""

    by_hand: bool = False

    def __post_init__(self) -> None:
        self.id = new_id(CLOCK)

    @property
    def snapshot(self) -> Snapshot:
        return open_snapshot(self.store)

    def begin(
        self,
        columns: Iterable[StructField],
        properties: Mapping[str, str],
        partition_columns: Sequence[str] = (),
        also: Sequence[Action] = (),
    ) -> None:
        """Create the table, without rows."""
        metadata = Metadata(
            id=str(uuid4()),
            schema_string=format_schema(StructType(tuple(columns))),
            partition_columns=tuple(partition_columns),
            configuration=dict(properties),
            created_time=CLOCK.now_ms(),
        )
        mapped = map_columns(None, metadata, _new_names())
        made = resolve_definition(None, mapped).definition if self.by_hand else define_new(mapped)
        self.commit_actions("CREATE TABLE", made.protocol, made.metadata, *also)

    def change(self, operation: str, metadata: Metadata, *also: Action) -> None:
        """Replace the metadata by an alteration's result, with the protocol that it needs."""
        before = self.snapshot
        settled = resolve_definition(Definition(before.metadata, before.protocol), metadata)
        assert not settled.flaws, settled.flaws
        after, protocol = settled.definition
        mapped = map_columns(before.metadata, after, _new_names())
        result = () if protocol == before.protocol else (protocol,)
        self.commit_actions(operation, *result, mapped, *also)

    def set(self, **properties: str) -> None:
        """Set properties, named without `delta.` and with `__` for dots."""
        metadata = self.snapshot.metadata
        own = {f"delta.{key.replace('__', '.')}": text for key, text in properties.items()}
        wanted = metadata.with_(configuration={**metadata.configuration, **own})
        self.change("SET TBLPROPERTIES", wanted)

    def append(self, rows: Rows, *also: Action) -> None:
        """Append rows, one file for each set of partition values."""
        self.commit_actions("WRITE", *also, *self.adds(rows))

    def adds(self, rows: Rows, **more: pa.Array) -> list[Add]:
        """Return the new files of some rows; `more` are columns beyond the schema's."""
        metadata = self.snapshot.metadata
        groups: dict[str, list[Mapping[str, Any]]] = {}
        for row in rows:
            key = repr([row.get(name) for name in metadata.partition_columns])
            groups.setdefault(key, []).append(row)
        return [self._file(metadata, own, more) for own in groups.values()]

    def _file(self, metadata: Metadata, rows: Rows, more: Mapping[str, pa.Array]) -> Add:
        schema, mode = parse_schema(metadata.schema_string), mode_of(metadata)
        fields = [item for item in schema if item.name not in metadata.partition_columns]
        values = {
            physical_name(one, mode): serialize(rows[0].get(one.name), one.kind)
            for one in schema
            if one.name in metadata.partition_columns
        }
        shape = pa.schema([_stored(field, mode) for field in fields])
        whole = StructType(tuple(fields))
        plain = [_physical(row, whole, mode) for row in rows]
        table = pa.Table.from_pylist(plain, schema=shape)
        stats = compute(table, to_physical(whole, mode))
        for name, values_of in more.items():
            table = table.append_column(name, values_of)
        path = f"part-{uuid4()}.parquet"
        pq.write_table(table, self.path / path, store_schema=False)
        return Add(
            path=path,
            partition_values=values,
            size=(self.path / path).stat().st_size,
            modification_time=CLOCK.now_ms(),
            data_change=True,
            stats=stats,
        )

    def live(self) -> list[Add]:
        return rows_to_adds(self.snapshot.files)

    def replace(self, operation: str, rows: Rows, *also: Action, **more: pa.Array) -> None:
        """Replace all rows by others."""
        live = self.live()
        removes = [proposal_builders.removal(item, CLOCK.now_ms()) for item in live]
        reads = ReadSet(files=tuple(one.path for one in live), whole_table=True)
        self.commit_actions(operation, *also, *removes, *self.adds(rows, **more), reads=reads)

    def delete_rows(self, *each: Sequence[int]) -> None:
        """Delete rows by their keys; several deletes on the topic share one entry."""
        snapshot, sent = self.snapshot, []
        record = self.deployment.client.require(self.store.root)
        for keys in each:
            proposal = self._deletion(snapshot, keys)
            at = TopicPartition(record.proposals_topic, record.topic_partition)
            key = str(proposal.table).encode()
            self.deployment.bus.append(at, key, encode(proposal), headers(proposal))
            sent.append(proposal)
        for proposal in sent:
            outcome = self.deployment.client.propose(proposal)
            assert outcome.status == "committed", outcome.rejection

    def _deletion(self, snapshot: Snapshot, keys: Sequence[int]) -> Proposal:
        predicate: Predicate = {"op": "in", "column": ["k"], "values": list(keys), "type": "long"}
        rewriter = Rewriter(self.store, snapshot.metadata, predicate, CLOCK, 0)
        adds = {add.path: add for add in rows_to_adds(snapshot.files)}
        result = [rewriter.mark(file) for file in rows_of(snapshot.files)]
        marked = [
            (adds[item.path], item.marked) for item in result if item.marked and item.deleted_rows
        ]
        deletion = proposal_builders.Deletion(
            "k IN (...)", predicate, list(adds), (), (), {}, marked
        )
        vectors, content = proposal_builders.vectors_of(deletion, new_id(CLOCK))
        if content is not None:
            self.store.put(*content)
        version, table_id = int(snapshot.version), snapshot.metadata.id
        target = proposal_builders.Target(self.id, self.store.root, version, table_id)
        return proposal_builders.delete(
            target, stamp_for(self.deployment.client, WriteRequest(30)), deletion, vectors
        )

    def changes(self, rows: pa.Table) -> Cdc:
        """Return a new change file of a version."""
        path = f"_change_data/cdc-{uuid4()}.parquet"
        (self.path / "_change_data").mkdir(exist_ok=True)
        pq.write_table(rows, self.path / path, store_schema=False)
        return Cdc(path=path, partition_values={}, size=(self.path / path).stat().st_size)

    def commit_actions(self, operation: str, *actions: Action, reads: ReadSet = NO_READS) -> None:
        """Commit some actions as a version."""
        self.path.mkdir(exist_ok=True)
        head = -1 if operation == "CREATE TABLE" else int(self.snapshot.version)
        if self.by_hand:
            self._put(head + 1, operation, actions)
            return
        metadata = next((action for action in actions if isinstance(action, Metadata)), None)
        protocol = next((action for action in actions if isinstance(action, Protocol)), None)
        # A writer that changes the table has read all of it, as one that adds a constraint must.
        reads = ReadSet(whole_table=True) if metadata and head >= 0 else reads
        proposal = builders.proposal(
            *(action.to_row() for action in actions),
            proposal_id=new_id(CLOCK),
            table=self.id,
            table_root=self.store.root,
            table_id=None if head < 0 else self.snapshot.metadata.id,
            read_version=head,
            operation=Operation(name=operation),
            reads=reads,
            constraints_enforced=in_table_already(
                metadata or self.snapshot.metadata, protocol or self.snapshot.protocol
            ),
            created_ms=CLOCK.now_ms(),
        )
        outcome = self.deployment.client.propose(proposal)
        assert outcome.status == "committed", outcome.rejection

    def _put(self, version: int, operation: str, actions: Sequence[Action]) -> None:
        info = CommitInfo(timestamp=CLOCK.now_ms(), operation=operation, operation_parameters={})
        order: tuple[type[Action], ...] = (Protocol, Metadata, Remove, Add)
        ranked = sorted(actions, key=lambda one: [*order, type(one)].index(type(one)))
        commit = Commit(Version(version), (info, *ranked))
        self.store.put_if_absent(in_log(commit_name(version)), commit.encode(), 10.0)

    def row_ids(self) -> Mapping[int, tuple[int, int]]:
        """Return, by key, the id of each row and the version that last changed it."""
        result = self.rows_of_head(["k", ROW_ID, ROW_COMMIT_VERSION])
        return {row["k"]: (row[ROW_ID], row[ROW_COMMIT_VERSION]) for row in result.to_pylist()}

    def rows_of_head(self, columns: Sequence[str] | None = None) -> pa.Table:
        return read_table(self.store, self.snapshot, columns)


def _new_names() -> Iterator[str]:
    return physical_names(iter(uuid4, None))


def _stored(one: StructField, mode: ColumnMappingMode) -> pa.Field:
    """Return a column as a file has it, with the field ids of the table's column mapping."""
    known = field_id(one) if mode is not ColumnMappingMode.NONE else None
    about = None if known is None else {"PARQUET:field_id": str(known)}
    return pa.field(physical_name(one, mode), _stored_type(one.kind, mode), one.nullable, about)


def _stored_type(kind: DataType, mode: ColumnMappingMode) -> pa.DataType:
    match kind:
        case StructType():
            return pa.struct([_stored(field, mode) for field in kind.fields])
        case ArrayType():
            return pa.list_(pa.field("element", _stored_type(kind.element, mode)))
        case MapType():
            return pa.map_(_stored_type(kind.key, mode), _stored_type(kind.value, mode))
        case _:
            return arrow_type(kind)


def _physical(value: Any, kind: DataType, mode: ColumnMappingMode) -> Any:
    match value, kind:
        case None, _:
            return None
        case _, StructType():
            return {
                physical_name(field, mode): _physical(value.get(field.name), field.kind, mode)
                for field in kind.fields
            }
        case _, ArrayType():
            return [_physical(item, kind.element, mode) for item in value]
        case _:
            return value

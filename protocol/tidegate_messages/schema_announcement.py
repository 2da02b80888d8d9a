"""A change of a table's schema as its change stream announces it, and how rows follow it.

The record stands on the topic of schema changes and, as a marker, on the table's change topic. Its
`columns` say where each column of the new schema comes from, so that a copy of the table needs
nothing else to follow.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal
from uuid import UUID

from tidegate_delta.log.actions import Metadata
from tidegate_delta.schema.column_mapping import ColumnMappingMode, mode_of, physical_name
from tidegate_delta.schema.field_paths import ELEMENT, KEY, VALUE, FieldPath, steps_inside
from tidegate_delta.schema.type_widening import widens
from tidegate_delta.schema.types import DataType, StructField, StructType, parse_schema
from tidegate_messages.message import Message

MARKER: Final = "marker"
"""The header of a record on a change topic that is no change of a row. Its value is the kind."""

SCHEMA: Final = "schema"
"""The kind of marker at which the table's schema changes."""

SNAPSHOT_ENDS: Final = "snapshot-ends"
"""The kind of marker that ends the snapshot of a table without rows."""

GAP: Final = "gap"
"""The kind of marker that stands for versions whose changes are not in the stream, and the header
that says which.
"""

END: Final = "end"
"""The kind of marker behind the last change of a version. The header `delta_version` says which."""

CLAIM_CHECK: Final = "claim_check"
"""The header of a record whose value, with the rows, stands in a file of the table: as JSON."""

CLAIMS_FOLDER: Final = "_tidegate/changes"
"""The folder of these files, below the table's root."""

TRUNCATED: Final = "truncated"
"""The header of a record that was too large: the columns whose texts were cut."""

CONTENT: Final = "schema_change"
"""The header of such a marker that holds the whole record, in base64.

Kafka Connect parses a header that looks like JSON, and Debezium's sinks fail over what it gives.
"""

Change = Literal["add", "drop", "rename", "widen", "nullability", "key"]


class Column(Message):
    """A column of the new schema, a field of a struct, or what is inside an array or a map.

    `before` is its name before the change; a column that is new has none, and is null in all rows
    that exist. `type` and `type_before` are set where the type changed, in Delta's words.
    """

    name: str
    before: str | None = None
    type: str | None = None
    type_before: str | None = None
    fields: tuple["Column", ...] | None = None
    element: "Column | None" = None
    key: "Column | None" = None
    value: "Column | None" = None

    @property
    def is_as_before(self) -> bool:
        """Whether values need no change."""
        inner = [column for column in (self.element, self.key, self.value) if column is not None]
        return (
            self.before == self.name
            and self.type is None
            and (self.fields is None)
            and all(column.is_as_before for column in inner)
        )


class SchemaStep(Message):
    """One change, in words. `column` is the path before it, or of an added column the path after.

    `key` changes the key columns: then there is no path. `before` and `after` are names, types, or
    lists of key columns, by the kind of change.
    """

    change: Change
    column: tuple[str, ...] = ()
    before: str | bool | tuple[str, ...] | None = None
    after: str | bool | tuple[str, ...] | None = None


class StreamGap(Message):
    """The changes of the versions from `first` to `last` are not in the stream, or not all."""

    first: int
    last: int
    reason: str


class ValueForm(Message):
    """The settings by which the values of the stream's rows are written."""

    types: Literal["iso", "debezium"] = "iso"
    decimals: Literal["precise", "string", "double"] = "string"
    structs: Literal["struct", "json"] = "struct"


class SchemaChange(Message):
    """The schema of a table from a version on.

    `steps` are the changes, none where the stream begins. `columns` are all columns of the new
    schema. With `snapshot` the rows of the whole table follow, and copies begin with these.
    `schema_string` is Delta's.
    Units: `timestamp_ms` is the version's commit timestamp.
    """

    table: UUID
    name: str
    version: int
    timestamp_ms: int
    operation: str | None = None
    steps: tuple[SchemaStep, ...] = ()
    columns: tuple[Column, ...] = ()
    key_columns: tuple[str, ...] | None = None
    snapshot: bool = False
    form: ValueForm = ValueForm()
    schema_string: str

    @property
    def is_followed_by_rows(self) -> bool:
        """Whether rows that were published before must follow the change."""
        return any(step.change != "nullability" for step in self.steps)


def columns_between(before: Metadata, after: Metadata) -> tuple[Column, ...]:
    """Return the columns of a schema, each with its origin in the one before.

    A column keeps its identity by its physical name, as in the files. One whose type changed to
    what its files can't be read as is a new column.
    Law: all columns are as before, if the schemas are equal
    """
    modes = mode_of(before), mode_of(after)
    old, new = parse_schema(before.schema_string), parse_schema(after.schema_string)
    return _fields(old, new, modes)


def steps_between(before: Metadata, after: Metadata) -> tuple[SchemaStep, ...]:
    """Return what changed between two schemas, column by column: drops, then the columns in order.

    Law: steps_between(m, m) == ()
    """
    old, new = parse_schema(before.schema_string), parse_schema(after.schema_string)
    return tuple(_steps(old, columns_between(before, after), new, ()))


_Modes = tuple[ColumnMappingMode, ColumnMappingMode]


def _fields(old: StructType, new: StructType, modes: _Modes) -> tuple[Column, ...]:
    known = {physical_name(field, modes[0]): field for field in old}
    return tuple(_field(known.get(physical_name(field, modes[1])), field, modes) for field in new)


def _field(old: StructField | None, new: StructField, modes: _Modes) -> Column:
    kept = None if old is None else _kept(new.name, old.kind, new.kind, modes)
    if old is None or kept is None:
        return Column(name=new.name, type=str(new.kind))
    return kept.model_copy(update={"before": old.name})


def _kept(name: str, old: DataType, new: DataType, modes: _Modes) -> Column | None:
    """Return how a value of one type becomes one of another; None if it can't."""
    if isinstance(old, StructType) and isinstance(new, StructType):
        fields = _fields(old, new, modes)
        is_same = old.names == new.names and all(field.is_as_before for field in fields)
        return Column(name=name, before=name, fields=None if is_same else fields)
    steps = steps_inside(old)
    if steps and type(old) is type(new):
        inner: dict[str, Any] = {}
        for (step, old_kind), (_, new_kind) in zip(steps, steps_inside(new), strict=True):
            kept = _kept(step, old_kind, new_kind, modes)
            if kept is None:
                return None
            inner[step] = kept
        if all(column.is_as_before for column in inner.values()):
            return Column(name=name, before=name)
        return Column(name=name, before=name, **inner)
    if old == new:
        return Column(name=name, before=name)
    if widens(old, new):
        return Column(name=name, before=name, type=str(new), type_before=str(old))
    return None


def _steps(
    old: StructType, columns: tuple[Column, ...], new: StructType, above: FieldPath
) -> list[SchemaStep]:
    kept = {column.before for column in columns}
    schema_steps = [
        SchemaStep(change="drop", column=(*above, field.name), before=str(field.kind))
        for field in old
        if field.name not in kept
    ]
    for column, field in zip(columns, new, strict=True):
        old_field = None if column.before is None else old.get(column.before)
        if old_field is None:
            path = (*above, field.name)
            schema_steps.append(SchemaStep(change="add", column=path, after=str(field.kind)))
            continue
        path = (*above, old_field.name)
        if old_field.name != field.name:
            step = SchemaStep(change="rename", column=path, before=old_field.name, after=field.name)
            schema_steps.append(step)
        if old_field.nullable != field.nullable:
            schema_steps.append(_nullability(path, before=old_field.nullable, after=field.nullable))
        schema_steps += _inside(old_field.kind, column, field.kind, path)
    return schema_steps


def _nullability(path: FieldPath, *, before: bool, after: bool) -> SchemaStep:
    return SchemaStep(change="nullability", column=path, before=before, after=after)


def _inside(old: DataType, column: Column, new: DataType, path: FieldPath) -> list[SchemaStep]:
    if column.type is not None:
        return [
            SchemaStep(change="widen", column=path, before=column.type_before, after=column.type)
        ]
    if isinstance(old, StructType) and isinstance(new, StructType):
        columns = column.fields
        if columns is None:
            columns = tuple(Column(name=field.name, before=field.name) for field in new)
        return _steps(old, columns, new, path)
    schema_steps: list[SchemaStep] = []
    parts: Mapping[str, Column | None] = {
        ELEMENT: column.element,
        KEY: column.key,
        VALUE: column.value,
    }
    for (step, old_kind), (_, new_kind) in zip(steps_inside(old), steps_inside(new), strict=True):
        inner = parts[step] or Column(name=step, before=step)
        schema_steps += _inside(old_kind, inner, new_kind, (*path, step))
    return schema_steps

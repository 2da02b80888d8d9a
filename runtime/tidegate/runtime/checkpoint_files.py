"""Checkpoint files, read: Parquet -> columns of actions.

Only the columns that a snapshot needs are read, a row group at a time. Writers differ in what they
leave out (null structs, absent fields), so every field is looked for and none is required.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate.delta.actions import Action, DomainMetadata, Metadata, Protocol, Txn
from tidegate.delta.errors import BrokenLog, UnsupportedFeature
from tidegate.delta.files.columns import ADD_SCHEMA, REMOVE_SCHEMA
from tidegate.delta.names import LogFile, in_log
from tidegate.delta.replay import LogPart
from tidegate.runtime.log_files import of_table
from tidegate.runtime.log_store import LogStore

_OBJECTS: Final[Mapping[str, type[Action]]] = {
    kind.wire_name: kind for kind in (Protocol, Metadata, Txn, DomainMetadata)
}
_MAPS: Final = frozenset({"configuration", "options"})
_OF_V2: Final = ("sidecar", "checkpointMetadata")


def read_checkpoint(store: LogStore, parts: Iterable[LogFile]) -> LogPart:
    """Return what a classic checkpoint says; its parts, where it has several, add up.

    Raises: BrokenLog (`CorruptCheckpoint`) for a missing, torn or malformed file;
    UnsupportedFeature for the contents of a V2 checkpoint; Unavailable.
    """
    read = [_read_file(store, part.name) for part in parts]
    return LogPart(
        files=pa.concat_tables([part.files for part in read]),
        tombstones=pa.concat_tables([part.tombstones for part in read]),
        protocol=next((part.protocol for part in read if part.protocol), None),
        metadata=next((part.metadata for part in read if part.metadata), None),
        txns=tuple(txn for part in read for txn in part.txns),
        domains=tuple(one for part in read for one in part.domains),
    )


def _read_file(store: LogStore, name: str) -> LogPart:
    try:
        with store.open(in_log(name)) as file, of_table(store.root):
            return _read_columns(pq.ParquetFile(file), name)
    except FileNotFoundError as error:
        raise _corrupt(store.root, name, "is gone") from error
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _corrupt(store.root, name, f"can't be read ({error})") from error


def _read_columns(file: pq.ParquetFile, name: str) -> LogPart:
    shape = file.schema_arrow
    files, tombstones = [ADD_SCHEMA.empty_table()], [REMOVE_SCHEMA.empty_table()]
    objects: dict[str, list[Action]] = {kind: [] for kind in _OBJECTS}
    wanted = [*_paths(shape, "add", ADD_SCHEMA), *_paths(shape, "remove", REMOVE_SCHEMA)]
    wanted += [one for one in (*_OBJECTS, *_OF_V2) if one in shape.names]
    for group in range(file.num_row_groups):
        rows = file.read_row_group(group, columns=wanted)
        _refuse_v2(rows, name)
        files.append(_actions(rows, "add", ADD_SCHEMA))
        tombstones.append(_actions(rows, "remove", REMOVE_SCHEMA))
        for kind, model in _OBJECTS.items():
            objects[kind].extend(_models(rows, kind, model))
    return LogPart(
        files=pa.concat_tables(files),
        tombstones=pa.concat_tables(tombstones),
        protocol=next((one for one in objects["protocol"] if isinstance(one, Protocol)), None),
        metadata=next((one for one in objects["metaData"] if isinstance(one, Metadata)), None),
        txns=tuple(one for one in objects["txn"] if isinstance(one, Txn)),
        domains=tuple(one for one in objects["domainMetadata"] if isinstance(one, DomainMetadata)),
    )


def _paths(shape: pa.Schema, action: str, schema: pa.Schema) -> Iterator[str]:
    """Yield the dotted names of the fields that are there, of those that a snapshot keeps."""
    index = shape.get_field_index(action)
    if index < 0 or not pa.types.is_struct(shape.field(index).type):
        return
    there = {one.name for one in shape.field(index).type.fields}
    yield from (f"{action}.{one.name}" for one in schema if one.name in there)


def _actions(rows: pa.Table, action: str, schema: pa.Schema) -> pa.Table:
    index = rows.schema.get_field_index(action)
    if index < 0:
        return schema.empty_table()
    column = rows.column(index)
    there = {one.name for one in column.type.fields}
    if "path" not in there:
        return schema.empty_table()
    present = column.filter(pc.is_valid(pc.struct_field(column, "path")))
    columns = [
        _cast(pc.struct_field(present, one.name), one.type)
        if one.name in there
        else pa.nulls(len(present), one.type)
        for one in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _cast(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    """Return a column with our type; a struct gains the fields it lacks."""
    if column.type == wanted:
        return column
    if not pa.types.is_struct(wanted):
        return column.cast(wanted)
    there = {one.name for one in column.type.fields}
    return pa.chunked_array([_struct(chunk, wanted, there) for chunk in column.chunks], wanted)


def _struct(chunk: pa.StructArray, wanted: pa.StructType, there: set[str]) -> pa.StructArray:
    children = [
        pc.struct_field(chunk, one.name).cast(one.type)
        if one.name in there
        else pa.nulls(len(chunk), one.type)
        for one in wanted
    ]
    return pa.StructArray.from_arrays(children, fields=list(wanted), mask=pc.is_null(chunk))


def _models(rows: pa.Table, kind: str, model: type[Action]) -> Iterator[Action]:
    index = rows.schema.get_field_index(kind)
    if index < 0:
        return
    column = rows.column(index)
    for row in column.filter(pc.is_valid(column)).to_pylist():
        plain = _plain(row)
        if plain:
            yield model.model_validate(plain)


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row without its nulls, maps as mappings."""
    plain: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            plain[name] = _plain(value)
        elif value is not None:
            plain[name] = dict(value) if name in _MAPS and isinstance(value, list) else value
    return plain


def _refuse_v2(rows: pa.Table, name: str) -> None:
    for kind in _OF_V2:
        index = rows.schema.get_field_index(kind)
        if index >= 0 and rows.column(index).null_count < rows.num_rows:
            raise UnsupportedFeature(
                f"{name} is a V2 checkpoint under a classic name, which this release does not "
                "read: read the table with another engine",
                feature="v2Checkpoint",
            )


def _corrupt(root: str, name: str, what: str) -> BrokenLog:
    return BrokenLog(
        f"checkpoint {name} of table {root} {what}: remove it if the commits before it are still "
        "there, or restore it from a backup",
        error_class="CorruptCheckpoint",
    )

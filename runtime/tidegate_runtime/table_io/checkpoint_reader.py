"""Read checkpoint files: Parquet or JSON, with sidecars, to columns of actions.

Only the columns that a snapshot needs are read, a row group at a time. Writers differ in what they
leave out (null structs, absent fields), so every field is optional.

Whether a checkpoint is there whole, and what a hint to it says.

A torn checkpoint, or one that lacks a part or a sidecar, counts as none: another is written. Only
the ends of Parquet files are read.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate_delta.checkpoints.checkpoint_rows import (
    TopLevelFile,
    check_top_level,
    read_top_level_json,
    sidecar_path,
)
from tidegate_delta.checkpoints.last_checkpoint import LastCheckpoint
from tidegate_delta.errors import BrokenLog
from tidegate_delta.log.actions import (
    Action,
    CheckpointMetadata,
    DomainMetadata,
    Metadata,
    Protocol,
    Sidecar,
    Txn,
)
from tidegate_delta.log.file_names import LogFile, LogFileKind, in_log, in_sidecars
from tidegate_delta.log.json_lines import with_defaults
from tidegate_delta.log.log_segment import complete_checkpoints
from tidegate_delta.snapshots.chunked_arrays import missing, stacked
from tidegate_delta.snapshots.file_action_columns import ADD_SCHEMA, KEY_SCHEMA, REMOVE_SCHEMA
from tidegate_delta.snapshots.raw_stats import PARSED, with_texts
from tidegate_delta.snapshots.replay import LogPart
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.log_reader import list_log, of_table
from tidegate_runtime.table_io.parquet_footers import Footer, read_footer, read_row_count

_OBJECTS: Final[Mapping[str, type[Action]]] = {
    kind.wire_name: kind
    for kind in (Protocol, Metadata, Txn, DomainMetadata, CheckpointMetadata, Sidecar)
}
_LEAVES: Final[Mapping[str, str]] = {
    "add": "path",
    "remove": "path",
    "protocol": "minReaderVersion",
    "metaData": "id",
    "txn": "appId",
    "domainMetadata": "domain",
    "checkpointMetadata": "version",
    "sidecar": "path",
}
"""For each action a field that every writer sets."""

_SIDECAR: Final = "sidecar"
_SOLE: Final = ("", ".storageType")
"""Suffixes from a field's name to a leaf column that is null only if the field itself is."""

_MAPS: Final = frozenset({"configuration", "options", "tags"})


@dataclass(frozen=True)
class FileColumns:
    """The columns to read of live files and of tombstones; with None, no tombstone is read."""

    files: pa.Schema = ADD_SCHEMA
    tombstones: pa.Schema | None = REMOVE_SCHEMA


WHOLE: Final = FileColumns()
KEYS: Final = FileColumns(KEY_SCHEMA, None)


def read_checkpoint(
    store: LogStore, parts: Iterable[LogFile], columns: FileColumns = WHOLE
) -> LogPart:
    """Return the content of a checkpoint: all its parts or sidecars together.

    Raises: BrokenLog (`CorruptCheckpoint`) for a missing, torn or malformed file; Unavailable.
    """
    named = list(parts)
    tops = [read_top(store, part, columns) for part in named]
    paths = [sidecar_path(sidecar) for top in tops for sidecar in top.sidecars]
    below = [_read_parquet(store, path, columns).part for path in dict.fromkeys(paths)]
    read = [*(top.part for top in tops), *below]
    return LogPart(
        files=stacked_files([part.files for part in read]),
        tombstones=stacked([part.tombstones for part in read]),
        protocol=next((part.protocol for part in read if part.protocol), None),
        metadata=next((part.metadata for part in read if part.metadata), None),
        txns=tuple(txn for part in read for txn in part.txns),
        domains=tuple(domain for part in read for domain in part.domains),
        name=next(
            (file.name for file, top in zip(named, tops, strict=True) if top.part.metadata),
            named[0].name,
        ),
    )


def read_sidecar_names(store: LogStore, file: LogFile) -> frozenset[str] | None:
    """Return the names of a checkpoint file's sidecars, or None if the file is gone.

    Only the column of sidecars is read.
    Raises: BrokenLog (`CorruptCheckpoint`) for a torn or malformed file; Unavailable.
    """
    path = in_log(file.name)
    if file.name.endswith(".json"):
        content = store.read(path)
        if content is None:
            return None
        sidecars = _parsed_json(store, file.name, content, KEYS).sidecars
    else:
        try:
            with store.open(path) as source:
                shape = pq.read_schema(source)
                source.seek(0)
                names = [_SIDECAR] if shape.get_field_index(_SIDECAR) >= 0 else []
                rows = pq.read_table(source, columns=names, use_threads=False)
                sidecars = tuple(_sidecars_in(rows))
        except FileNotFoundError:
            return None
        except (pa.ArrowException, OSError, ValueError) as error:
            raise corrupt(store.root, file.name, f"can't be read ({error})") from error
    return frozenset(sidecar_path(sidecar).rpartition("/")[2] for sidecar in sidecars)


def _sidecars_in(rows: pa.Table) -> Iterator[Sidecar]:
    for sidecar in _models(rows, _SIDECAR, Sidecar):
        assert isinstance(sidecar, Sidecar), "read as one"
        yield sidecar


def read_top(store: LogStore, file: LogFile, columns: FileColumns) -> TopLevelFile:
    """Return the content of a checkpoint's top-level file, or of a part, without its sidecars.

    Raises: BrokenLog (`CorruptCheckpoint`) for a missing, torn or malformed file; Unavailable.
    """
    is_json = file.name.endswith(".json")
    read = _read_json if is_json else _read_parquet
    top = read(store, in_log(file.name), columns)
    with of_table(store.root):
        check_top_level(file, top)
    return top


def _read_json(store: LogStore, path: str, columns: FileColumns) -> TopLevelFile:
    name = path.rpartition("/")[2]
    content = store.read(path)
    if content is None:
        raise corrupt(store.root, name, "is gone")
    return _parsed_json(store, name, content, columns)


def _parsed_json(store: LogStore, name: str, content: bytes, columns: FileColumns) -> TopLevelFile:
    try:
        return read_top_level_json(name, content, columns.files)
    except (BrokenLog, ValueError) as error:
        raise corrupt(store.root, name, f"can't be read ({error})") from error


def _read_parquet(store: LogStore, path: str, columns: FileColumns) -> TopLevelFile:
    with opened(store, path) as file:
        return _read_columns(file, columns)


@contextmanager
def opened(store: LogStore, path: str) -> Iterator[BinaryIO]:
    """Open a checkpoint file; errors of reading it name the file.

    Raises: BrokenLog (`CorruptCheckpoint`) for a missing or torn one; Unavailable.
    """
    with reading(store, path), store.open(path) as file:
        yield file


@contextmanager
def reading(store: LogStore, path: str) -> Iterator[None]:
    """Name a checkpoint file in the errors of reading it.

    Raises: BrokenLog (`CorruptCheckpoint`) for a missing or torn one.
    """
    name = path.partition("/")[2]
    try:
        with of_table(store.root):
            yield
    except FileNotFoundError as error:
        raise corrupt(store.root, name, "is gone") from error
    except (pa.ArrowException, OSError, ValueError) as error:
        raise corrupt(store.root, name, f"can't be read ({error})") from error


def _read_columns(source: BinaryIO, columns: FileColumns) -> TopLevelFile:
    file = CheckpointFile(source, columns)
    row_groups = [file.read(group) for group in range(file.groups)]
    files = [file.of_files.empty_table(), *(rows.files for rows in row_groups)]
    tombstones = [REMOVE_SCHEMA.empty_table(), *(rows.tombstones for rows in row_groups)]
    return top_level_of(row_groups, without_needless_stats(stacked(files)), stacked(tombstones))


@dataclass(frozen=True)
class GroupRows:
    """The rows of a row group: files and tombstones in columns, the few other actions by name."""

    files: pa.Table
    tombstones: pa.Table
    objects: Mapping[str, Sequence[Any]]


def top_level_of(read: Sequence[GroupRows], files: pa.Table, tombstones: pa.Table) -> TopLevelFile:
    """Return a file with the few actions of its row groups, and with the given rows."""
    objects = {
        kind: [action for group in read for action in group.objects[kind]] for kind in _OBJECTS
    }
    part = LogPart(
        files=files,
        tombstones=tombstones,
        protocol=next(iter(objects["protocol"]), None),
        metadata=next(iter(objects["metaData"]), None),
        txns=tuple(objects["txn"]),
        domains=tuple(objects["domainMetadata"]),
    )
    return TopLevelFile(part, tuple(objects["checkpointMetadata"]), tuple(objects["sidecar"]))


class CheckpointFile:
    """An open checkpoint file or sidecar in Parquet, of which some columns are read.

    Raises: ValueError, OSError, pa.ArrowException, here and when it is read, for a torn one.
    """

    def __init__(self, source: BinaryIO, columns: FileColumns) -> None:
        footer = read_footer(source)
        self._columns = columns
        self._file = pq.ParquetFile(
            source, metadata=footer.metadata, coerce_int96_timestamp_unit="us"
        )
        self._footer = _FooterContents(self._file.schema_arrow, footer, self._file.schema)
        self.groups = len(footer.groups)
        self.of_files = self._footer.with_parsed(columns.files)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the file."""
        return self._file.schema_arrow

    def read(self, group: int) -> GroupRows:
        """Return the rows of a row group."""
        footer, columns = self._footer, self._columns
        kinds_present = [kind for kind in _LEAVES if footer.may_hold(group, kind)]
        names = [action_kind for action_kind in kinds_present if action_kind in _OBJECTS]
        names += footer.paths(group, "add", self.of_files) if "add" in kinds_present else []
        if columns.tombstones is not None and "remove" in kinds_present:
            names += footer.paths(group, "remove", columns.tombstones)
        rows = self._file.read_row_group(group, columns=names, use_threads=False)
        return GroupRows(
            _actions(rows, "add", self.of_files),
            REMOVE_SCHEMA.empty_table()
            if columns.tombstones is None
            else _actions(rows, "remove", columns.tombstones),
            {kind: list(_models(rows, kind, model)) for kind, model in _OBJECTS.items()},
        )


class _FooterContents:
    """The columns and row groups of a checkpoint file, according to its footer."""

    def __init__(self, shape: pa.Schema, footer: Footer, stored: pq.ParquetSchema) -> None:
        self._shape = shape
        self._groups = footer.groups
        self._stored = stored

    def may_hold(self, group: int, kind: str) -> bool:
        """Return whether a row group may hold an action of a kind."""
        if self._shape.get_field_index(kind) < 0:
            return False
        rows = self._groups[group].rows
        nulls = self._nulls(group, f"{kind}.{_LEAVES[kind]}")
        return nulls is None or nulls != rows

    def paths(self, group: int, action: str, schema: pa.Schema) -> list[str]:
        """Return the dotted names of the wanted fields that are not null throughout a row group."""
        stored_fields = _fields_of(self._shape, action)
        names = [f"{action}.{field.name}" for field in schema if field.name in stored_fields]
        rows = self._groups[group].rows
        return [
            name
            for name in names
            if name.endswith(".path")
            or rows not in (self._nulls(group, f"{name}{leaf}") for leaf in _SOLE)
        ]

    def with_parsed(self, files: pa.Schema) -> pa.Schema:
        """Return the columns to read of live files, with typed statistics if JSON ones may lack."""
        kind = _fields_of(self._shape, "add").get(PARSED)
        if kind is None or "stats" not in files.names or not self._text_may_lack():
            return files
        leaves = map(self._stored.column, range(len(self._stored.names)))
        instants = {leaf.path for leaf in leaves if leaf.physical_type == "INT96"}
        return files.append(pa.field(PARSED, _in_utc(kind, f"add.{PARSED}", instants)))

    def _text_may_lack(self) -> bool:
        for group in range(len(self._groups)):
            missing = self._nulls(group, "add.stats")
            if missing is None or missing != self._nulls(group, "add.path"):
                return True
        return False

    def _nulls(self, group: int, leaf: str) -> int | None:
        return self._groups[group].nulls.get(leaf)


def _in_utc(kind: pa.DataType, path: str, instants: Collection[str]) -> pa.DataType:
    """Return a type with its INT96 leaves as UTC timestamps, the only use of INT96."""
    if pa.types.is_struct(kind):
        inner = [_in_utc(field.type, f"{path}.{field.name}", instants) for field in kind]
        return pa.struct(list(map(pa.field, [field.name for field in kind], inner)))
    return pa.timestamp("us", "UTC") if path in instants else kind


def without_needless_stats(files: pa.Table) -> pa.Table:
    """Return files without typed statistics that are not needed."""
    if PARSED not in files.schema.names:
        return files
    needless = files["stats"].null_count == 0 or files[PARSED].null_count == files.num_rows
    return files.drop_columns([PARSED]) if needless else files


def stacked_files(tables: Sequence[pa.Table]) -> pa.Table:
    """Return the live files of several parts; typed statistics of differing types become JSON."""
    kinds = {t.schema.field(PARSED).type for t in tables if PARSED in t.schema.names}
    return stacked(tables if len(kinds) < 2 else [with_texts(table) for table in tables])


def _fields_of(shape: pa.Schema, action: str) -> Mapping[str, pa.DataType]:
    index = shape.get_field_index(action)
    if index < 0 or not pa.types.is_struct(shape.field(index).type):
        return {}
    return {field.name: field.type for field in shape.field(index).type}


def _actions(rows: pa.Table, action: str, schema: pa.Schema) -> pa.Table:
    stored_fields = _fields_of(rows.schema, action)
    if "path" not in stored_fields:
        return schema.empty_table()
    column = rows.column(rows.schema.get_field_index(action))
    paths = pc.struct_field(column, "path")
    kept = column.filter(pc.is_valid(paths)) if paths.null_count else column
    columns = [
        _cast(pc.struct_field(kept, field.name), field.type)
        if field.name in stored_fields
        else missing(len(kept), field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _cast(column: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    """Return a column in our type; a struct gets the fields it lacks."""
    if column.type == target:
        return column
    if not (pa.types.is_struct(target) and pa.types.is_struct(column.type)):
        return column.cast(target)
    stored_names = {field.name for field in column.type.fields}
    return pa.chunked_array(
        [_struct(chunk, target, stored_names) for chunk in column.chunks], target
    )


def _struct(chunk: pa.StructArray, target: pa.StructType, stored_names: set[str]) -> pa.StructArray:
    children = [
        pc.struct_field(chunk, field.name).cast(field.type)
        if field.name in stored_names
        else pa.nulls(len(chunk), field.type)
        for field in target
    ]
    return pa.StructArray.from_arrays(children, fields=list(target), mask=pc.is_null(chunk))


def _models(rows: pa.Table, kind: str, model: type[Action]) -> Iterator[Action]:
    index = rows.schema.get_field_index(kind)
    if index < 0:
        return
    column = rows.column(index)
    if not pa.types.is_struct(column.type):
        raise ValueError(f"its column {kind!r} is no struct")
    for row in column.filter(pc.is_valid(column)).to_pylist():
        plain = _plain(row)
        if plain:
            yield model.model_validate(with_defaults(kind, plain))


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row without its nulls, with maps as mappings."""
    plain: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            plain[name] = _plain(value)
        elif name in _MAPS and isinstance(value, list):
            plain[name] = {key: item for key, item in value if item is not None}
        elif value is not None:
            plain[name] = value
    return plain


def corrupt(root: str, name: str, problem: str) -> BrokenLog:
    """Return the error about a checkpoint's file that is wrong."""
    return BrokenLog(
        f"checkpoint file {name} of table {root} {problem}: remove the checkpoint if the commits "
        "before it are still there, or restore it from a backup",
        error_class="CorruptCheckpoint",
    )


def whole_checkpoint(store: LogStore, version: int) -> LastCheckpoint | None:
    """Return the hint to the checkpoint of a version, or None if there is none that is whole.

    Raises: Unavailable.
    """
    listed: list[LogFile] = []
    for file, _ in list_log(store, f"{version:020d}.checkpoint"):
        if file.version != version or not file.is_checkpoint:
            break
        listed.append(file)
    parts = complete_checkpoints(listed).get(version)
    return None if parts is None else _described(store, version, parts)


def newest_whole_checkpoint(store: LogStore, after: int) -> LastCheckpoint | None:
    """Return the hint to the newest checkpoint after a version that is whole, or None.

    Raises: Unavailable.
    """
    listed = [file for file, _ in list_log(store, f"{after + 1:020d}")]
    for version, parts in sorted(complete_checkpoints(listed).items(), reverse=True):
        if hint := _described(store, version, parts):
            return hint
    return None


def _described(store: LogStore, version: int, parts: Sequence[LogFile]) -> LastCheckpoint | None:
    try:
        sizes = [_size(store, in_log(part.name)) for part in parts]
        if parts[0].kind is not LogFileKind.CHECKPOINT_PART:
            names = read_sidecar_names(store, parts[0]) or frozenset()
            sizes += [_size(store, in_sidecars(name)) for name in sorted(names)]
    except (BrokenLog, FileNotFoundError, pa.ArrowException, OSError, ValueError):
        return None
    return LastCheckpoint(
        version=version,
        size=sum(actions for actions, _ in sizes),
        parts=len(parts) if parts[0].kind is LogFileKind.CHECKPOINT_PART else None,
        size_in_bytes=sum(size_bytes for _, size_bytes in sizes),
    )


def _size(store: LogStore, path: str) -> tuple[int, int]:
    """Return how many actions and bytes a checkpoint file has.

    Raises: FileNotFoundError; ValueError, OSError, ArrowException for a torn one; Unavailable.
    """
    if path.endswith(".json"):
        content = store.read(path)
        if content is None:
            raise FileNotFoundError(path)
        lines = [orjson.loads(line) for line in content.splitlines() if line.strip()]
        if not lines:
            raise ValueError(f"{path} is empty")
        return len(lines), len(content)
    with store.open(path) as file:
        rows = read_row_count(file)
        return rows, _end(file)


def _end(file: BinaryIO) -> int:
    return file.seek(0, 2)

"""Delta tables drawn at random, for the laws of the change stream: a schema, rows, their versions.

Columns are nested to depth 3, have odd names, are NULL at every level, may be mapped to physical
names, and one may be a partition column.
"""

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import count
from pathlib import Path
from struct import pack, unpack
from typing import Any, Final, Self

import pyarrow as pa
from hypothesis import strategies as st

from tests.unit.cdc_publisher.written_table import Rows, WrittenTable
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_delta.schema.arrow_types import to_arrow
from tidegate_delta.schema.column_mapping_assignment import map_columns
from tidegate_delta.schema.types import parse_schema

PLAIN_NAMES: Final = (
    "a", "A1", "user_id", "userId", "int", "value", "items", "key", "class", "op", "before",
    "source", "_x", "SerializeToString", "schema", "payload",
)  # fmt: skip
ODD_NAMES: Final = (
    "a.b", "b c", "ü", "1st", 'q"uote', "back\\slash", "`tick`", "comma,name", "-", "\u200d",
)  # fmt: skip
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_moments = st.integers(-(2**50), 2**50).map(lambda us: _EPOCH + timedelta(microseconds=us))
_SCALARS: Final[Mapping[str, st.SearchStrategy[Any]]] = {
    "byte": st.integers(-(2**7), 2**7 - 1),
    "short": st.integers(-(2**15), 2**15 - 1),
    "integer": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32),
    "double": st.floats(),
    "boolean": st.booleans(),
    "string": st.text(max_size=6),
    "binary": st.binary(max_size=6),
    "date": st.dates(),
    "timestamp": _moments,
    "timestamp_ntz": _moments.map(lambda moment: moment.replace(tzinfo=None)),
    "decimal(10,3)": st.integers(-(10**10) + 1, 10**10 - 1).map(lambda n: Decimal(n).scaleb(-3)),
    "decimal(14,5)": st.integers(-(10**14) + 1, 10**14 - 1).map(lambda n: Decimal(n).scaleb(-5)),
    "decimal(38,0)": st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal),
}
PARTITIONS: Final = tuple(kind for kind in _SCALARS if kind != "binary")
"""Types of partition columns whose values every engine writes as the same text."""

_FEATURES: Final = ["columnMapping", "deletionVectors", "timestampNtz", "typeWidening"]
PROTOCOL: Final = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=tuple(_FEATURES),
    writer_features=tuple(_FEATURES),
)


def kinds(names: tuple[str, ...], depth: int) -> st.SearchStrategy[Any]:
    """Return types as a schema string has them, with structs, arrays and maps inside."""
    scalars = st.sampled_from(sorted(_SCALARS))
    if depth == 0:
        return scalars
    inner = kinds(names, depth - 1)
    array = st.builds(
        lambda kind, nulls: {"type": "array", "elementType": kind, "containsNull": nulls},
        inner,
        st.booleans(),
    )
    keyed = st.builds(
        lambda kind: {
            "type": "map", "keyType": "string", "valueType": kind, "valueContainsNull": True,
        },
        inner,
    )  # fmt: skip
    return scalars | structs(names, inner) | array | keyed


def structs(names: tuple[str, ...], inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return structs of a few fields; names differ without their case, too."""
    fields = st.lists(
        st.tuples(st.sampled_from(names), inner, st.booleans()),
        min_size=1,
        max_size=3,
        unique_by=lambda item: item[0].lower(),
    )
    return fields.map(
        lambda items: {
            "type": "struct",
            "fields": [
                {"name": name, "type": kind, "nullable": nullable, "metadata": {}}
                for name, kind, nullable in items
            ],
        }
    )


def values(kind: Any, nullable: bool) -> st.SearchStrategy[Any]:
    """Return values of a type, as pyarrow takes them."""
    if isinstance(kind, str):
        of = _SCALARS[kind]
    elif kind["type"] == "struct":
        of = rows_of(kind)
    elif kind["type"] == "array":
        of = st.lists(values(kind["elementType"], kind["containsNull"]), max_size=3)
    else:
        pairs = st.dictionaries(st.text(max_size=3), values(kind["valueType"], True), max_size=3)
        of = pairs.map(lambda pairs: list(pairs.items()))
    return st.none() | of if nullable else of


def rows_of(struct: Mapping[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return rows of a struct."""
    return st.fixed_dictionaries(
        {item["name"]: values(item["type"], item["nullable"]) for item in struct["fields"]}
    )


def shown(value: Any, kind: Any, *, has_schema: bool) -> Any:
    """Return a value as docs/changes.md says that it is written, in ISO types."""
    if value is None:
        return None
    if not isinstance(kind, str):
        return _shown_inside(value, kind, has_schema=has_schema)
    if isinstance(value, float) and (value != value or abs(value) == float("inf")):
        words = {float("inf"): "Infinity", float("-inf"): "-Infinity"}
        return None if has_schema else words.get(value, "NaN")
    match value:
        case bytes():
            return b64encode(value).decode()
        case datetime():
            zone = "Z" if value.tzinfo else ""
            plain = value.replace(tzinfo=None)
            return f"{plain.isoformat(timespec='microseconds')}{zone}"
        case date():
            return value.isoformat()
        case Decimal():
            return format(value, "f")
    return value


def _shown_inside(value: Any, kind: Mapping[str, Any], *, has_schema: bool) -> Any:
    if kind["type"] == "struct":
        return {
            item["name"]: shown(value[item["name"]], item["type"], has_schema=has_schema)
            for item in kind["fields"]
        }
    if kind["type"] == "array":
        return [shown(item, kind["elementType"], has_schema=has_schema) for item in value]
    return {key: shown(item, kind["valueType"], has_schema=has_schema) for key, item in value}


def narrowed(value: Any, kind: Any) -> Any:
    """Return a value as it was read, with floats of 32 bits: their texts are the shortest ones."""
    if value is None or isinstance(kind, str):
        is_float = kind == "float" and isinstance(value, float)
        return unpack("f", pack("f", value))[0] if is_float else value
    if kind["type"] == "struct":
        types = {item["name"]: item["type"] for item in kind["fields"]}
        return {name: narrowed(item, types[name]) for name, item in value.items()}
    if kind["type"] == "array":
        return [narrowed(item, kind["elementType"]) for item in value]
    return {key: narrowed(item, kind["valueType"]) for key, item in value.items()}


@dataclass
class GeneratedTable(WrittenTable):
    """A table of a drawn schema. Rows have the names of the schema."""

    struct: dict[str, Any] = field(default_factory=dict)
    partition: str | None = None
    mapped: bool = False
    _ids: int = 0

    @classmethod
    def at(
        cls,
        folder: Path,
        struct: dict[str, Any],
        partition: str | None,
        *,
        mapped: bool,
        **more: Any,
    ) -> Self:
        """Write a table's first version, which has no rows."""
        table = cls(folder, struct=struct, partition=partition, mapped=mapped, **more)
        if mapped:
            table._give_ids(struct)
        table.schema = to_arrow(parse_schema(json.dumps(struct)))
        (folder / "_delta_log").mkdir(parents=True)
        table.configuration = {**table.configuration, "delta.enableTypeWidening": "true"}
        table.commit("CREATE TABLE", PROTOCOL.to_row(), table._metadata())
        return table

    @property
    def metadata(self) -> Metadata:
        """The table's metadata."""
        return Metadata.model_validate(self._metadata()["metaData"])

    def alter(
        self,
        change: Callable[[Metadata], Metadata],
        new_rows: Callable[[dict[str, Any]], Rows] | None = None,
    ) -> None:
        """Write a version with changed metadata, and with other rows if the new schema gives some.

        Raises: InvalidRequest, for a change that the table does not allow.
        """
        names = (f"col-{self.version}-{number}" for number in count())
        after = map_columns(self.metadata, change(self.metadata), names)
        removes = [self._remove(path) for path in list(self.files)] if new_rows else []
        self.struct = json.loads(after.schema_string)
        self._ids = int(after.configuration.get("delta.columnMapping.maxColumnId", 0))
        self.schema = to_arrow(parse_schema(after.schema_string))
        adds = [self._add([row]) for row in (new_rows(self.struct) if new_rows else ())]
        self.commit("ALTER TABLE", self._metadata(), *removes, *adds)

    def _give_ids(self, kind: Any) -> None:
        if isinstance(kind, str):
            return
        for item in kind.get("fields", ()):
            self._ids += 1
            item["metadata"] = {
                "delta.columnMapping.id": self._ids,
                "delta.columnMapping.physicalName": f"col-{self._ids}",
            }
            self._give_ids(item["type"])
        for part in ("elementType", "valueType"):
            if part in kind:
                self._give_ids(kind[part])

    def _metadata(self) -> dict[str, Any]:
        body = super()._metadata()["metaData"] if not self.struct else {}
        mapping = {
            "delta.columnMapping.mode": "name",
            "delta.columnMapping.maxColumnId": str(self._ids),
        }
        configuration = {**self.configuration, **(mapping if self.mapped else {})}
        return {
            "metaData": {
                **body,
                "id": "00000000-0000-0000-0000-00000000f11e",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps(self.struct),
                "partitionColumns": [self.partition] if self.partition else [],
                "configuration": configuration,
                "createdTime": 0,
            }
        }

    def _add(self, content: Rows, *, data_change: bool = True) -> dict[str, Any]:
        """Write one file, of the rows of one partition."""
        action = super()._add(content, data_change=data_change)
        action["add"]["partitionValues"] = self._partition_of(content)
        return action

    def _remove(self, path: str, *, data_change: bool = True) -> dict[str, Any]:
        content = self.files[path]
        action = super()._remove(path, data_change=data_change)
        action["remove"]["partitionValues"] = self._partition_of(content)
        return action

    def _partition_of(self, content: Rows) -> dict[str, str | None]:
        fields = {item["name"]: item for item in self.struct["fields"]}
        if self.partition is None:
            return {}
        return {physical_name(fields[self.partition]): partition_text(content[0][self.partition])}

    def replace_rows(self, content: Rows) -> None:
        """Write a version with other rows, in a file each."""
        removes = [self._remove(path) for path in list(self.files)]
        self.commit("WRITE", *removes, *(self._add([row]) for row in content))

    def _parquet(self, path: str, content: Any, shape: pa.Schema) -> int:
        fields = [item for item in self.struct["fields"] if item["name"] != self.partition]
        stored = {"type": "struct", "fields": fields}
        schema = pa.schema([_stored_field(item) for item in fields])
        return super()._parquet(path, [_stored(row, stored) for row in content], schema)


def partition_text(value: Any) -> str | None:
    """Return a partition value as the log has it; an empty text is NULL there."""
    match value:
        case None | "":
            return None
        case bool():
            return str(value).lower()
        case float():
            words = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
            return words.get(str(value), repr(value))
        case datetime():
            text = value.replace(tzinfo=None).isoformat(" ", "microseconds")
            return f"{text.replace(' ', 'T')}Z" if value.tzinfo else text
        case Decimal():
            return format(value, "f")
    return str(value)


def physical_name(item: Mapping[str, Any]) -> str:
    """Return the name of a column in files."""
    return str(item["metadata"].get("delta.columnMapping.physicalName", item["name"]))


def _stored_field(item: Mapping[str, Any]) -> pa.Field:
    return pa.field(physical_name(item), _stored_type(item["type"]), item["nullable"])


def _stored_type(kind: Any) -> pa.DataType:
    if isinstance(kind, str):
        column = {"name": "x", "type": kind, "nullable": True, "metadata": {}}
        return to_arrow(parse_schema(json.dumps({"type": "struct", "fields": [column]})))[0].type
    if kind["type"] == "struct":
        return pa.struct([_stored_field(item) for item in kind["fields"]])
    if kind["type"] == "array":
        return pa.list_(pa.field("element", _stored_type(kind["elementType"]), True))
    return pa.map_(pa.string(), _stored_type(kind["valueType"]))


def _stored(value: Any, kind: Any) -> Any:
    if value is None or isinstance(kind, str):
        return value
    if kind["type"] == "struct":
        return {
            physical_name(item): _stored(value[item["name"]], item["type"])
            for item in kind["fields"]
        }
    if kind["type"] == "array":
        return [_stored(item, kind["elementType"]) for item in value]
    return [(key, _stored(item, kind["valueType"])) for key, item in value]

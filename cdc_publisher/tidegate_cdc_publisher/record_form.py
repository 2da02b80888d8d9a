"""How the records of a change topic are written: their format and the types of their values.

`ColumnRules` say which columns the values have, and which are masked or hashed. Keys are not
touched: so a key column is neither left out nor masked nor hashed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final, Literal, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_delta.errors import InvalidRequest
from tidegate_delta.schema.field_paths import same_name
from tidegate_messages.schema_announcement import Column, SchemaStep

MASK: Final = "****"


@dataclass(frozen=True)
class ColumnRules:
    """The columns to include (all, if none are named), to leave out, to mask and to hash.

    Names are compared without their case. Masks and hashes are for text, and keep nulls.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    mask: tuple[str, ...] = ()
    hash: tuple[str, ...] = ()
    salt: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether values have all columns as they are."""
        return not (self.include or self.exclude or self.mask or self.hash)

    def has(self, name: str) -> bool:
        """Return whether values have a column."""
        is_included = not self.include or _in(name, self.include)
        return is_included and not _in(name, self.exclude)

    def schema(self, rows: pa.Schema) -> pa.Schema:
        """Return the columns of values, of a table with the columns `rows`."""
        return pa.schema([field for field in rows if self.has(field.name)])

    def applied(self, rows: pa.Table | pa.RecordBatch) -> pa.Table | pa.RecordBatch:
        """Return rows as values have them."""
        if self.is_empty:
            return rows
        kept = rows.select([name for name in rows.schema.names if self.has(name)])
        for number, name in enumerate(kept.schema.names):
            if _in(name, self.mask) or _in(name, self.hash):
                hidden = self._hidden(name, kept.column(number))
                kept = kept.set_column(number, kept.schema.field(number), hidden)
        return kept

    def visible(self, columns: Sequence[Column]) -> tuple[Column, ...]:
        """Return those of a table's columns that values have; one that they did not have is new."""
        return tuple(
            column
            if column.before is None or self.has(column.before)
            else Column(name=column.name, type=column.type)
            for column in columns
            if self.has(column.name)
        )

    def steps(self, steps: Sequence[SchemaStep]) -> tuple[SchemaStep, ...]:
        """Return the changes of a schema without those of columns that values do not have."""
        return tuple(
            step
            for step in steps
            if not step.column
            or self.has(step.column[0])
            or (step.change == "rename" and len(step.column) == 1 and self.has(str(step.after)))
        )

    def check(self, table: str, rows: pa.Schema, keys: Sequence[str] | None) -> None:
        """Refuse rules that leave a value in the open, or a reader without the key.

        Raises: InvalidRequest (`BadColumns`).
        """
        for name in keys or ():
            if not self.has(name) or _in(name, self.mask) or _in(name, self.hash):
                raise bad_columns(
                    f"table {table}: column {name!r} is a key column, and keys hold it as it is: "
                    "it can be neither left out nor masked nor hashed; choose other key columns"
                )
        for field in rows:
            is_hidden = _in(field.name, self.mask) or _in(field.name, self.hash)
            if is_hidden and self.has(field.name) and not pa.types.is_string(field.type):
                raise bad_columns(
                    f"table {table}: column {field.name!r} has the type {field.type}, and only "
                    "text is masked or hashed; put it into column_exclude_list"
                )

    def _hidden(self, name: str, texts: pa.Array | pa.ChunkedArray) -> pa.Array:
        array = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
        if _in(name, self.mask):
            return pc.if_else(pc.is_null(array), pa.scalar(None, array.type), MASK)
        # Bytes, as Spark writes text that is not UTF-8, too.
        salt = self.salt.encode()
        hashed = [
            None if text is None else sha256(salt + text).hexdigest()
            for text in array.cast(pa.binary()).to_pylist()
        ]
        return pa.array(hashed, array.type)


EVERY_COLUMN: Final = ColumnRules()


def _in(name: str, names: Sequence[str]) -> bool:
    return name.lower() in {listed.lower() for listed in names}


def bad_columns(message: str) -> InvalidRequest:
    """Return the error for columns that values can't have as the settings say."""
    return InvalidRequest(message, error_class="BadColumns")


Format = Literal["json", "json_schema", "avro", "json_schema_registry", "protobuf"]
"""`json` is JSON alone; `json_schema` wraps it as `{"schema":…,"payload":…}` for Kafka Connect. The
schemas of `avro`, `json_schema_registry` and `protobuf` stand in a registry.
"""

REGISTERED: Final = frozenset[Format]({"avro", "json_schema_registry", "protobuf"})


Envelope = Literal["debezium", "flat", "delta"]
"""`debezium` has both images and the source; `flat` is the row with a few fields about the change,
as ExtractNewRecordState makes it; `delta` is a row of Delta's change feed, two for an update.
"""

ADDED_FIELDS: Final[Mapping[Envelope, Mapping[str, str]]] = {
    "debezium": {},
    "flat": {
        "__op": "string",
        "__deleted": "string",
        "__version": "int64",
        "__index": "int64",
        "__commit_ts": "int64",
        "__snapshot": "string",
    },
    "delta": {
        "_change_type": "string",
        "_commit_version": "int64",
        "_commit_timestamp": "string",
    },
}
"""The fields that stand beside the columns of a row, and their Connect types."""


def envelope_of(value: Mapping[str, object]) -> Envelope:
    """Return the envelope that a change's value has, by the fields that it adds."""
    for envelope, added in ADDED_FIELDS.items():
        if added and value.keys() >= added.keys():
            return envelope
    return "debezium"


Types = Literal["iso", "debezium"]
Decimals = Literal["precise", "string", "double"]
Structs = Literal["struct", "json"]


class PayloadEncoder(Protocol):
    """Encodes payloads in formats whose schemas stand in a registry."""

    def encoded(
        self, subject: str, record_format: Format, connect: str, payloads: Iterable[bytes]
    ) -> list[bytes | None]:
        """Return JSON payloads of a Connect schema, each led by the number of its schema.

        Raises: InvalidRequest, Unavailable, Misconfigured, UnsupportedFeature.
        """

    def evolve(self, subject: str, record_format: Format, before: str, after: str) -> None:
        """Register the schema that follows another one, before anything is encoded with it.

        Raises: as `encoded`; InvalidRequest (`SchemaIncompatible`), for one whose readers would
        misread old records, where the registry demands a compatibility.
        """

    def decoded(self, content: bytes) -> bytes:
        """Return a payload that is led by the number of its schema, as JSON.

        Raises: Unavailable, Misconfigured.
        """


@dataclass(frozen=True)
class ValueTypes:
    """How the values of a row are written.

    `decimals` and `structs` have a meaning with Debezium's types only. In `precise` a decimal is
    its unscaled number, in base64. With `structs` of `json` a struct, a map and an array of
    anything nested are texts that hold JSON in ISO types.
    `non_finite` says what becomes of NaN and the infinities. Kafka Connect's JsonConverter reads
    their texts as 0.0 without an error, so they are null in a record with an inline schema.
    """

    types: Types = "iso"
    decimals: Decimals = "string"
    structs: Structs = "struct"
    non_finite: Literal["text", "null"] = "text"


ISO: Final = ValueTypes()
"""The types in which rows are compared and, unless set otherwise, published."""


@dataclass(frozen=True)
class RecordForm:
    """How keys and values of one table's records are written; `cloud_events` adds headers.

    `columns` says which columns values have.
    """

    value_format: Format = "json"
    key_format: Format = "json"
    types: ValueTypes = ISO
    envelope: Envelope = "debezium"
    cloud_events: bool = False
    columns: ColumnRules = EVERY_COLUMN

    @property
    def in_values(self) -> ValueTypes:
        """The types of the images in a record's value."""
        return _in_format(self.types, self.value_format)

    @property
    def in_keys(self) -> ValueTypes:
        """The types of the columns in a record's key."""
        return _in_format(self.types, self.key_format)

    @property
    def has_schema(self) -> bool:
        """Whether keys or values have a schema, in the record or in a registry."""
        return {self.value_format, self.key_format} != {"json"}

    @property
    def is_registered(self) -> bool:
        """Whether a schema of keys or values stands in a registry."""
        return not REGISTERED.isdisjoint({self.value_format, self.key_format})

    @property
    def is_plain(self) -> bool:
        """Whether records hold rows as the texts by which rows are compared."""
        return self.in_values == self.in_keys == ISO and self.columns.is_empty

    def check(self, table: str, rows: pa.Schema, keys: Sequence[str] | None) -> None:
        """Refuse columns that the records of a table can't have in this form.

        A column with the name of a field that the envelope adds would stand twice in a record, of
        which readers keep one; many readers ignore the case of names.
        Raises: InvalidRequest (`BadColumns`).
        """
        self.columns.check(table, rows, keys)
        for name in self.columns.schema(rows).names:
            for added in ADDED_FIELDS[self.envelope]:
                if same_name(name, added):
                    raise bad_columns(
                        f"table {table}: column {name!r} has the name of the field {added!r}, "
                        f"which envelope={self.envelope} adds to each row: leave the column out by "
                        f"cdc.tables.{table}.column_exclude_list, rename it, or set "
                        f"cdc.tables.{table}.envelope to another envelope"
                    )


PLAIN: Final = RecordForm()
"""JSON without a schema, in ISO types."""


def _in_format(types: ValueTypes, record_format: Format) -> ValueTypes:
    return types if record_format == "json" else replace(types, non_finite="null")

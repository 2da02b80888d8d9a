"""Keys and values of records as JSON texts, whatever their format: what is behind this module is
read as JSON. A value may begin with the id of its schema in a registry, as Confluent's serializers
write it: a zero byte, and four bytes of the id.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

import orjson
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import DataType, StructType

from tidegate_delta.errors import InvalidRequest
from tidegate_producers.ingest.json_schema_types import json_schema_types
from tidegate_producers.ingest.settings import OWN_PREFIX
from tidegate_runtime.observability.logs import log_event

_log = logging.getLogger(__name__)

TEXT: Final = f"{OWN_PREFIX}text"
"""A value as JSON text; null where it has none, or can't be read."""

KEY_TEXT: Final = f"{OWN_PREFIX}key_text"
FAULT: Final = f"{OWN_PREFIX}text_fault"
"""Why a value that is there has no text."""

MISSING: Final = f"{OWN_PREFIX}missing"
"""The schemas that must be known to read a record, and are not yet: texts of their ids, with the
index of a message in the schema where one has several.
"""

_HEAD: Final = 6
"""Where the content begins behind the id of a schema, counted from 1."""

_BYTES_MAX: Final = 2**31 - 1
_TO_JSON: Final = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_IS_READ: Final = f"{OWN_PREFIX}is_read"
"""A field that is true in each record that could be read: of others Spark makes one of nulls."""


class Schemas(Protocol):
    """Where schemas are asked for by their ids; None is what there is not.

    Each raises: InvalidRequest, for a schema of another kind, or one that can't be used;
    Unavailable, Misconfigured.
    """

    def avro(self, schema_id: int) -> str | None:
        """Return an Avro schema."""

    def json(self, schema_id: int) -> str | None:
        """Return a JSON Schema."""

    def protobuf(self, schema_id: int) -> tuple[bytes, ...] | None:
        """Return the files of a Protobuf schema, serialized."""


class RecordTexts:
    """Records of JSON, with or without the id of a schema before it."""

    def read(self, records: DataFrame) -> DataFrame:
        """Return records with TEXT, KEY_TEXT, FAULT and MISSING."""
        return records.withColumns(
            {
                TEXT: _content(F.col("value")).cast("string"),
                KEY_TEXT: _content(F.col("key")).cast("string"),
                FAULT: F.lit(None).cast("string"),
                MISSING: F.array().cast("array<string>"),
            }
        )

    def learn(self, names: Iterable[str]) -> bool:
        """Ask for schemas that MISSING names; return whether records must be read again by them."""
        return False

    def read_with_all(self, records: DataFrame) -> DataFrame:
        """Return records as `read` does, with all schemas known that they need."""
        while True:
            read = self.read(records)
            missing = read.select(F.explode(MISSING)).distinct().collect()
            if not self.learn(row[0] for row in missing):
                return read

    def types(self) -> Mapping[str, DataType]:
        """Return the types of fields by name that schemas tell; those of JSON are inferred."""
        return {}


class JsonTexts(RecordTexts):
    """Records of JSON whose ids are those of JSON Schemas, which tell the types of new columns.

    A value is read without its schema: one that is unknown, or can't be used, tells no types.
    `schema_of` returns the schema with an id, as `Schemas.json` does.
    """

    def __init__(self, schema_of: Callable[[int], str | None]) -> None:
        self._schema_of = schema_of
        self._types: dict[int, Mapping[str, DataType]] = {}

    def read(self, records: DataFrame) -> DataFrame:
        """Return records with TEXT, KEY_TEXT, FAULT and MISSING."""
        schema_id = F.when(_has_id(F.col("value")), _id_of(F.col("value")).cast("string"))
        missing = F.array_except(F.array_compact(F.array(schema_id)), _as_array(self._types))
        return super().read(records).withColumn(MISSING, missing)

    def learn(self, names: Iterable[str]) -> bool:
        """Ask for schemas; return False, because no record is read otherwise by them.

        Raises: Unavailable; Misconfigured, for a registry that refuses to answer.
        """
        for schema_id in {*map(int, names)} - self._types.keys():
            try:
                schema = self._schema_of(schema_id)
                self._types[schema_id] = {} if schema is None else json_schema_types(schema)
            except (InvalidRequest, ValueError) as error:
                self._types[schema_id] = {}
                log_event(_log, "types_unknown", schema=schema_id, why=error)
        return False

    def types(self) -> Mapping[str, DataType]:
        """Return the types of the fields of values, by name; newer schemas come behind older."""
        return {
            name: kind for _, types in sorted(self._types.items()) for name, kind in types.items()
        }


class AvroTexts(RecordTexts):
    """Records of Avro: each value is read by the schema whose id it has.

    `schema_of` returns the schema with an id, as `Schemas.avro` does.
    """

    def __init__(self, spark: SparkSession, schema_of: Callable[[int], str | None]) -> None:
        self._spark = spark
        self._schema_of = schema_of
        self._known: dict[int, tuple[str, DataType]] = {}
        self._faults: dict[int, str] = {}

    def read(self, records: DataFrame) -> DataFrame:
        """Return records with TEXT, KEY_TEXT, FAULT and MISSING."""
        value, key = F.col("value"), F.col("key")
        is_avro = _has_id(value)
        is_tombstone = value.isNull()
        reason = F.when(is_tombstone | F.col(TEXT).isNotNull(), F.lit(None).cast("string"))
        reason = reason.when(~is_avro, F.lit("the value does not begin with the id of a schema"))
        for schema_id, fault in self._faults.items():
            reason = reason.when(_id_of(value) == schema_id, F.lit(fault))
        unread = F.lit("the value can't be read by its schema, ")
        reason = reason.otherwise(F.concat(unread, _id_of(value)))
        # Keys are read where nothing else says which row is meant.
        asked = F.array_compact(
            F.array(
                F.when(is_avro, _id_of(value).cast("string")),
                F.when(is_tombstone & _has_id(key), _id_of(key).cast("string")),
            )
        )
        return records.withColumns(
            {
                TEXT: F.when(is_avro, self._text(value)),
                KEY_TEXT: F.when(_has_id(key), self._text(key)).otherwise(key.cast("string")),
                MISSING: F.array_except(asked, _as_array([*self._known, *self._faults])),
            }
        ).withColumn(FAULT, reason)

    def learn(self, names: Iterable[str]) -> bool:
        """Ask for schemas; return whether any of them was not known.

        One that can't be used is the fault of the records that have its id, and of no others.
        Raises: Unavailable; Misconfigured, for a registry that refuses to answer.
        """
        new = sorted({*map(int, names)} - self._known.keys() - self._faults.keys())
        for schema_id in new:
            try:
                schema = self._schema_of(schema_id)
                if schema is None:
                    self._faults[schema_id] = f"the registry has no schema with the id {schema_id}"
                else:
                    self._known[schema_id] = schema, self._type(schema)
            except InvalidRequest as error:
                self._faults[schema_id] = str(error)
            except (PySparkException, Py4JJavaError) as error:
                lines = [line for line in str(error).splitlines() if line.strip()]
                why = next((line for line in lines if line.startswith(": ")), lines[0])
                self._faults[schema_id] = f"Spark can't read the schema {schema_id}: {why}"
        return bool(new)

    def types(self) -> Mapping[str, DataType]:
        """Return the types of the fields of values, by name; newer schemas come behind older."""
        structs = [known[1] for _, known in sorted(self._known.items())]
        return {
            field.name: field.dataType
            for struct in structs
            if isinstance(struct, StructType)
            for field in struct.fields
        }

    def _type(self, schema: str) -> DataType:
        value = _decoded(F.lit(None).cast("binary"), schema)
        frame = self._spark.range(0).select(value.alias("v"))
        return frame.schema["v"].dataType

    def _text(self, column: Column) -> Column:
        text = F.when(F.lit(False), F.lit(None).cast("string"))
        for schema_id, known in self._known.items():
            value = _decoded(_content(column), known[0])
            is_struct = isinstance(known[1], StructType)
            as_text = F.to_json(value, _TO_JSON) if is_struct else value.cast("string")
            text = text.when(_id_of(column) == schema_id, as_text)
        return text


def _decoded(content: Column, schema: str) -> Column:
    """Return values of a schema; null for those that can't be read."""
    written = orjson.loads(schema)
    options = {"mode": "PERMISSIVE"}
    if not isinstance(written, dict) or written.get("type") != "record":
        return from_avro(content, schema, options)
    field = {"name": _IS_READ, "type": "boolean", "default": True}
    evolved = {**written, "fields": [*written["fields"], field]}
    value = from_avro(content, schema, {**options, "avroSchema": orjson.dumps(evolved).decode()})
    return F.when(value[_IS_READ], value.dropFields(_IS_READ))


def _as_array(schema_ids: Iterable[int]) -> Column:
    return F.array(*(F.lit(str(each)) for each in schema_ids)).cast("array<string>")


def _has_id(column: Column) -> Column:
    is_zero = F.substring(column, 1, 1) == F.lit(b"\0")
    return F.coalesce(is_zero & (F.length(column) >= _HEAD - 1), F.lit(False))


def _id_of(column: Column) -> Column:
    return F.conv(F.hex(F.substring(column, 2, 4)), 16, 10).cast("bigint")


def _content(column: Column) -> Column:
    """Return what is behind the id of a schema, if there is one."""
    return F.when(_has_id(column), F.substring(column, _HEAD, _BYTES_MAX)).otherwise(column)

"""Turns Kafka records into rows, each with why it is none, as columns that Spark evaluates."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import orjson
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, DataType, StringType, StructField, StructType

from tidegate_delta.errors import InvalidRequest
from tidegate_producers.ingest.settings import OWN_PREFIX, RECORD_PARTS, Route
from tidegate_producers.table.target_frame import quoted

ROW: Final = f"{OWN_PREFIX}row"
REASON: Final = f"{OWN_PREFIX}reason"
"""Why a record is no row of the table, null where it is one."""

FIELD: Final = f"{OWN_PREFIX}field"
"""The field that is the reason, if it is one."""

UNKNOWN: Final = f"{OWN_PREFIX}unknown"
"""The names of a value's fields for which there is no column."""

KAFKA: Final = "kafka"
"""The struct of a record's other parts, for `where` and `select`."""

SAMPLE_RECORDS: Final = 1_000
"""How many records are looked at to infer a schema."""

IS_IN: Final = f"{OWN_PREFIX}in"
"""Whether a route's condition takes a record, or it could not be decoded."""

_CORRUPT: Final = f"{OWN_PREFIX}corrupt"
_SAYS_MAX: Final = 100
"""The most characters of a value that a reason quotes."""

_JOINED: Final = r"\}\s*\{"


def json_rows(records: DataFrame, fields: StructType, value: Column, *, evolves: bool) -> DataFrame:
    """Return records with ROW, REASON, FIELD and UNKNOWN, from JSON objects in a text column.

    A field that is absent is null. Spark stops at the end of an object, so that what follows it in
    the same value is looked for here.
    """
    parsed = StructType([*fields.fields, StructField(_CORRUPT, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    texts = StructType([StructField(field.name, StringType()) for field in fields.fields])
    text = value.cast("string")
    read = records.withColumn(ROW, F.from_json(text, parsed, options))
    row, as_texts = F.col(ROW), F.from_json(text, texts)
    is_corrupt = row[_CORRUPT].isNotNull()
    wrong = _first(
        F.when(
            as_texts[field.name].isNotNull() & row[field.name].isNull(),
            F.struct(
                F.lit(field.name).alias("field"),
                F.concat(
                    F.lit(f"field {field.name!r} is "),
                    F.substring(as_texts[field.name], 1, _SAYS_MAX),
                    F.lit(f", which is no {field.dataType.simpleString()}"),
                ).alias("reason"),
            ),
        )
        for field in fields.fields
    )
    is_object = F.ltrim(text).startswith("{")
    is_two = (
        text.rlike(_JOINED) & F.json_array_length(F.concat(F.lit("["), text, F.lit("]"))).isNull()
    )
    reason = (
        F.when(value.isNull(), F.lit("the record has no value"))
        .when(~F.is_valid_utf8(text), F.lit("the value is no text in UTF-8"))
        .when(~is_object | row.isNull(), F.lit("the value is no JSON object"))
        .when(is_two, F.lit("the value is more than one JSON object"))
        .when(
            ~F.rtrim(F.translate(text, "\r\n\t", "   ")).endswith("}"),
            F.lit("the value is no JSON: there is something behind it"),
        )
        .when(is_corrupt, F.coalesce(wrong["reason"], F.lit("the value is no JSON")))
    )
    known = F.array(*(F.lit(field.name) for field in fields.fields)).cast("array<string>")
    unknown = F.array_except(F.json_object_keys(text), known) if evolves else F.lit(None)
    return read.withColumns(
        {
            REASON: reason,
            FIELD: F.when(is_corrupt, wrong["field"]),
            UNKNOWN: unknown.cast("array<string>"),
        }
    )


def _first(columns: Iterable[Column]) -> Column:
    """Return the first of some columns that is not null."""
    known = list(columns)
    nothing = F.lit(None).cast("struct<field: string, reason: string>")
    return F.coalesce(*known, nothing)


def record_struct() -> Column:
    """Return the parts of a record as one column, with headers as a map of texts."""
    headers = F.map_from_entries(
        F.transform(
            F.coalesce(F.col("headers"), F.array().cast(RECORD_PARTS["headers"])),
            lambda header: F.struct(
                header["key"].alias("key"), header["value"].cast("string").alias("value")
            ),
        )
    )
    parts = [F.col(name) for name in RECORD_PARTS if name != "headers"]
    return F.struct(*parts, headers.alias("headers"))


@dataclass(frozen=True)
class Selection:
    """What of a decoded value becomes a row: a condition, expressions, and parts of the record."""

    where: str | None
    select: str | None
    parts: Sequence[tuple[str, str]]

    @classmethod
    def of(cls, route: Route) -> "Selection":
        """Return what a route selects."""
        return cls(route.where, route.select, tuple(route.record_columns.items()))

    def rows(self, decoded: DataFrame, kept: Sequence[Column]) -> DataFrame:
        """Return the rows with IS_IN, REASON, FIELD and UNKNOWN, and the columns `kept` of records.

        Rows for which the condition is not true stay, with IS_IN false: their offsets count.
        Raises: Spark's errors, for an expression that it refuses.
        """
        fields = decoded.schema[ROW].dataType
        assert isinstance(fields, StructType), "a row is a struct"
        names = [field.name for field in fields.fields if field.name != _CORRUPT]
        parts = [F.col(part).alias(name) for part, name in self.parts]
        beside = [F.col(name) for name in (REASON, FIELD, UNKNOWN)]
        values = [F.col(ROW)[name].alias(name) for name in names]
        if self.where is None and self.select is None:
            return decoded.select(*values, *parts, *beside, F.lit(True).alias(IS_IN), *kept)
        in_parts = [F.col(part).alias(f"{OWN_PREFIX}part_{part}") for part, _ in self.parts]
        values = [value for name, value in zip(names, values, strict=True) if name != KAFKA]
        named = [f"{OWN_PREFIX}kept_{number}" for number in range(len(kept))]
        kept_as = [column.alias(name) for column, name in zip(kept, named, strict=True)]
        outside = decoded.select(*kept).columns
        rows = decoded.select(*values, record_struct().alias(KAFKA), *in_parts, *beside, *kept_as)
        is_in = f"coalesce({self.where}, false)" if self.where is not None else "true"
        selected = self.select or ", ".join(quoted(name) for name in names if name != KAFKA)
        tail = [f"{OWN_PREFIX}part_{part} AS {quoted(name)}" for part, name in self.parts]
        tail += [REASON, FIELD, UNKNOWN, f"{REASON} IS NOT NULL OR ({is_in}) AS {IS_IN}"]
        tail += [f"{name} AS {quoted(out)}" for name, out in zip(named, outside, strict=True)]
        return _select(rows, ", ".join([selected, *tail]))


def _select(frame: DataFrame, expressions: str) -> DataFrame:
    view = f"{OWN_PREFIX}ingested"
    frame.createOrReplaceTempView(view)
    return frame.sparkSession.sql(f"SELECT {expressions} FROM {view}")


def inferred(spark: SparkSession, values: Sequence[bytes]) -> StructType:
    """Return the schema that Spark infers from JSON values.

    Raises: InvalidRequest, if none of them is a JSON object.
    """
    objects = [text for text in map(_object, values) if text is not None]
    if not objects:
        raise InvalidRequest(
            f"none of {len(values)} records is a JSON object, so that no schema could be inferred: "
            "give value_schema, or the format that the topic has; nothing was committed",
            error_class="DELTA_SCHEMA_NOT_PROVIDED",
        )
    array = F.lit(f"[{','.join(objects)}]")
    [ddl] = spark.range(1).select(F.schema_of_json(array)).head() or [""]
    array_type = type_of(ddl)
    assert isinstance(array_type, ArrayType), "an array was given"
    assert isinstance(array_type.elementType, StructType), "of objects"
    return array_type.elementType


def columns_of(ddl: str) -> StructType:
    """Return the columns that DDL names. Raises: Spark's ParseException."""
    columns = StructType.fromDDL(ddl)
    assert isinstance(columns, StructType), "DDL of columns"
    return columns


def type_of(sql: str) -> DataType:
    """Return the type that Spark's SQL gives a name. Raises: Spark's ParseException."""
    kind: DataType = columns_of(f"v {sql}").fields[0].dataType
    return kind


def _object(value: bytes) -> str | None:
    try:
        return value.decode() if isinstance(orjson.loads(value), dict) else None
    except ValueError:
        return None

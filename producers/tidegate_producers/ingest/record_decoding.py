"""Turns Kafka records into rows, each with why it is none, as columns that Spark evaluates."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import orjson
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from tidegate_delta.errors import InvalidRequest
from tidegate_delta.schema.field_paths import ELEMENT, ILLEGAL_SIGNS, VALUE, field_paths
from tidegate_messages.schema_announcement import GAP, MARKER
from tidegate_producers.datasource.spark_schema import from_spark
from tidegate_producers.ingest.record_texts import FAULT, KEY_TEXT, TEXT
from tidegate_producers.ingest.settings import OWN_PREFIX, RECORD_PARTS, Route
from tidegate_producers.ingest.unavailable_values import REASON_OF_PLACEHOLDER, is_unavailable
from tidegate_producers.table.target_frame import quoted

ROW: Final = f"{OWN_PREFIX}row"
DELETED: Final = f"{OWN_PREFIX}deleted"
"""Whether a record deletes the row of its key."""

REASON: Final = f"{OWN_PREFIX}reason"
"""Why a record is no row of the table, null where it is one."""

FIELD: Final = f"{OWN_PREFIX}field"
"""The field that is the reason, if it is one."""

UNKNOWN: Final = f"{OWN_PREFIX}unknown"
"""The paths of a value's fields for which there is no column, their steps joined by STEP."""

STEP: Final = "\1"
"""What is between the names of a path in UNKNOWN: names may have dots."""

EVOLVING: Final = f"{OWN_PREFIX}evolving"
"""The JSON object of a row that may change the table's columns."""

IS_IN: Final = f"{OWN_PREFIX}in"
"""Whether a record is for the table: a route's condition takes it, or it could not be decoded. The
markers of our change streams are for none.
"""

KAFKA: Final = "kafka"
"""The struct of a record's other parts, for `where` and `select`."""

SAMPLE_RECORDS: Final = 1_000
"""How many records are looked at to infer a schema."""

_IS_MARKER: Final = f"{OWN_PREFIX}marker"
_CORRUPT: Final = f"{OWN_PREFIX}corrupt"
_READ: Final = f"{OWN_PREFIX}read"
_TEXTS: Final = f"{OWN_PREFIX}texts"
_SAYS_MAX: Final = 100
"""The most characters of a value that a reason quotes."""

_ZONE: Final = r"(Z|[+-][0-9]{2}:[0-9]{2})$"
"""The zone behind a date, as Debezium writes ISO texts; Spark reads dates without one."""

_MISNAMED: Final = (
    ": without column mapping none has a sign of ' ,;{}()=', a tab or a line break, and none "
    f"begins with {OWN_PREFIX}. Set delta.columnMapping.mode to name on the table, choose and "
    "rename fields by select, or leave those without a column out by ignore"
)
_JOINED: Final = r"\}\s*\{"
_DIGITS: Final = r"^[+-]?[0-9]+$"
_TEMPORAL: Final = (DateType, TimestampType, TimestampNTZType)
_FAULT_TYPE: Final = "struct<field: string, reason: string>"


@dataclass(frozen=True)
class JsonValues:
    """How the JSON texts of a route are read: the columns that come from them, and their form.

    A number is no date and no timestamp: its unit would be guessed. `takes_any_name` says that the
    table may have new columns of any name.
    """

    fields: StructType
    route: Route
    takes_any_name: bool = False

    @property
    def _texts(self) -> StructType:
        return StructType([StructField(field.name, StringType()) for field in self.fields.fields])

    @property
    def _read(self) -> StructType:
        """The columns as Spark reads them: texts for dates and timestamps."""
        return StructType(
            [
                StructField(
                    field.name,
                    StringType() if isinstance(field.dataType, _TEMPORAL) else field.dataType,
                )
                for field in self.fields.fields
            ]
        )

    def decoded(self, records: DataFrame) -> DataFrame:
        """Return records, which have their texts, with ROW, DELETED, REASON, FIELD and UNKNOWN.

        A field that is absent is null. Spark stops at the end of an object, so that what follows
        it in the same value is looked for here.
        """
        text = F.col(TEXT)
        whole = self._whole(self._read)
        parsed = StructType([*whole.fields, StructField(_CORRUPT, StringType())])
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
        read = records.withColumn(_READ, F.from_json(text, parsed, options))
        row = self._row(F.col(_READ))
        values = {field.name: _typed(row, field) for field in self.fields.fields}
        is_corrupt = F.col(_READ)[_CORRUPT].isNotNull()
        is_temporal = [
            row[field.name].isNotNull() & values[field.name].isNull()
            for field in self.fields.fields
            if isinstance(field.dataType, _TEMPORAL)
        ]
        is_misfit = is_corrupt
        for each in is_temporal:
            is_misfit = is_misfit | each
        # A column of its own: the expressions that use it are compiled, and this one can't be.
        texts = F.when(is_misfit, F.from_json(text, self._whole(self._texts)))
        read = read.withColumn(_TEXTS, texts)
        text_row = self._row(F.col(_TEXTS))
        wrong = _first(
            self._misfit(field, text_row[field.name], values[field.name])
            for field in self.fields.fields
        )
        is_tombstone = F.col("value").isNull()
        unknown = self._unknown(text).cast("array<string>")
        keys = dict(self._key_values()) if self.route.mode == "upsert" else {}
        result = [
            F.when(is_tombstone, keys[name]).otherwise(value).alias(name)
            if name in keys
            else value.alias(name)
            for name, value in values.items()
        ]
        mark, deleted = _mark(), self._deleted(values, is_tombstone)
        missing = F.when(~deleted, self._unavailable(values))
        reason = (
            self._reason(text, mark, is_corrupt)
            .when(is_misfit, F.coalesce(wrong["reason"], F.lit("the value is no JSON")))
            .when(missing.isNotNull(), missing["reason"])
        )
        if self.route.schema_evolution != "ignore" and self.route.select is None:
            reason = self._with_strangers(reason, unknown)
        return read.withColumns(
            {
                ROW: F.struct(*result),
                DELETED: deleted,
                REASON: reason,
                FIELD: F.when(is_misfit & ~is_tombstone, wrong["field"]).otherwise(
                    missing["field"]
                ),
                UNKNOWN: unknown,
                _IS_MARKER: mark.isNotNull() & (mark != GAP),
            }
        ).drop(_READ, _TEXTS)

    def _whole(self, row: StructType) -> StructType:
        """Return what a value holds of which a row is a part."""
        if self.route.envelope != "debezium":
            return row
        parts = [StructField("before", row), StructField("after", row)]
        envelope = StructType([*parts, StructField("op", StringType())])
        return StructType([*envelope.fields, StructField("payload", envelope)])

    def _row(self, read: Column) -> Column:
        """Return the row in a value that was read: of an envelope, the one that it leaves or takes.

        Kafka Connect puts an envelope with its schema into `payload`.
        """
        if self.route.envelope != "debezium":
            return read
        before = F.coalesce(read["payload"]["before"], read["before"])
        return F.when(_op(read) == "d", before).otherwise(
            F.coalesce(read["payload"]["after"], read["after"])
        )

    def _deleted(self, values: dict[str, Column], is_tombstone: Column) -> Column:
        route = self.route
        if route.mode != "upsert":
            return F.lit(False)
        flag = F.lit(False)
        if route.envelope == "debezium":
            flag = _op(F.col(_READ)) == "d"
        elif route.delete_name is not None:
            flag = values[route.delete_name].try_cast("boolean")
        return is_tombstone | F.coalesce(flag, F.lit(False))

    def _unavailable(self, values: Mapping[str, Column]) -> Column:
        """Return the fault of the first value that Debezium does not have."""
        if self.route.envelope == "none":
            return _first(())
        return _first(
            F.when(
                is_unavailable(values[field.name], field.dataType),
                _fault(field, F.lit(f"field {field.name!r} {REASON_OF_PLACEHOLDER}")),
            )
            for field in self.fields.fields
        )

    def _misfit(self, field: StructField, text: Column, value: Column) -> Column:
        """Return the fault of a value whose text is none of its column's type."""
        is_wrong = text.isNotNull() & value.isNull()
        reason = F.concat(
            F.lit(f"field {field.name!r} is "),
            F.substring(text, 1, _SAYS_MAX),
            F.lit(f", which is no {field.dataType.simpleString()}"),
        )
        if self.route.envelope != "none":
            missing = F.lit(f"field {field.name!r} {REASON_OF_PLACEHOLDER}")
            reason = F.when(is_unavailable(text, StringType()), missing).otherwise(reason)
        return F.when(is_wrong, _fault(field, reason))

    def _reason(self, text: Column, mark: Column, is_corrupt: Column) -> Column:
        """Return why a value is none, as far as that is not a field's fault."""
        value = F.col("value")
        is_object = text.startswith("{") | F.ltrim(text).startswith("{")
        trimmed = F.rtrim(F.translate(text, "\r\n\t", "   "))
        is_closed = text.endswith("}") | trimmed.endswith("}")
        array = F.concat(F.lit("["), text, F.lit("]"))
        is_two = text.rlike(_JOINED) & F.json_array_length(array).isNull()
        gap = "the change stream lacks versions here: begin a new table from its snapshot"
        first = F.when(mark == GAP, F.lit(gap)).when(mark.isNotNull(), F.lit(None).cast("string"))
        if self.route.mode == "upsert":
            # A tombstone needs its key alone.
            first = first.when(value.isNull(), F.lit(None).cast("string"))
        else:
            none = "the record has no value: by --mode upsert it would delete the row of its key"
            first = first.when(value.isNull(), F.lit(none))
        reason = (
            first.when(F.col(FAULT).isNotNull(), F.col(FAULT))
            .when(~F.is_valid_utf8(text), F.lit("the value is no text in UTF-8"))
            .when(~is_object, F.lit("the value is no JSON object"))
            .when(is_two, F.lit("the value is more than one JSON object"))
            .when(~is_closed, F.lit("the value is no JSON: it does not end with its object"))
        )
        if self.route.envelope == "debezium":
            op = _op(F.col(_READ))
            known = op.isin("c", "r", "u", "d")
            no_op = "the value is no envelope of Debezium's: it has no op of c, r, u or d"
            reason = reason.when(~is_corrupt & ~F.coalesce(known, F.lit(False)), F.lit(no_op))
        return reason

    def _unknown(self, text: Column) -> Column:
        route = self.route
        if route.schema_evolution == "ignore" or route.select is not None:
            return F.lit(None)
        return _paths_without_field(row_text(text, route), self.fields, route.fields_of_envelope)

    def _with_strangers(self, reason: Column, unknown: Column) -> Column:
        """Add to the reasons fields without a column where none is added, those that differ from a
        column in upper and lower case alone, which would make two columns of one name, and those
        whose name no column can have.
        """
        known = [STEP.join(path).lower() for path, _ in field_paths(from_spark(self.fields))]
        names = F.translate(F.array_join(unknown, ", "), STEP, ".")
        lower = F.split(F.lower(F.array_join(unknown, "\0")), "\0")
        columns = F.array(*map(F.lit, known)).cast("array<string>")
        is_case = (F.size(unknown) > 0) & F.arrays_overlap(lower, columns)
        text = " are not as the table's columns are, in upper and lower case"
        reason = reason.when(is_case, F.concat(F.lit("fields among "), names, F.lit(text)))
        if self.route.schema_evolution == "fail":
            none = F.concat(F.lit("there is no column for "), names)
            return reason.when(F.size(unknown) > 0, none)
        misnamed = F.concat(F.lit("no column can have a name among "), names, F.lit(_MISNAMED))
        return reason.when(F.exists(unknown, self._is_misnamed), misnamed)

    def _is_misnamed(self, path: Column) -> Column:
        """Return whether no column, or field inside one, can be made for a path of UNKNOWN."""
        name = F.element_at(F.split(path, STEP), -1)
        is_misnamed = (name == "") | path.startswith(OWN_PREFIX)
        return is_misnamed if self.takes_any_name else is_misnamed | name.rlike(ILLEGAL_SIGNS)

    def _key_values(self) -> Iterator[tuple[str, Column]]:
        """Yield the key's columns as a record's own key gives them: a JSON object, with or without
        its schema, or the plain value where the key is one column.
        """
        fields = [field for field in self.fields.fields if field.name in self.route.key]
        key = F.col(KEY_TEXT)
        texts = StructType([StructField(field.name, StringType()) for field in fields])
        plain = F.from_json(key, texts)
        wrapped = F.from_json(key, StructType([StructField("payload", texts)]))["payload"]
        for field in fields:
            found = [plain[field.name], wrapped[field.name]]
            if len(fields) == 1:
                found.append(F.when(~F.ltrim(key).startswith("{"), F.btrim(key, F.lit('"'))))
            yield field.name, F.coalesce(*found).try_cast(field.dataType)


def _paths_without_field(text: Column, kind: DataType, beside: Sequence[str] = ()) -> Column:
    """Return the paths of fields in a JSON text for which a type has none, at any depth, or null
    where the text is none of the type. `beside` are further fields that it may have.
    """
    if isinstance(kind, StructType):
        known = F.array(*map(F.lit, [*kind.names, *beside])).cast("array<string>")
        paths = F.array_except(F.json_object_keys(text), known)
        nested = [field for field in kind.fields if _has_fields(field.dataType)]
        if not nested:
            return paths
        parts = StructType([StructField(field.name, StringType()) for field in nested])
        read = F.from_json(text, parts)
        inside = [
            (field, _paths_without_field(read[field.name], field.dataType)) for field in nested
        ]
        return F.concat(paths, *(_under(field.name, found) for field, found in inside))
    if isinstance(kind, ArrayType):
        step, inner, items = ELEMENT, kind.elementType, F.from_json(text, "array<string>")
    else:
        assert isinstance(kind, MapType), "it has fields inside"
        entries = F.from_json(text, "map<string,string>")
        step, inner, items = VALUE, kind.valueType, F.map_values(entries)
    each = F.transform(items, lambda item: F.coalesce(_paths_without_field(item, inner), F.array()))
    return _under(step, F.array_distinct(F.flatten(each)))


def _under(step: str, paths: Column) -> Column:
    """Return paths below a step; none where there are none."""
    below = F.transform(paths, lambda path: F.concat(F.lit(f"{step}{STEP}"), path))
    return F.coalesce(below, F.array().cast("array<string>"))


def _has_fields(kind: DataType) -> bool:
    """Return whether a type has structs inside, of which texts of JSON may have further fields."""
    match kind:
        case ArrayType():
            return _has_fields(kind.elementType)
        case MapType():
            return _has_fields(kind.valueType)
        case _:
            return isinstance(kind, StructType)


def _mark() -> Column:
    """Return what a marker of a change stream of ours says; null for every other record."""
    keys, values = F.col("headers")["key"], F.col("headers")["value"]
    is_marker = F.array_contains(keys, MARKER) & F.array_contains(keys, "delta_version")
    at = F.array_position(keys, F.lit(MARKER)).cast("int")
    mark = F.try_element_at(values, at).cast("string")
    return F.when(F.col("value").isNull() & is_marker, mark)


def _op(read: Column) -> Column:
    return F.coalesce(read["payload"]["op"], read["op"])


def _typed(row: Column, field: StructField) -> Column:
    value = row[field.name]
    if not isinstance(field.dataType, _TEMPORAL):
        return value
    text = F.regexp_replace(value, _ZONE, "") if isinstance(field.dataType, DateType) else value
    return F.when(~value.rlike(_DIGITS), text.try_cast(field.dataType))


def _fault(field: StructField, reason: Column) -> Column:
    return F.struct(F.lit(field.name).alias("field"), reason.alias("reason"))


def _first(columns: Iterable[Column]) -> Column:
    """Return the first of some columns that is not null."""
    return F.coalesce(*columns, F.lit(None).cast(_FAULT_TYPE))


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
        names = fields.names
        parts = [F.col(part).alias(name) for part, name in self.parts]
        beside = [F.col(name) for name in (DELETED, REASON, FIELD, UNKNOWN)]
        values = [F.col(ROW)[name].alias(name) for name in names]
        if self.where is None and self.select is None:
            beside.append((~F.col(_IS_MARKER)).alias(IS_IN))
            return decoded.select(*values, *parts, *beside, *kept)
        in_parts = [F.col(part).alias(f"{OWN_PREFIX}part_{part}") for part, _ in self.parts]
        values = [value for name, value in zip(names, values, strict=True) if name != KAFKA]
        named = [f"{OWN_PREFIX}kept_{number}" for number in range(len(kept))]
        kept_as = [column.alias(name) for column, name in zip(kept, named, strict=True)]
        outside = decoded.select(*kept).columns
        beside.append(F.col(_IS_MARKER))
        rows = decoded.select(*values, record_struct().alias(KAFKA), *in_parts, *beside, *kept_as)
        is_in = f"coalesce({self.where}, false)" if self.where is not None else "true"
        selected = self.select or ", ".join(quoted(name) for name in names if name != KAFKA)
        tail = [f"{OWN_PREFIX}part_{part} AS {quoted(name)}" for part, name in self.parts]
        is_in = f"NOT {_IS_MARKER} AND ({REASON} IS NOT NULL OR ({is_in}))"
        tail += [DELETED, REASON, FIELD, UNKNOWN, f"{is_in} AS {IS_IN}"]
        tail += [f"{name} AS {quoted(out)}" for name, out in zip(named, outside, strict=True)]
        return _select(rows, ", ".join([selected, *tail]))


def _select(frame: DataFrame, expressions: str) -> DataFrame:
    # No view of a name of ours: on Spark Connect it is looked up when the rows are read, and may be
    # another route's by then.
    text = expressions.replace("{", "{{").replace("}", "}}")
    return frame.sparkSession.sql(f"SELECT {text} FROM {{rows}}", rows=frame)


def row_text(text: Column, route: Route) -> Column:
    """Return the JSON object in a value that becomes the row."""
    if route.envelope != "debezium":
        return text
    return F.coalesce(*(F.get_json_object(text, path) for path in ("$.payload.after", "$.after")))


def row_types(types: Mapping[str, DataType], route: Route) -> Mapping[str, DataType]:
    """Return the types of a row's fields in those of a value's."""
    if route.envelope != "debezium":
        return types
    row = types.get("after")
    return {f.name: f.dataType for f in row.fields} if isinstance(row, StructType) else {}


def columns_of_sample(
    records: DataFrame, route: Route, types: Mapping[str, DataType]
) -> StructType | None:
    """Return the columns of rows in records with texts: as their schemas tell, and as Spark infers
    others from some; None if there are no rows.

    Raises: InvalidRequest, if none of the values is a JSON object.
    """
    text = row_text(F.col(TEXT), route).alias("text")
    sample = records.select(text).where("text IS NOT NULL").limit(SAMPLE_RECORDS).collect()
    if not sample:
        return None
    typed = dict(row_types(types, route))
    values = [row["text"].encode() for row in sample]
    if not typed or _names(values) - typed.keys():
        columns = inferred(records.sparkSession, values)
        others = {field.name: field.dataType for field in columns.fields}
        typed |= {name: kind for name, kind in others.items() if name not in typed}
    return StructType(
        [
            StructField(name, kind)
            for name, kind in typed.items()
            if name not in route.fields_of_envelope
        ]
    )


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


def _names(values: Sequence[bytes]) -> set[str]:
    """Return the names of the fields that JSON values have."""
    return {name for text in map(_object, values) if text for name in orjson.loads(text)}


def _object(value: bytes) -> str | None:
    try:
        return value.decode() if isinstance(orjson.loads(value), dict) else None
    except ValueError:
        return None

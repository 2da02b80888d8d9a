"""Turns a SQL condition into a predicate tree over the table's columns.

`predicate_of` refuses what the tree can't hold. `wider_predicate_of` refuses nothing: Spark decides
which rows match, and the tree only says which files and which rows of others may matter.

Time zones have the names that Spark accepts for a session's time zone.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal, InvalidOperation
from struct import pack, unpack
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from tidegate_delta.data_skipping.predicate_tree import COLLATIONS, Predicate
from tidegate_delta.errors import InvalidRequest, UnsupportedFeature
from tidegate_delta.schema import partition_values
from tidegate_delta.schema.char_varchar import limits
from tidegate_delta.schema.field_paths import same_name
from tidegate_delta.schema.partition_values import names_zone, parse, serialize
from tidegate_delta.schema.types import (
    DATE,
    FLOAT,
    STRING,
    TIMESTAMP,
    DataType,
    DecimalType,
    PrimitiveType,
    StructField,
    StructType,
    sql_name,
)
from tidegate_runtime.conditions.sql_expression import parse_expression

_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?")


def zone_of(name: str) -> tzinfo:
    """Return the time zone of a region name or UTC offset. Raises: InvalidRequest."""
    if name.upper() in ("Z", "UTC", "GMT", "UT"):
        name = "+00"
    match = _OFFSET.fullmatch(name)
    try:
        if match is None:
            return ZoneInfo(name)
        hours, minutes, seconds = (int(part or 0) for part in match.groups()[1:])
        away = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        return timezone(-away if match[1] == "-" else away)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidRequest(
            f"the session's time zone {name!r} is not known to this machine: name the zone in the "
            "timestamps that you compare with, as in '2013-01-01 10:00:00Z'",
            error_class="INVALID_TIMEZONE",
        ) from error


def in_zone(text: str, zone: str) -> str:
    """Return a timestamp's text unchanged if it names a zone, else converted from `zone` to UTC.

    Text that is no timestamp is returned unchanged; the reader refuses it.
    Raises: InvalidRequest, for an unknown zone.
    """
    try:
        timestamp = None if names_zone(text) else parse(text, TIMESTAMP)
        if timestamp is None:
            return text
        return serialize(timestamp.replace(tzinfo=zone_of(zone)), TIMESTAMP) or text
    except ValueError:
        return text


_COMPARISONS: Final[Mapping[type[exp.Expr], str]] = {
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
}
_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_WHOLE: Final = frozenset({"byte", "short", "integer", "long"})
_FLOATING: Final = frozenset({"float", "double"})
_TEMPORAL: Final = frozenset({"date", "timestamp", "timestamp_ntz"})
_DAY: Final = re.compile(r"\d{4}-\d{1,2}-\d{1,2}")
_STYLED: Final = re.compile(r"\x1b\[\d*m")
_NOTHING: Final[Predicate] = {"op": "not", "arg": {"op": "true"}}
_UNKNOWN: Final = object()


@dataclass(frozen=True)
class _Scope:
    """The table's columns, the session's time zone, and the table's alias in the condition."""

    schema: StructType
    zone: str
    alias: str | None = None

    def path(self, names: Sequence[str]) -> Sequence[str]:
        """Return the parts of a column's name without the alias, which goes before a column of its
        name, as in Spark.
        """
        is_qualified = self.alias is not None and len(names) > 1 and same_name(names[0], self.alias)
        if is_qualified and any(same_name(name, names[1]) for name in self.schema.names):
            return names[1:]
        return names


def predicate_of(condition: str, schema: StructType, zone: str = "UTC") -> Predicate:
    """Return the predicate tree of a SQL condition, with column names spelled as in the schema.

    Values take the type of the column with which they are compared; timestamps without a zone are
    in `zone`, the session's, as in Spark.
    Raises: InvalidRequest, for an unknown column or a value that is not of its type;
    UnsupportedFeature, for an expression that the tree can't hold.
    """
    try:
        parsed = parse_expression(condition, schema.names)
    except SqlglotError as error:
        raise InvalidRequest(
            f"the condition {condition!r} is not a SQL expression: {_fault(error)}",
            error_class="PARSE_SYNTAX_ERROR",
        ) from error
    return _node(parsed, _Scope(schema, zone))


def _fault(error: SqlglotError) -> str:
    """Return where a text is no SQL, without the parser's own names."""
    if isinstance(error, ParseError) and error.errors:
        result = error.errors[0]
        return f"correct what begins with {result['highlight']!r}, at character {result['col']}"
    return " ".join(_STYLED.sub("", str(error)).split())


def wider_predicate_of(
    condition: str, schema: StructType, zone: str = "UTC", alias: str | None = None
) -> Predicate:
    """Return a predicate that is true of every row for which a SQL condition is true.

    Parts that the tree can't hold are opaque nodes, which may be true of any row. `alias` is the
    table's in the condition.
    Raises: UnsupportedFeature, for a sub-query: what it reads could not be stated.
    """
    try:
        parsed = parse_expression(condition, schema.names)
    except SqlglotError:
        return _opaque(condition)
    if parsed.find(exp.Query) is not None:
        raise UnsupportedFeature(
            f"the condition {condition!r} holds a sub-query: join the other table with "
            "Table.merge, or collect its values into the condition",
            feature="DELTA_UNSUPPORTED_SUBQUERY",
        )
    return _wider(parsed, _Scope(schema, zone, alias))


def merge_predicate_of(
    condition: str, schema: StructType, source: Sequence[str], alias: str | None, zone: str = "UTC"
) -> Predicate:
    """Return a predicate that is true of every row of a merge's target that may match a source row.

    Only parts that surely name columns of the target say something: those that carry its alias, and
    plain names that the source lacks. Another first part may be the alias of the source.
    Raises: as `wider_predicate_of`.
    """
    wider_predicate_of(condition, schema, zone, alias)
    try:
        parsed = parse_expression(condition, [*schema.names, *source])
    except SqlglotError:
        return _opaque(condition)
    parts = parsed.unnest().flatten() if isinstance(parsed.unnest(), exp.And) else [parsed]
    scope = _Scope(schema, zone, alias)
    predicates = [
        _wider(part, scope) if _is_about_target(part, source, scope) else _opaque(part.sql("spark"))
        for part in parts
    ]
    return {"op": "and", "args": predicates}


def _is_about_target(part: exp.Expr, source: Sequence[str], scope: _Scope) -> bool:
    """Return whether each column in a part of a merge condition surely is the target's."""
    for column in part.find_all(exp.Column):
        names = [name_part.name for name_part in column.parts]
        if len(scope.path(names)) < len(names):
            continue
        if len(names) > 1 or any(same_name(names[0], name) for name in source):
            return False
    return True


def is_row_by_row(expression: str) -> bool:
    """Return whether a SQL expression surely depends on one row alone: no window, no aggregate and
    no sub-query.
    """
    try:
        parsed = sqlglot.parse_one(expression, dialect="spark")
    except SqlglotError:
        return False
    return parsed.find(exp.Window, exp.AggFunc, exp.Query) is None


def _wider(node: exp.Expr, scope: _Scope) -> Predicate:
    match node:
        case exp.Paren():
            return _wider(node.this, scope)
        case exp.And():
            return {"op": "and", "args": [_wider(operand, scope) for operand in node.flatten()]}
        case exp.Or():
            return {"op": "or", "args": [_wider(operand, scope) for operand in node.flatten()]}
        case exp.Not():
            return _negated(_wider(node.this, scope))
    try:
        return _node(node, scope)
    except (InvalidRequest, UnsupportedFeature):
        return _opaque(node.sql("spark"))


def _opaque(text: str) -> Predicate:
    return {"op": "opaque", "columns": [], "text": text}


def _node(node: exp.Expr, scope: _Scope) -> Predicate:
    match node:
        case exp.Paren():
            return _node(node.this, scope)
        case exp.And():
            return {"op": "and", "args": [_node(operand, scope) for operand in node.flatten()]}
        case exp.Or():
            return {"op": "or", "args": [_node(operand, scope) for operand in node.flatten()]}
        case exp.Not():
            return _negated(_node(node.this, scope))
        case exp.Boolean():
            return {"op": "true"} if node.this else _NOTHING
        case exp.Is():
            return _is(node, scope)
        case exp.In():
            return _in(node, scope)
        case exp.Between():
            return _between(node, scope)
        case exp.Column() | exp.Dot():
            return _flag(node, scope)
        case _ if type(node) in _COMPARISONS:
            return _comparison(node, scope)
        case _:
            raise _unsupported(node)


def _negated(inner: Predicate) -> Predicate:
    if inner["op"] == "is_null":
        return {"op": "is_not_null", "column": inner["column"]}
    if inner["op"] == "is_not_null":
        return {"op": "is_null", "column": inner["column"]}
    return {"op": "not", "arg": inner}


def _is(node: exp.Expr, scope: _Scope) -> Predicate:
    path, field = _column(node.this, scope)
    truth = node.expression
    if isinstance(truth, exp.Null):
        return {"op": "is_null", "column": path}
    if isinstance(truth, exp.Boolean) and field.kind == PrimitiveType("boolean"):
        return {"op": "<=>", "column": path, "value": bool(truth.this), "type": "boolean"}
    raise _unsupported(node)


def _in(node: exp.Expr, scope: _Scope) -> Predicate:
    if node.args.get("query") is not None or not node.expressions:
        raise _unsupported(node)
    path, field = _column(node.this, scope)
    values = [_value(item, field, node, scope.zone) for item in node.expressions]
    return {"op": "in", "column": path, "values": values, "type": _type(path, field, node, scope)}


def _between(node: exp.Expr, scope: _Scope) -> Predicate:
    if node.args.get("symmetric"):
        raise _unsupported(node)
    path, field = _column(node.this, scope)
    low, high = (_value(node.args[name], field, node, scope.zone) for name in ("low", "high"))
    kind = _type(path, field, node, scope)
    return {
        "op": "and",
        "args": [
            {"op": ">=", "column": path, "value": low, "type": kind},
            {"op": "<=", "column": path, "value": high, "type": kind},
        ],
    }


def _flag(node: exp.Expr, scope: _Scope) -> Predicate:
    path, field = _column(node, scope)
    if field.kind != PrimitiveType("boolean"):
        raise InvalidRequest(
            f"the condition {node.sql('spark')} is a column of type {field.kind}, not a truth "
            "value: compare it with something",
            error_class="DATATYPE_MISMATCH",
        )
    return {"op": "=", "column": path, "value": True, "type": "boolean"}


def _comparison(node: exp.Expr, scope: _Scope) -> Predicate:
    op = _COMPARISONS[type(node)]
    left, right = node.this, node.expression
    if not _is_column(left):
        left, right, op = right, left, _MIRRORED.get(op, op)
    if not _is_column(left) or _is_column(right):
        raise _unsupported(node)
    path, field = _column(left, scope)
    value = _value(right, field, node, scope.zone)
    return {"op": op, "column": path, "value": value, "type": _type(path, field, node, scope)}


def _is_column(node: exp.Expr) -> bool:
    return isinstance(_bare(node), exp.Column | exp.Dot)


def _column(node: exp.Expr, scope: _Scope) -> tuple[list[str], StructField]:
    bare = _bare(node)
    if not isinstance(bare, exp.Column | exp.Dot):
        raise _unsupported(node)
    names = scope.path([part.name for part in bare.parts])
    path: list[str] = []
    kind: DataType = scope.schema
    field: StructField | None = None
    for name in names:
        fields = kind.fields if isinstance(kind, StructType) else ()
        matching = [field for field in fields if field.name.lower() == name.lower()]
        if not matching:
            raise InvalidRequest(
                f"the condition names the column {'.'.join(names)!r}, which does not exist; there "
                f"are {', '.join(field.name for field in fields) or 'no fields below it'}",
                error_class="DELTA_COLUMN_NOT_FOUND",
            )
        field = matching[0]
        path, kind = [*path, field.name], field.kind
    if field is None:
        raise _unsupported(node)
    return path, field


def _type(path: list[str], field: StructField, node: exp.Expr, scope: _Scope) -> str:
    if not isinstance(field.kind, PrimitiveType | DecimalType) or COLLATIONS in field.metadata:
        raise _unsupported(node)
    top = scope.schema.get(path[0])
    limit = limits(top).get(tuple(path[1:])) if top is not None else None
    if limit is not None and limit.is_char:
        # Spark pads both sides of a CHAR comparison with blanks; values in files may lack them.
        raise _unsupported(node)
    return "double" if field.kind == FLOAT else str(field.kind)


def _value(node: exp.Expr, field: StructField, comparison: exp.Expr, zone: str) -> Any:
    """Return a literal in the predicate tree's form for its column's type."""
    cast = _bare(node)
    if isinstance(cast, exp.Cast) and _names_type(cast.to, field.kind):
        try:
            value = _value(cast.this, field, comparison, zone)
            is_float = field.kind == FLOAT and value is not None
            return unpack("<f", pack("<f", value))[0] if is_float else value
        except (InvalidRequest, OverflowError):
            # What Spark makes of it depends on its settings: NULL, an error or a rounded value.
            raise _unsupported(comparison) from None
    literal = _literal(node)
    # Spark would cast a string column to the type of a typed literal.
    is_cast = field.kind == STRING and isinstance(_bare(node), exp.Cast | exp.Date | exp.Timestamp)
    if literal is _UNKNOWN or is_cast:
        raise _unsupported(comparison)
    if literal is None:
        return None
    reader = _reader(field.kind, zone)
    try:
        if reader is None:
            raise ValueError(f"columns of type {field.kind} can't be compared")
        return reader(literal)
    except (ValueError, InvalidOperation, OverflowError) as error:
        raise InvalidRequest(
            f"in {comparison.sql('spark')!r} column {field.name!r} has type {field.kind}, and "
            f"{literal!r} is no value of it; write one that is",
            error_class="DATATYPE_MISMATCH",
        ) from error


def _names_type(given: exp.DataType, kind: DataType) -> bool:
    """Return whether a cast is to a column's own type, whose values it leaves as they are.

    Not for moments, which `_literal` reads.
    """
    if not isinstance(kind, PrimitiveType | DecimalType):
        return False
    if isinstance(kind, PrimitiveType) and kind.name in _TEMPORAL:
        return False
    return bool(given == exp.DataType.build(sql_name(kind), dialect="spark"))


def _literal(node: exp.Expr) -> Any:
    """Return a literal: None, a bool, text, or a Decimal; _UNKNOWN for anything else."""
    match _bare(node):
        case exp.Null():
            return None
        case exp.Boolean() as flag:
            return bool(flag.this)
        case exp.Neg() as negative:
            inner = _literal(negative.this)
            return -inner if isinstance(inner, Decimal) else _UNKNOWN
        case exp.Literal() as plain:
            return str(plain.this) if plain.is_string else Decimal(plain.this)
        case exp.Cast() as typed if typed.to.this in _DATED:
            return _dated(typed.this, is_day=typed.to.this == exp.DataType.Type.DATE)
        case exp.Date() | exp.Timestamp() as typed if isinstance(typed.this, exp.Literal):
            return _dated(typed.this, is_day=isinstance(typed, exp.Date))
        case _:
            return _UNKNOWN


def _dated(node: exp.Expr, *, is_day: bool) -> Any:
    """Return the text of a date or timestamp; _UNKNOWN for a date literal with a time of day."""
    text = _literal(node)
    return text if not is_day or _DAY.fullmatch(str(text)) else _UNKNOWN


_DATED: Final = frozenset(
    {
        exp.DataType.Type.DATE,
        exp.DataType.Type.TIMESTAMP,
        exp.DataType.Type.TIMESTAMPTZ,
        exp.DataType.Type.TIMESTAMPLTZ,
        exp.DataType.Type.TIMESTAMPNTZ,
    }
)


def _bare(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _reader(kind: DataType, zone: str) -> Callable[[Any], Any] | None:
    if isinstance(kind, DecimalType):
        return lambda value: str(partition_values.parse(str(_number(value)), kind))
    if not isinstance(kind, PrimitiveType):
        return None
    if kind.name in _WHOLE:
        return lambda value: partition_values.parse(str(_integer(value)), kind)
    if kind.name in _FLOATING:
        return lambda value: float(_number(value))
    if kind.name in _TEMPORAL:
        return lambda value: _moment(value, kind, zone)
    return {"string": _text, "boolean": _truth}.get(kind.name)


def _number(value: Any) -> Decimal:
    if isinstance(value, bool) or "_" in str(value) or not Decimal(value).is_finite():
        raise ValueError(f"{value!r} is no number")
    return Decimal(value)


def _integer(value: Any) -> int:
    number = _number(value)
    if number != number.to_integral_value():
        raise ValueError(f"{value} is no whole number")
    return int(number)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not in quotes")
    return value


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is neither true nor false")
    return value


def _moment(value: Any, kind: PrimitiveType, zone: str) -> str | None:
    text = _text(value)
    timestamp: datetime | None = partition_values.parse(text, TIMESTAMP)
    names_zone = partition_values.names_zone(text)
    if timestamp is None or (kind == DATE and timestamp.time() != time.min):
        raise ValueError(f"{value!r} is no {kind}")
    if kind == TIMESTAMP:
        return partition_values.serialize(
            timestamp if names_zone else timestamp.replace(tzinfo=zone_of(zone)), kind
        )
    if names_zone:
        raise ValueError(f"{value!r} names a time zone")
    return partition_values.serialize(partition_values.parse(text, kind), kind)


def _unsupported(node: exp.Expr) -> UnsupportedFeature:
    return UnsupportedFeature(
        f"the condition holds {node.sql('spark')!r}, which this release can't decide exactly: use "
        "comparisons of a column with a value, IN, BETWEEN, IS NULL, AND, OR and NOT",
        feature=type(node).__name__,
        error_class="DELTA_UNSUPPORTED_EXPRESSION",
    )

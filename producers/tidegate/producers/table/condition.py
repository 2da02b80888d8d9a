"""A condition in SQL becomes a predicate tree over the table's columns.

What the tree can't say is refused by name: a delete must know exactly which rows it means.
"""

import re
from collections.abc import Callable, Mapping
from datetime import datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from tidegate.delta.errors import InvalidRequest, UnsupportedFeature
from tidegate.delta.files.grammar import Predicate
from tidegate.delta.schema import partitions
from tidegate.delta.schema.types import (
    DATE,
    FLOAT,
    TIMESTAMP,
    DataType,
    DecimalType,
    PrimitiveType,
    StructField,
    StructType,
)

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
_STYLED: Final = re.compile(r"\x1b\[\d*m")
_NOTHING: Final[Predicate] = {"op": "not", "arg": {"op": "true"}}
_UNKNOWN: Final = object()


def predicate_of(condition: str, schema: StructType) -> Predicate:
    """Return the predicate tree of a SQL condition, with the columns as the schema spells them.

    Values take the type of the column that they are compared with; timestamps without a zone are
    UTC.
    Raises: InvalidRequest for a column that is not there or a value that does not fit;
    UnsupportedFeature for an expression that the tree can't say.
    """
    try:
        parsed = sqlglot.parse_one(condition, dialect="spark")
    except SqlglotError as error:
        first = " ".join(_STYLED.sub("", str(error)).split())
        raise InvalidRequest(
            f"the condition {condition!r} is no SQL expression: {first}",
            error_class="PARSE_SYNTAX_ERROR",
        ) from error
    return _node(parsed, schema)


def _node(node: exp.Expr, schema: StructType) -> Predicate:
    match node:
        case exp.Paren():
            return _node(node.this, schema)
        case exp.And():
            return {"op": "and", "args": [_node(one, schema) for one in node.flatten()]}
        case exp.Or():
            return {"op": "or", "args": [_node(one, schema) for one in node.flatten()]}
        case exp.Not():
            return _negated(_node(node.this, schema))
        case exp.Boolean():
            return {"op": "true"} if node.this else _NOTHING
        case exp.Is():
            return _is(node, schema)
        case exp.In():
            return _in(node, schema)
        case exp.Between():
            return _between(node, schema)
        case exp.Column() | exp.Dot():
            return _flag(node, schema)
        case _ if type(node) in _COMPARISONS:
            return _comparison(node, schema)
        case _:
            raise _unsupported(node)


def _negated(inner: Predicate) -> Predicate:
    if inner["op"] == "is_null":
        return {"op": "is_not_null", "column": inner["column"]}
    if inner["op"] == "is_not_null":
        return {"op": "is_null", "column": inner["column"]}
    return {"op": "not", "arg": inner}


def _is(node: exp.Expr, schema: StructType) -> Predicate:
    path, one = _column(node.this, schema)
    what = node.expression
    if isinstance(what, exp.Null):
        return {"op": "is_null", "column": path}
    if isinstance(what, exp.Boolean) and one.kind == PrimitiveType("boolean"):
        return {"op": "<=>", "column": path, "value": bool(what.this), "type": "boolean"}
    raise _unsupported(node)


def _in(node: exp.Expr, schema: StructType) -> Predicate:
    if node.args.get("query") is not None or not node.expressions:
        raise _unsupported(node)
    path, one = _column(node.this, schema)
    values = [_value(item, one, node) for item in node.expressions]
    return {"op": "in", "column": path, "values": values, "type": _type(one, node)}


def _between(node: exp.Expr, schema: StructType) -> Predicate:
    if node.args.get("symmetric"):
        raise _unsupported(node)
    path, one = _column(node.this, schema)
    low, high = (_value(node.args[name], one, node) for name in ("low", "high"))
    kind = _type(one, node)
    return {
        "op": "and",
        "args": [
            {"op": ">=", "column": path, "value": low, "type": kind},
            {"op": "<=", "column": path, "value": high, "type": kind},
        ],
    }


def _flag(node: exp.Expr, schema: StructType) -> Predicate:
    path, one = _column(node, schema)
    if one.kind != PrimitiveType("boolean"):
        raise InvalidRequest(
            f"the condition {node.sql('spark')} is a column of type {one.kind}, not a truth value: "
            "compare it with something",
            error_class="DATATYPE_MISMATCH",
        )
    return {"op": "=", "column": path, "value": True, "type": "boolean"}


def _comparison(node: exp.Expr, schema: StructType) -> Predicate:
    op = _COMPARISONS[type(node)]
    left, right = node.this, node.expression
    if not _is_column(left):
        left, right, op = right, left, _MIRRORED.get(op, op)
    if not _is_column(left) or _is_column(right):
        raise _unsupported(node)
    path, one = _column(left, schema)
    value = _value(right, one, node)
    return {"op": op, "column": path, "value": value, "type": _type(one, node)}


def _is_column(node: exp.Expr) -> bool:
    return isinstance(_bare(node), exp.Column | exp.Dot)


def _column(node: exp.Expr, schema: StructType) -> tuple[list[str], StructField]:
    bare = _bare(node)
    if not isinstance(bare, exp.Column | exp.Dot):
        raise _unsupported(node)
    names = [part.name for part in bare.parts]
    path: list[str] = []
    kind: DataType = schema
    one: StructField | None = None
    for name in names:
        fields = kind.fields if isinstance(kind, StructType) else ()
        found = [field for field in fields if field.name.lower() == name.lower()]
        if not found:
            raise InvalidRequest(
                f"the condition names the column {'.'.join(names)!r}, which is not there; there "
                f"are {', '.join(field.name for field in fields) or 'no fields below it'}",
                error_class="DELTA_COLUMN_NOT_FOUND",
            )
        one = found[0]
        path, kind = [*path, one.name], one.kind
    if one is None:
        raise _unsupported(node)
    return path, one


def _type(one: StructField, node: exp.Expr) -> str:
    if not isinstance(one.kind, PrimitiveType | DecimalType):
        raise _unsupported(node)
    return "double" if one.kind == FLOAT else str(one.kind)


def _value(node: exp.Expr, one: StructField, whole: exp.Expr) -> Any:
    """Return a literal as the tree spells it in the type of its column."""
    literal = _literal(node)
    if literal is _UNKNOWN:
        raise _unsupported(whole)
    if literal is None:
        return None
    reader = _reader(one.kind)
    try:
        if reader is None:
            raise ValueError(f"columns of type {one.kind} can't be compared")
        return reader(literal)
    except (ValueError, InvalidOperation, OverflowError) as error:
        raise InvalidRequest(
            f"in {whole.sql('spark')!r} column {one.name!r} has type {one.kind}, and {literal!r} "
            f"is no value of it; write one that is",
            error_class="DATATYPE_MISMATCH",
        ) from error


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
            return _literal(typed.this)
        case exp.Date() | exp.Timestamp() as typed if isinstance(typed.this, exp.Literal):
            return _literal(typed.this)
        case _:
            return _UNKNOWN


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


def _reader(kind: DataType) -> Callable[[Any], Any] | None:
    if isinstance(kind, DecimalType):
        return lambda value: str(partitions.parse(str(_number(value)), kind))
    if not isinstance(kind, PrimitiveType):
        return None
    if kind.name in _WHOLE:
        return lambda value: partitions.parse(str(_whole(value)), kind)
    if kind.name in _FLOATING:
        return lambda value: float(_number(value))
    if kind.name in _TEMPORAL:
        return lambda value: _moment(value, kind)
    return {"string": _text, "boolean": _truth}.get(kind.name)


def _number(value: Any) -> Decimal:
    if isinstance(value, bool) or not Decimal(value).is_finite():
        raise ValueError(f"{value!r} is no number")
    return Decimal(value)


def _whole(value: Any) -> int:
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


def _moment(value: Any, kind: PrimitiveType) -> str | None:
    at: datetime | None = partitions.parse(_text(value), TIMESTAMP)
    if at is None or (kind == DATE and at.time() != time.min):
        raise ValueError(f"{value!r} is no {kind}")
    return partitions.serialize(partitions.parse(value, kind), kind)


def _unsupported(node: exp.Expr) -> UnsupportedFeature:
    return UnsupportedFeature(
        f"the condition holds {node.sql('spark')!r}, which this release can't decide exactly: use "
        "comparisons of a column with a value, IN, BETWEEN, IS NULL, AND, OR and NOT",
        feature=type(node).__name__,
        error_class="DELTA_UNSUPPORTED_EXPRESSION",
    )

"""The predicate grammar: a tree of plain JSON.

| node | fields |
|---|---|
| `=` `!=` `<` `<=` `>` `>=` `<=>` | `column` (a path), `value`, `type` |
| `in` | `column`, `values`, `type` |
| `is_null`, `is_not_null` | `column` |
| `and`, `or` | `args` |
| `not` | `arg` |
| `true` | everything |
| `opaque` | `columns`, `text`: what the grammar can't express; it may match anything |

A value is JSON in the named type: numbers as numbers, but NaN, infinities and decimals as text;
dates and timestamps as in the log's partition values; binary in base64.

`resolved` gives columns their physical names and types. `predicate_problem` validates predicates
from other processes before they are evaluated.

Spec: "Per-file Statistics"
"""

import base64
import binascii
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, NamedTuple, cast

from tidegate_delta.schema import partition_values
from tidegate_delta.schema.column_mapping import ColumnMappingMode, physical_name
from tidegate_delta.schema.type_widening import TYPE_CHANGES
from tidegate_delta.schema.types import (
    DOUBLE,
    PRIMITIVES,
    DataType,
    DecimalType,
    PrimitiveType,
    StructField,
    StructType,
    parse_type,
)

Predicate = Mapping[str, Any]
"""A node with `op`; see the table above."""

COMPARISONS: Final = frozenset({"=", "!=", "<", "<=", ">", ">=", "<=>"})
LEAVES: Final = COMPARISONS | {"in", "is_null", "is_not_null"}

NEGATED: Final[Mapping[str, str]] = {
    "=": "!=",
    "!=": "=",
    "<": ">=",
    ">=": "<",
    ">": "<=",
    "<=": ">",
}
"""The comparison that is true where the other is false, for values that are not null.

Spec: "Per-file Statistics"
"""

_DECIMAL: Final = re.compile(r"decimal\(\d+,\s*\d+\)")
_BITS: Final = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_FLOATING: Final = frozenset({"float", "double"})
_TEMPORAL: Final = frozenset({"date", "timestamp", "timestamp_ntz"})
_SINGLE: Final = struct.Struct("<f")


def conjuncts(predicate: Predicate) -> list[Predicate]:
    """Return the conjuncts of a predicate; nested ANDs are flattened."""
    if predicate["op"] != "and":
        return [predicate]
    return [part for arg in predicate["args"] for part in conjuncts(arg)]


def columns_of(predicate: Predicate) -> frozenset[str]:
    """Return the names of the top-level columns that a predicate refers to."""
    return frozenset(path[0] for path in paths_of(predicate))


def paths_of(predicate: Predicate) -> frozenset[tuple[str, ...]]:
    """Return the paths of the columns that a predicate refers to."""
    return frozenset(_paths(predicate))


def holds_opaque(predicate: Predicate) -> bool:
    """Return whether a node or anything below it is opaque."""
    return predicate["op"] == "opaque" or any(holds_opaque(arg) for arg in children(predicate))


def size_of(predicate: Predicate) -> int:
    """Return the number of nodes and listed values in a predicate."""
    below = sum(size_of(arg) for arg in children(predicate))
    return 1 + below + (len(predicate["values"]) if predicate["op"] == "in" else 0)


def weight_of(predicate: Predicate) -> int:
    """Return the number of tests that a predicate makes of a file; a list of values is one."""
    if predicate["op"] == "or":
        return sum(map(weight_of, in_lists(predicate["args"])))
    return sum(map(weight_of, children(predicate))) or 1


def in_lists(args: Sequence[Predicate]) -> Sequence[Predicate]:
    """Return the parts of an OR, with equalities of a column merged into one list of values.

    Law: or(in_lists(args)) is true of the same rows as or(args)
    """
    lists: dict[tuple[tuple[str, ...], str], list[Any]] = {}
    others: list[Predicate] = []
    for arg in args:
        if arg["op"] == "=":
            lists.setdefault((path_of(arg), arg["type"]), []).append(arg["value"])
        else:
            others.append(arg)
    if len(lists) + len(others) == len(args):
        return args
    listed = (
        {"op": "in", "column": path, "values": values, "type": kind}
        for (path, kind), values in lists.items()
    )
    return [*others, *listed]


def children(predicate: Predicate) -> Sequence[Predicate]:
    """Return the direct child nodes of a node.

    Raises: ValueError for an operator that the grammar lacks.
    """
    match predicate["op"]:
        case "and" | "or":
            return cast(Sequence[Predicate], predicate["args"])
        case "not":
            return (predicate["arg"],)
        case "true" | "opaque":
            return ()
        case op if op in LEAVES:
            return ()
        case op:
            raise ValueError(f"a predicate holds the operator {op!r}, which the grammar lacks")


def path_of(leaf: Predicate) -> tuple[str, ...]:
    """Return the column of a comparison, as a path."""
    return _path(leaf["column"])


def kind_of(leaf: Predicate) -> DataType:
    """Return the type of a comparison's values.

    Raises: ValueError for a type that the grammar lacks.
    Spec: "Primitive Types"
    """
    return _kind_named(leaf["type"])


@lru_cache(maxsize=256)
def _kind_named(name: str) -> DataType:
    if _DECIMAL.fullmatch(name):
        return parse_type(name)
    if name not in PRIMITIVES:
        raise ValueError(f"a predicate compares values of type {name!r}, which the grammar lacks")
    return PrimitiveType(name)


def literal(value: Any, kind: DataType) -> Any:
    """Return a value of the tree as a Python value: None, int, float, Decimal, datetime, ...

    Raises: ValueError, which names the value.
    Spec: "Primitive Types"
    """
    if value is None:
        return None
    try:
        return _literal(value, kind)
    except (TypeError, ArithmeticError, binascii.Error) as error:
        raise ValueError(f"a predicate holds {value!r}, which is no {kind}") from error


def as_single(value: float) -> float:
    """Return the nearest number of single precision, as a column of type float holds it.

    Spec: "Primitive Types"
    """
    try:
        return float(_SINGLE.unpack(_SINGLE.pack(value))[0])
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def family(kind: DataType) -> str:
    """Return the name of a type's family; types of one family can be compared.

    Spec: "Primitive Types"
    """
    if isinstance(kind, DecimalType):
        return "number"
    if not isinstance(kind, PrimitiveType):
        return "nested"
    if kind.name in _BITS or kind.name in _FLOATING:
        return "number"
    return "moment" if kind.name in _TEMPORAL else kind.name


def order(first: Any, second: Any) -> int:
    """Return -1, 0 or 1 as the first value is less than, equal to or greater than the second.

    NaN equals NaN and is greater than every other number; a decimal is compared with a float as
    a float; dates and timestamps without a zone are compared with timestamps as UTC.
    Spec: "Primitive Types"
    """
    if type(first) is type(second) and type(first) in (int, str):
        return int(first > second) - int(first < second)
    left, right = _same(first, second), _same(second, first)
    if left != left or right != right:
        return int(left != left) - int(right != right)
    return int(left > right) - int(left < right)


def _same(value: Any, other: Any) -> Any:
    if isinstance(other, float) and isinstance(value, Decimal | int):
        return float(value)
    if isinstance(value, date) and (
        isinstance(value, datetime) != isinstance(other, datetime)
        or (isinstance(value, datetime) and value.tzinfo is None and other.tzinfo is not None)
    ):
        return _utc(value)
    return value


def _utc(value: date) -> datetime:
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    return datetime(value.year, value.month, value.day, tzinfo=UTC)


def _literal(value: Any, kind: DataType) -> Any:
    if isinstance(value, bool) and family(kind) == "number":
        raise TypeError("no number")
    if isinstance(kind, DecimalType):
        return partition_values.fitted(
            Decimal(value if isinstance(value, int | str) else repr(value)), kind
        )
    name = cast(PrimitiveType, kind).name
    if name in _BITS:
        return _integer(value, 1 << (_BITS[name] - 1))
    if name == "float":
        return as_single(float(value))
    if name == "double":
        return float(value)
    if name == "boolean":
        return _checked(value, bool)
    if name == "string":
        return _checked(value, str)
    if name == "binary":
        return base64.b64decode(_checked(value, str), validate=True)
    return partition_values.parse(_checked(value, str), kind)


def _integer(value: Any, limit: int) -> int:
    if isinstance(value, bool) or int(value) != value or not -limit <= value < limit:
        raise TypeError("no whole number of the type")
    return int(value)


def _checked(value: Any, expected: type) -> Any:
    if not isinstance(value, expected):
        raise TypeError(f"no {expected.__name__}")
    return value


def _paths(predicate: Predicate) -> Iterator[tuple[str, ...]]:
    if predicate["op"] == "opaque":
        yield from (_path(column) for column in predicate.get("columns") or ())
    elif predicate["op"] in LEAVES:
        yield path_of(predicate)
    for arg in children(predicate):
        yield from _paths(arg)


def _path(column: Any) -> tuple[str, ...]:
    return (column,) if isinstance(column, str) else tuple(column)


COLLATIONS: Final = "__COLLATIONS"
"""The key in a field's metadata that marks strings which are not compared by their bytes."""


@dataclass(frozen=True)
class NamedColumn:
    """A column by its physical names.

    Spec: "Column Mapping"
    """

    path: tuple[str, ...]
    kind: DataType
    was_widened: bool

    @property
    def was_float(self) -> bool:
        """Whether some files may have been written while the column was a float.

        Spec: "Reader Requirements for Type Widening"
        """
        return self.kind == DOUBLE and self.was_widened


def resolved(
    schema: StructType, path: tuple[str, ...], mode: ColumnMappingMode
) -> NamedColumn | None:
    """Return the column of a path, or None where it can't be resolved unambiguously."""
    names: list[str] = []
    kind: DataType = schema
    was_widened = False
    for name in path:
        field = _field(kind, name)
        if field is None:
            return None
        if COLLATIONS in field.metadata:
            # Strings that are equal under a collation may be outside of bounds that compare bytes.
            return None
        names.append(physical_name(field, mode))
        kind, was_widened = field.kind, TYPE_CHANGES in field.metadata
    return NamedColumn(tuple(names), kind, was_widened)


def _field(kind: DataType, name: str) -> StructField | None:
    if not isinstance(kind, StructType):
        return None
    exact = [field for field in kind.fields if field.name == name]
    fields = exact or [field for field in kind.fields if field.name.lower() == name.lower()]
    return fields[0] if len(fields) == 1 else None


NODE_FIELDS: Mapping[str, tuple[str, ...]] = {
    "true": (),
    "opaque": (),
    "is_null": ("column",),
    "is_not_null": ("column",),
    "in": ("column", "values", "type"),
    "and": ("args",),
    "or": ("args",),
    "not": ("arg",),
    **{op: ("column", "value", "type") for op in COMPARISONS},
}

"""The operators of the grammar, with the fields that a node must have."""

_FORKS = ("and", "or")
LIMITS: Mapping[str, int] = {"byte": 1 << 7, "short": 1 << 15, "integer": 1 << 31, "long": 1 << 63}
"""The exclusive upper limit of each integer type."""


class PredicateFault(NamedTuple):
    """The place of an invalid predicate and what is wrong: its grammar, or only its size."""

    place: int
    what: str
    is_too_large: bool = False


def predicate_problem(predicates: Sequence[Any], nodes_max: int) -> PredicateFault | None:
    """Return the first fault of some predicates, or None.

    `nodes_max` bounds the nodes and values of all predicates together.
    """
    left = nodes_max
    for index, predicate in enumerate(predicates):
        waiting = [predicate]
        while waiting:
            node = waiting.pop()
            if _is_frequent(node):
                left -= 1
            elif _is_fork(node):
                left -= 1
                waiting += node["args"]
            else:
                node_fault = _node_problem(node)
                if node_fault:
                    return PredicateFault(index, node_fault)
                left -= 1 + (len(node["values"]) if node["op"] == "in" else 0)
                waiting += [node["arg"]] if node["op"] == "not" else ()
            if left < 0:
                fault = f"has, with the ones before it, more than {nodes_max} nodes and values"
                return PredicateFault(index, fault, is_too_large=True)
    return None


def _is_frequent(node: Any) -> bool:
    """Return whether a node is of the most frequent kind, and valid: a comparison with an integer.

    Law: True means valid; False decides nothing
    """
    if type(node) is not dict:
        return False
    op, column, value = node.get("op"), node.get("column"), node.get("value")
    if type(value) is not int or type(op) is not str or op not in COMPARISONS:
        return False
    kind = node.get("type")
    limit = LIMITS.get(kind, 0) if type(kind) is str else 0
    if type(column) is list and len(column) == 1:
        column = column[0]
    return type(column) is str and column != "" and -limit <= value < limit


def _is_fork(node: Any) -> bool:
    """Return whether a node joins others and is valid apart from these."""
    if type(node) is not dict and not isinstance(node, Mapping):
        return False
    return node.get("op") in _FORKS and _is_filled(node.get("args"))


def _node_problem(node: Any) -> str | None:
    if not isinstance(node, Mapping) or not isinstance(node.get("op"), str):
        return "holds a node that is no object with `op`"
    op = node["op"]
    if op not in NODE_FIELDS:
        return f"holds the operator {op!r}, which the grammar lacks"
    missing = [name for name in NODE_FIELDS[op] if name not in node]
    if missing:
        return f"holds a node {op!r} without {missing[0]!r}"
    if op in _FORKS:
        return None if _is_filled(node["args"]) else f"{op!r} needs a list of nodes"
    if op == "opaque" and not isinstance(node.get("text"), str | None):
        return "holds a node 'opaque' whose text is none"
    columns = _columns_of(node)
    if not _is_list(columns) or not all(_is_column(column) for column in columns):
        return f"holds a node {op!r} whose column is no path of names"
    if "type" not in NODE_FIELDS[op]:
        return None
    return _values_problem(node)


def _columns_of(node: Mapping[str, Any]) -> Any:
    if node["op"] == "opaque":
        columns = node.get("columns")
        return [] if columns is None else columns
    return [node["column"]] if "column" in node else []


def _values_problem(node: Mapping[str, Any]) -> str | None:
    values = node["values"] if node["op"] == "in" else [node["value"]]
    if not isinstance(node["type"], str) or not _is_list(values):
        return f"holds a node {node['op']!r} with a mistyped field"
    try:
        kind = kind_of(node)
        for value in values:
            literal(value, kind)
    except ValueError as error:
        return str(error)
    return None


def _is_filled(value: Any) -> bool:
    return _is_list(value) and len(value) > 0


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _is_column(value: Any) -> bool:
    if isinstance(value, str):
        return bool(value)
    return _is_list(value) and bool(value) and all(isinstance(part, str) for part in value)

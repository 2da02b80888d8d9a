"""Test predicates against partition values: may a concurrently added file concern a scan?

`row_predicates` evaluates predicates on rows, and `file_pruning` on statistics. Their main
functions are re-exported here, so that a caller needs one import.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Final

from tidegate_delta.data_skipping.column_bounds import of_partition_texts
from tidegate_delta.data_skipping.file_pruning import FilesWithBounds, marks_of, prune
from tidegate_delta.data_skipping.predicate_tree import (
    COMPARISONS,
    Predicate,
    as_single,
    children,
    columns_of,
    conjuncts,
    family,
    holds_opaque,
    kind_of,
    literal,
    order,
    path_of,
    paths_of,
)
from tidegate_delta.data_skipping.row_predicates import evaluate
from tidegate_delta.schema.lenient_partition_values import cast
from tidegate_delta.schema.partition_values import lacks_zone
from tidegate_delta.schema.types import FLOAT, STRING, DataType, StructType

__all__ = ["Predicate", "columns_of", "conjuncts", "evaluate", "may_match_partition", "prune"]

Value = Callable[[str], Any]
"""Looks up the typed partition value of a column, by its name in any case."""

_TRUE: Final[Predicate] = {"op": "true"}
_SIGNS: Final[Mapping[str, tuple[int, ...]]] = {
    "=": (0,),
    "!=": (-1, 1),
    "<": (-1,),
    "<=": (-1, 0),
    ">": (1,),
    ">=": (0, 1),
}
"""Comparison -> the results of `order` that make it true."""


def may_match_partition(
    predicate: Predicate,
    partition_values: Mapping[str, str | None],
    schema: StructType,
    partition_columns: Sequence[str],
) -> bool:
    """Return whether a file with these partition values may hold rows that a scan would have read.

    Only conjuncts on partition columns alone are evaluated. Opaque nodes count as true, and so does
    every NOT or comparison that contains one. Statistics are never used. On a table without
    partition columns every file matches. An empty string is null by the protocol, but not to
    delta-spark: a file with one matches as either. A timestamp that does not state its time zone
    matches in any zone, because each engine uses that of its session.
    Raises: ValueError for a partition value that is not of its column's type.
    Spec: "Partition Value Serialization"
    """
    return partition_test(predicate, schema, partition_columns)(partition_values)


def partition_test(
    predicate: Predicate, schema: StructType, partition_columns: Sequence[str]
) -> Callable[[Mapping[str, str | None]], bool]:
    """Return `may_match_partition` as a function for many files and one predicate.

    Spec: "Partition Value Serialization"
    """
    if not partition_columns:
        return lambda values: True
    kinds = _kinds(schema, partition_columns)
    kept = [_widened(part, kinds) for part in about_partitions(predicate, partition_columns)]

    def matches(values: Mapping[str, str | None]) -> bool:
        typed = _lookup(values, kinds)
        for part in kept:
            # `_truth` is evaluated for every part: it raises for a value of the wrong type.
            if _truth(part, typed) is not True and not _may_be_in_some_zone(part, values, kinds):
                return False
        return True

    def may_match(values: Mapping[str, str | None]) -> bool:
        if matches(values):
            return True
        return "" in values.values() and matches(
            {key: value or None for key, value in values.items()}
        )

    return may_match


def about_partitions(predicate: Predicate, partition_columns: Sequence[str]) -> Sequence[Predicate]:
    """Return the conjuncts of a predicate that partition values alone decide.

    Spec: "Partition Value Serialization"
    """
    names = {name.lower() for name in partition_columns}
    return [part for part in conjuncts(predicate) if _is_about(part, names)]


def _kinds(
    schema: StructType, partition_columns: Sequence[str]
) -> Mapping[str, tuple[str, DataType]]:
    fields = {field.name.lower(): field.kind for field in schema.fields}
    return {name.lower(): (name, fields.get(name.lower(), STRING)) for name in partition_columns}


def _lookup(values: Mapping[str, str | None], kinds: Mapping[str, tuple[str, DataType]]) -> Value:
    def value(name: str) -> Any:
        column, kind = kinds[name.lower()]
        return _typed(values.get(column), kind)

    return value


def _typed(text: str | None, kind: DataType) -> Any:
    if text is None or (kind == STRING):
        return text
    if text == "":
        raise ValueError(f"the partition value '' is no {kind}")
    value = cast(text, kind)
    return as_single(value) if kind == FLOAT else value


def _may_be_in_some_zone(
    part: Predicate, values: Mapping[str, str | None], kinds: Mapping[str, tuple[str, DataType]]
) -> bool:
    """Return whether a part may be true in some time zone of timestamps that do not state one."""
    columns = {path: kinds[path[0].lower()] for path in paths_of(part)}
    if not any(lacks_zone(values.get(name), kind) for name, kind in columns.values()):
        return False
    bounds = {
        path: of_partition_texts([values.get(name)], kind) for path, (name, kind) in columns.items()
    }
    files = FilesWithBounds(1, {path: kind for path, (_, kind) in columns.items()}, bounds)
    return marks_of(part, files, negated=False)[0]


def _is_about(part: Predicate, names: Container[str]) -> bool:
    if isinstance(part.get("column"), str):
        return part["column"].lower() in names
    return all(len(path) == 1 and path[0].lower() in names for path in paths_of(part))


def _widened(node: Predicate, kinds: Mapping[str, tuple[str, DataType]]) -> Predicate:
    if node["op"] in ("and", "or"):
        return {"op": node["op"], "args": [_widened(arg, kinds) for arg in node["args"]]}
    return _TRUE if holds_opaque(node) or _is_mixed(node, kinds) else node


def _is_mixed(node: Predicate, kinds: Mapping[str, tuple[str, DataType]]) -> bool:
    if "type" in node:
        column = kinds[path_of(node)[0].lower()][1]
        return family(column) != family(kind_of(node))
    return any(_is_mixed(arg, kinds) for arg in children(node))


def _truth(node: Predicate, value: Value) -> bool | None:
    match node["op"]:
        case "true":
            return True
        case "and":
            return _all(node["args"], value, stop=False)
        case "or":
            return _all(node["args"], value, stop=True)
        case "not":
            inner = _truth(node["arg"], value)
            return None if inner is None else not inner
        case "is_null":
            return value(path_of(node)[0]) is None
        case "is_not_null":
            return value(path_of(node)[0]) is not None
        case "in":
            return _is_in(value(path_of(node)[0]), node)
        case op if op in COMPARISONS:
            compared_with = literal(node["value"], kind_of(node))
            return _compared(op, value(path_of(node)[0]), compared_with)
        case op:
            raise ValueError(f"a predicate holds the operator {op!r}, which the grammar lacks")


def _all(args: Sequence[Predicate], value: Value, *, stop: bool) -> bool | None:
    """Return AND (`stop` false) or OR (`stop` true).

    Arguments after the deciding one are not evaluated.
    """
    result: bool | None = not stop
    for arg in args:
        truth = _truth(arg, value)
        if truth is stop:
            return stop
        if truth is None:
            result = None
    return result


def _compared(op: str, left: Any, right: Any) -> bool | None:
    if op == "<=>":
        if left is None or right is None:
            return left is right
        return order(left, right) == 0
    if left is None or right is None:
        return None
    return order(left, right) in _SIGNS[op]


def _is_in(column_value: Any, node: Predicate) -> bool | None:
    kind = kind_of(node)
    truths = [_compared("=", column_value, literal(value, kind)) for value in node["values"]]
    if True in truths:
        return True
    return None if None in truths else False

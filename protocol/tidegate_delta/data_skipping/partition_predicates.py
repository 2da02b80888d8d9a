"""Test predicates against partition values: may a concurrently added file concern a scan?

`predicates_on_rows` evaluates predicates on rows, and `file_pruning` on statistics. Their main
functions are re-exported here, so that a caller needs one import.

Spec: "Partition Value Serialization"
"""

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Final

from tidegate_delta.data_skipping.column_bounds import UNREADABLE, Bounds, of_partition_text
from tidegate_delta.data_skipping.file_predicates import (
    bounds_test,
    comparable,
    compares_natively,
    tree_test,
)
from tidegate_delta.data_skipping.file_pruning import prune
from tidegate_delta.data_skipping.predicate_tree import (
    Predicate,
    children,
    columns_of,
    conjuncts,
    family,
    holds_opaque,
    kind_of,
    path_of,
    paths_of,
)
from tidegate_delta.data_skipping.predicates_on_rows import evaluate
from tidegate_delta.schema.types import STRING, DataType, StructType

__all__ = ["Predicate", "columns_of", "conjuncts", "evaluate", "may_match_partition", "prune"]

_TRUE: Final[Predicate] = {"op": "true"}


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
    """
    return partition_test(predicate, schema, partition_columns)(partition_values)


def partition_test(
    predicate: Predicate, schema: StructType, partition_columns: Sequence[str]
) -> Callable[[Mapping[str, str | None]], bool]:
    """Return `may_match_partition` as a function for many files and one predicate."""
    if not partition_columns:
        return lambda values: True
    kinds = _kinds(schema, partition_columns)

    def leaf(node: Predicate, negated: bool) -> Callable[[Mapping[str, str | None]], bool]:
        name, kind = kinds[path_of(node)[0].lower()]
        native = compares_natively(node, kind)
        test = bounds_test(node, kind, negated=negated, is_exact=True, is_native=native)
        return lambda values: test(comparable(_bounds(values.get(name), kind), native))

    parts = [_widened(part, kinds) for part in about_partitions(predicate, partition_columns)]
    return tree_test({"op": "and", "args": parts}, leaf)


def _bounds(text: str | None, kind: DataType) -> Bounds:
    bounds = of_partition_text(text, kind)
    if bounds is UNREADABLE or (text == "" and kind != STRING):
        raise ValueError(f"the partition value {text!r} is no {kind}")
    return bounds


def about_partitions(predicate: Predicate, partition_columns: Sequence[str]) -> Sequence[Predicate]:
    """Return the conjuncts of a predicate that partition values alone decide."""
    names = {name.lower() for name in partition_columns}
    return [part for part in conjuncts(predicate) if _is_about(part, names)]


def _kinds(
    schema: StructType, partition_columns: Sequence[str]
) -> Mapping[str, tuple[str, DataType]]:
    fields = {field.name.lower(): field.kind for field in schema.fields}
    return {name.lower(): (name, fields.get(name.lower(), STRING)) for name in partition_columns}


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

"""Which files may hold a row that matches a predicate: its test of one file, by the file's bounds.

A file is ruled out only where no row of it can match. Bounds from statistics are never taken as
exact values: they may be wide, truncated, rounded, missing, or ignore NaN. The bounds of a column
in a file are computed once for all predicates.

Spec: "Per-file Statistics"
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import cmp_to_key, lru_cache
from typing import Any, Final, Protocol, TypeVar

from tidegate_delta.data_skipping import column_bounds
from tidegate_delta.data_skipping.column_bounds import Bounds
from tidegate_delta.data_skipping.predicate_tree import (
    LEAVES,
    NEGATED,
    NamedColumn,
    Predicate,
    family,
    in_lists,
    kind_of,
    literal,
    order,
    path_of,
    paths_of,
    resolved,
)
from tidegate_delta.log.actions import Metadata
from tidegate_delta.schema.column_mapping import mode_of
from tidegate_delta.schema.types import DOUBLE, FLOAT, DataType, DecimalType, parse_schema

FEW: Final = 2_048
"""The most files for which bounds of a column are cached."""

COLUMNS_MAX: Final = 256
"""The most columns for which bounds are cached."""

_NATIVE: Final[Mapping[frozenset[str], type]] = {
    frozenset({"byte", "short", "integer", "long"}): int,
    frozenset({"string"}): str,
}
"""Types whose values Python orders as the grammar does -> the Python type, also in JSON."""

_KEY: Final = cmp_to_key(order)
"""Sort key for values of one family."""

_HIDES_NAN: Final = frozenset({"!=", ">", ">="})
"""Comparisons that NaN fulfils against a number: bounds of many writers ignore NaN."""


class DescribedFile(Protocol):
    """What is known of a file, as in its add action.

    Spec: "Add File and Remove File"
    """

    @property
    def partition_values(self) -> Mapping[str, str | None]:
        """The texts of its partition values, by physical column names."""

    @property
    def stats(self) -> str | None:
        """Its statistics as JSON."""


F = TypeVar("F")
FileTest = Callable[[DescribedFile], bool]
"""Returns whether a row of a file may match."""

BoundsTest = Callable[[Bounds], bool]
"""Returns whether a value within bounds may match."""


class FileTests:
    """Tests of files of one table, under one metadata.

    Law: a file that holds a matching row passes
    """

    def __init__(self, metadata: Metadata) -> None:
        self._schema = parse_schema(metadata.schema_string)
        self._mode = mode_of(metadata)
        self._partitioned = {name.lower() for name in metadata.partition_columns}
        self._may_be_exact = "decimal(" in metadata.schema_string
        self._bounds: dict[tuple[tuple[str, ...], bool, bool], _BoundsOfTexts] = {}

    def of(self, predicate: Predicate) -> FileTest:
        """Return the test whether a row of a file may match a predicate."""
        exact = self._may_be_exact and any(
            isinstance(column.kind, DecimalType)
            for path in paths_of(predicate)
            if (column := self.column(path)) is not None
        )

        def leaf(node: Predicate, negated: bool) -> FileTest:
            return self._leaf(node, exact, negated=negated)

        return tree_test(predicate, leaf)

    def beyond_partitions(self, predicate: Predicate) -> FileTest:
        """Return a test for files whose partitions may match.

        It does not test the partitions again.
        Law: where it is false, `of` is false
        """
        if predicate["op"] != "and":
            return self.of(predicate)
        left = [part for part in predicate["args"] if not self._is_about_partitions(part)]
        return self.of({"op": "and", "args": left})

    def column(self, path: tuple[str, ...]) -> NamedColumn | None:
        """Return the column of a path, or None where it can't be resolved unambiguously."""
        return resolved(self._schema, path, self._mode)

    def is_of_partition(self, path: tuple[str, ...]) -> bool:
        """Return whether a path is that of a partition column.

        Spec: "Partition Value Serialization"
        """
        return path[0].lower() in self._partitioned

    def _is_about_partitions(self, part: Predicate) -> bool:
        column = part.get("column")
        return type(column) is str and column.lower() in self._partitioned

    def _leaf(self, node: Predicate, exact: bool, *, negated: bool) -> FileTest:
        path = path_of(node)
        column = self.column(path)
        if column is None:
            return _always
        is_partition = self.is_of_partition(path)
        is_native = compares_natively(node, column.kind)
        test = bounds_test(
            node, column.kind, negated=negated, is_exact=is_partition, is_native=is_native
        )
        key = path, exact, is_native
        known = self._bounds.get(key)
        if known is None:
            if len(self._bounds) >= COLUMNS_MAX:
                self._bounds.clear()
            known = self._bounds[key] = _bounds_of(column, exact, is_partition, is_native)
        if is_partition:
            name = column.path[0]
            return lambda file: test(known[file.partition_values.get(name)])
        return lambda file: test(known[file.stats])


def tree_test(
    node: Predicate,
    leaf: Callable[[Predicate, bool], Callable[[F], bool]],
    *,
    negated: bool = False,
) -> Callable[[F], bool]:
    """Return the test of a predicate, or of its negation, from the tests of its leaves.

    `leaf` gets a leaf and whether it is negated. What the grammar can't express passes.
    """
    op = node["op"]
    if op in LEAVES:
        return leaf(node, negated)
    if op in ("and", "or"):
        args = in_lists(node["args"]) if op == "or" else node["args"]
        tests = [tree_test(arg, leaf, negated=negated) for arg in args]
        return _every(tests) if (op == "and") != negated else _some(tests)
    if op == "not":
        return tree_test(node["arg"], leaf, negated=not negated)
    return _never if op == "true" and negated else _always


class _BoundsOfTexts(dict[str | None, Bounds]):
    """Cache of the bounds that were computed from a text."""

    def __init__(self, work: Callable[[str | None], Bounds]) -> None:
        super().__init__()
        self._work = work

    def __missing__(self, text: str | None) -> Bounds:
        if len(self) >= FEW:
            self.clear()
        bounds = self[text] = self._work(text)
        return bounds


def _bounds_of(
    column: NamedColumn, exact: bool, is_partition: bool, is_native: bool
) -> _BoundsOfTexts:
    """Return the bounds of a column by partition value or statistics."""

    def of_partition(text: str | None) -> Bounds:
        return comparable(column_bounds.of_partition_text(text, column.kind), is_native)

    def of_data(text: str | None) -> Bounds:
        bounds = column_bounds.of_column(_statistics(text, exact), column.path, column.kind)
        return comparable(
            column_bounds.of_single(bounds) if column.was_float else bounds, is_native
        )

    return _BoundsOfTexts(of_partition if is_partition else of_data)


@lru_cache(maxsize=FEW)
def _statistics(text: str | None, exact_numbers: bool) -> Mapping[str, Any]:
    return column_bounds.parsed(text, exact_numbers=exact_numbers)


def compares_natively(node: Predicate, kind: DataType) -> bool:
    """Return whether Python orders the values of a leaf and of its column as the grammar does.

    Spec: "Primitive Types"
    """
    if "type" not in node:
        return True
    name = str(kind)
    for names, python_type in _NATIVE.items():
        if name in names and node["type"] in names:
            values = node["values"] if node["op"] == "in" else (node["value"],)
            return all(type(value) is python_type or value is None for value in values)
    return False


def comparable(bounds: Bounds, is_native: bool) -> Bounds:
    """Return bounds that Python's operators compare with the values of `bounds_test`.

    Spec: "Primitive Types"
    """
    if is_native:
        return bounds
    lower, upper = bounds.lower, bounds.upper
    return bounds._replace(
        lower=None if lower is None else _KEY(lower), upper=None if upper is None else _KEY(upper)
    )


def bounds_test(
    node: Predicate, kind: DataType, *, negated: bool, is_exact: bool, is_native: bool
) -> BoundsTest:
    """Return the test of a leaf, or of its negation, for the `comparable` bounds of its column.

    `is_exact` says that bounds that are equal are the value, as those of a partition column.
    """
    op = node["op"]
    if op in ("is_null", "is_not_null"):
        return _may_be_null if (op == "is_null") != negated else _may_hold_value
    values = [literal(value, kind_of(node)) for value in _values(node)]
    present = [value for value in values if value is not None]
    if op == "in" and len(present) < len(values) and (negated or not present):
        return _never_matches
    if op == "in" and not present:
        return _may_match if negated else _never_matches
    if family(kind) != family(kind_of(node)):
        return _may_match
    is_floating = kind in (FLOAT, DOUBLE) and not is_exact
    keys = present if is_native else list(map(_KEY, present))
    if op == "in":
        if is_floating and (negated or any(value != value for value in present)):
            return _may_hold_value
        return _in_none(sorted(keys)) if negated else _in_some(sorted(keys))
    is_null_safe = op == "<=>"
    if not present:
        if not is_null_safe:
            return _never_matches
        return _may_hold_value if negated else _may_be_null
    compared = "=" if is_null_safe else op
    compared = NEGATED[compared] if negated else compared
    hides_nan = is_floating and (compared in _HIDES_NAN or present[0] != present[0])
    test = _may_hold_value if hides_nan else _COMPARED[compared](keys[0])
    if is_null_safe and negated:
        return lambda bounds: bounds.may_be_null or test(bounds)
    return test


def _values(node: Predicate) -> Sequence[Any]:
    values: Sequence[Any] = node["values"] if node["op"] == "in" else (node["value"],)
    return values


def _in_some(values: Sequence[Any]) -> BoundsTest:
    def test(bounds: Bounds) -> bool:
        low, high, _, is_there = bounds
        index = 0 if low is None else bisect_left(values, low)
        return is_there and index < len(values) and (high is None or values[index] <= high)

    return test


def _in_none(values: Sequence[Any]) -> BoundsTest:
    def test(bounds: Bounds) -> bool:
        low, high, _, is_there = bounds
        if not is_there or low is None or high is None or low != high:
            return is_there
        index = bisect_left(values, low)
        return index == len(values) or values[index] != low

    return test


def _may_match(bounds: Bounds) -> bool:
    return True


def _never_matches(bounds: Bounds) -> bool:
    return False


def _may_be_null(bounds: Bounds) -> bool:
    return bounds.may_be_null


def _may_hold_value(bounds: Bounds) -> bool:
    return bounds.may_hold_value


def _equal(value: Any) -> BoundsTest:
    def test(bounds: Bounds) -> bool:
        low, high, _, is_there = bounds
        return is_there and (low is None or low <= value) and (high is None or high >= value)

    return test


def _unequal(value: Any) -> BoundsTest:
    def test(bounds: Bounds) -> bool:
        low, high, _, is_there = bounds
        is_known = low is not None and high is not None
        return is_there and not (is_known and low == value == high)

    return test


def _less(value: Any) -> BoundsTest:
    return lambda bounds: bounds[3] and (bounds[0] is None or bounds[0] < value)


def _at_most(value: Any) -> BoundsTest:
    return lambda bounds: bounds[3] and (bounds[0] is None or bounds[0] <= value)


def _greater(value: Any) -> BoundsTest:
    return lambda bounds: bounds[3] and (bounds[1] is None or bounds[1] > value)


def _at_least(value: Any) -> BoundsTest:
    return lambda bounds: bounds[3] and (bounds[1] is None or bounds[1] >= value)


_COMPARED: Final[Mapping[str, Callable[[Any], BoundsTest]]] = {
    "=": _equal,
    "!=": _unequal,
    "<": _less,
    "<=": _at_most,
    ">": _greater,
    ">=": _at_least,
}


def _every(tests: Sequence[Callable[[F], bool]]) -> Callable[[F], bool]:
    def test(file: F) -> bool:
        for test in tests:  # noqa: SIM110 - a generator takes twice as long as what it asks
            if not test(file):
                return False
        return True

    return test


def _some(tests: Sequence[Callable[[F], bool]]) -> Callable[[F], bool]:
    def test(file: F) -> bool:
        for test in tests:  # noqa: SIM110 - as above
            if test(file):
                return True
        return False

    return test


def _always(file: object) -> bool:
    return True


def _never(file: object) -> bool:
    return False

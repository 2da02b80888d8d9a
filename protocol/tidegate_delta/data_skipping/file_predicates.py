"""Test a few files against many predicates, with cached bounds for each file.

`file_pruning` tests very many files at once, by columns. Here a predicate becomes a function of
one file, and the bounds of a column in a file are computed once for all predicates.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import cmp_to_key, lru_cache
from typing import Any, Final, NamedTuple

from tidegate_delta.data_skipping import column_bounds
from tidegate_delta.data_skipping.column_bounds import Bounds
from tidegate_delta.data_skipping.file_pruning import FilesWithBounds, marks_of, operator
from tidegate_delta.data_skipping.predicate_tree import (
    LEAVES,
    Predicate,
    family,
    in_lists,
    kind_of,
    literal,
    order,
    path_of,
    paths_of,
)
from tidegate_delta.data_skipping.resolved_columns import NamedColumn, resolved
from tidegate_delta.log.actions import Add, Metadata
from tidegate_delta.schema.column_mapping import mode_of
from tidegate_delta.schema.types import DOUBLE, FLOAT, DecimalType, parse_schema

FEW: Final = 2_048
"""The most files for which bounds of a column are cached."""

COLUMNS_MAX: Final = 256
"""The most columns for which bounds are cached."""

_PLAIN: Final[Mapping[frozenset[str], type]] = {
    frozenset({"byte", "short", "integer", "long"}): int,
    frozenset({"string"}): str,
}
"""Types that are compared with one another -> the Python type of their values, also in JSON."""

_KEY: Final = cmp_to_key(order)
"""Sort key for values of one family."""

FileTest = Callable[[Add], bool]
"""Returns whether a row of a file may match."""


class ColumnFacts(NamedTuple):
    """The bounds of a column in one file, as in `Bounds`.

    Spec: "Per-file Statistics"
    """

    lower: Any
    upper: Any
    may_be_null: bool
    may_hold_value: bool


ColumnTest = Callable[[ColumnFacts], bool]


class FileTests:
    """Tests of files of one table, under one metadata.

    Law: FileTests(m).of(p)(file) is whether `prune` keeps the file
    Spec: "Per-file Statistics"
    """

    def __init__(self, metadata: Metadata) -> None:
        self._schema = parse_schema(metadata.schema_string)
        self._mode = mode_of(metadata)
        self._partitioned = {name.lower() for name in metadata.partition_columns}
        self._may_be_exact = "decimal(" in metadata.schema_string
        self._columns: dict[tuple[tuple[str, ...], bool], _Column | None] = {}

    def of(self, predicate: Predicate) -> FileTest:
        """Return the test whether a row of a file may match a predicate.

        Spec: "Per-file Statistics"
        """
        exact = self._may_be_exact and any(
            isinstance(column.kind, DecimalType)
            for path in paths_of(predicate)
            if (column := resolved(self._schema, path, self._mode)) is not None
        )
        return self._test(predicate, exact, negated=False)

    def beyond_partitions(self, predicate: Predicate) -> FileTest:
        """Return a test for files whose partitions may match.

        It does not test the partitions again.
        Law: where it is false, `of` is false
        Spec: "Per-file Statistics"
        """
        if predicate["op"] != "and":
            return self.of(predicate)
        left = [part for part in predicate["args"] if not self._is_about_partitions(part)]
        return self.of({"op": "and", "args": left})

    def _is_about_partitions(self, part: Predicate) -> bool:
        column = part.get("column")
        return type(column) is str and column.lower() in self._partitioned

    def _test(self, node: Predicate, exact: bool, *, negated: bool) -> FileTest:
        op = node["op"]
        if op in LEAVES:
            return self._leaf(node, exact, negated=negated)
        if op in ("and", "or"):
            args = in_lists(node["args"]) if op == "or" else node["args"]
            tests = [self._test(arg, exact, negated=negated) for arg in args]
            return _and_test(tests) if (op == "and") != negated else _or_test(tests)
        if op == "not":
            return self._test(node["arg"], exact, negated=not negated)
        return _never if op == "true" and negated else _always

    def _leaf(self, node: Predicate, exact: bool, *, negated: bool) -> FileTest:
        path = path_of(node)
        column = self._column(path, exact)
        if column is None:
            return _always
        if node["op"] == "in":
            judge: ColumnTest | None = _listed(node, column, negated=negated)
        else:
            judge = _plain(node, column, negated=negated)
        if judge is None:
            judge = _general(node, path, column, negated=negated)
        known, name = column.known, column.partition
        if name is not None:
            return lambda add: judge(known[add.partition_values.get(name)])
        return lambda add: judge(known[add.stats])

    def _column(self, path: tuple[str, ...], exact: bool) -> "_Column | None":
        key = path, exact
        if key in self._columns:
            return self._columns[key]
        if len(self._columns) >= COLUMNS_MAX:
            self._columns.clear()
        named_column = resolved(self._schema, path, self._mode)
        is_partition = path[0].lower() in self._partitioned
        column = self._columns[key] = (
            None if named_column is None else _Column(named_column, exact, is_partition)
        )
        return column


def may_hold(predicate: Predicate, adds: Sequence[Add], metadata: Metadata) -> list[bool]:
    """Return for each file whether a row of it may match: `prune`, for a few files.

    Law: true for exactly the files that `prune` keeps
    Spec: "Per-file Statistics"
    """
    return list(map(FileTests(metadata).of(predicate), adds))


class _Column:
    """A column and its cached bounds in files, by their statistics or partition values."""

    def __init__(self, column: NamedColumn, exact: bool, is_partition: bool) -> None:
        self.kind = column.kind
        self.partition = column.path[0] if is_partition else None
        name = str(column.kind)
        self.kinds = next((kinds for kinds in _PLAIN if name in kinds), frozenset[str]())
        self.plain = _PLAIN.get(self.kinds)

        def of_partition(text: str | None) -> ColumnFacts:
            return _only(column_bounds.of_partition_texts([text], column.kind))

        def of_data(text: str | None) -> ColumnFacts:
            bounds = column_bounds.of_column([_statistics(text, exact)], column.path, column.kind)
            return _only(column_bounds.of_singles(bounds) if column.was_float else bounds)

        self.known = _Kept(of_partition if is_partition else of_data)


class _Kept(dict[str | None, ColumnFacts]):
    """Cache of the facts that were computed from a text."""

    def __init__(self, work: Callable[[str | None], ColumnFacts]) -> None:
        super().__init__()
        self._work = work

    def __missing__(self, text: str | None) -> ColumnFacts:
        if len(self) >= FEW:
            self.clear()
        facts = self[text] = self._work(text)
        return facts


@lru_cache(maxsize=FEW)
def _statistics(text: str | None, exact_numbers: bool) -> Mapping[str, Any]:
    return column_bounds.parse_all([text], exact_numbers=exact_numbers)[0]


def _only(bounds: Bounds) -> ColumnFacts:
    [lower], [upper] = bounds.lower, bounds.upper
    [may_be_null], [may_hold_value] = bounds.may_be_null, bounds.may_hold_value
    return ColumnFacts(lower, upper, may_be_null, may_hold_value)


def _general(
    node: Predicate, path: tuple[str, ...], column: _Column, *, negated: bool
) -> ColumnTest:
    """Return the test of `file_pruning` for any kind of leaf."""
    kinds = {path: column.kind}

    def judge(known: ColumnFacts) -> bool:
        lower, upper, may_be_null, may_hold_value = known
        bounds = Bounds((lower,), (upper,), (may_be_null,), (may_hold_value,))
        return marks_of(node, FilesWithBounds(1, kinds, {path: bounds}), negated=negated)[0]

    return judge


def _plain(node: Predicate, column: _Column, *, negated: bool) -> ColumnTest | None:
    """Return a fast test for integers and strings compared with their own type, or None.

    They need no interpretation: Python orders them as the grammar does. Validated predicates have
    no number that its type can't hold.
    """
    value, op = node.get("value"), node["op"]
    if op not in _JUDGES or type(value) is not column.plain or node["type"] not in column.kinds:
        return None
    return _JUDGES[operator(op, negated=negated)](value)


def _listed(node: Predicate, column: _Column, *, negated: bool) -> ColumnTest:
    """Return a test for a list of values, which is sorted only once."""
    kind, values = kind_of(node), node["values"]
    present = [literal(value, kind) for value in values if value is not None]
    if len(present) < len(values) and (negated or not present):
        return _never_matches
    if not present:
        return _may_match if negated else _never_matches
    if family(column.kind) != family(kind):
        return _may_match
    if column.kind in (FLOAT, DOUBLE) and (negated or any(value != value for value in present)):
        return lambda known: known.may_hold_value
    keys = sorted(map(_KEY, present))
    return _in_none(keys) if negated else _in_some(keys)


def _in_some(values: Sequence[Any]) -> ColumnTest:
    def judge(known: ColumnFacts) -> bool:
        low, high, _, is_there = known
        index = 0 if low is None else bisect_left(values, _KEY(low))
        return is_there and index < len(values) and (high is None or values[index] <= _KEY(high))

    return judge


def _in_none(values: Sequence[Any]) -> ColumnTest:
    def judge(known: ColumnFacts) -> bool:
        low, high, _, is_there = known
        if not is_there or low is None or high is None or order(low, high) != 0:
            return is_there
        index = bisect_left(values, _KEY(low))
        return index == len(values) or values[index] != _KEY(low)

    return judge


def _may_match(known: ColumnFacts) -> bool:
    return True


def _never_matches(known: ColumnFacts) -> bool:
    return False


def _equal(value: Any) -> ColumnTest:
    def judge(known: ColumnFacts) -> bool:
        low, high, _, is_there = known
        return is_there and (low is None or low <= value) and (high is None or high >= value)

    return judge


def _unequal(value: Any) -> ColumnTest:
    def judge(known: ColumnFacts) -> bool:
        low, high, _, is_there = known
        return is_there and not (low == value == high)

    return judge


def _less(value: Any) -> ColumnTest:
    return lambda known: known[3] and (known[0] is None or known[0] < value)


def _at_most(value: Any) -> ColumnTest:
    return lambda known: known[3] and (known[0] is None or known[0] <= value)


def _greater(value: Any) -> ColumnTest:
    return lambda known: known[3] and (known[1] is None or known[1] > value)


def _at_least(value: Any) -> ColumnTest:
    return lambda known: known[3] and (known[1] is None or known[1] >= value)


_JUDGES: Final[Mapping[str, Callable[[Any], ColumnTest]]] = {
    "=": _equal,
    "!=": _unequal,
    "<": _less,
    "<=": _at_most,
    ">": _greater,
    ">=": _at_least,
}


def _and_test(tests: Sequence[FileTest]) -> FileTest:
    def test(add: Add) -> bool:
        for test in tests:  # noqa: SIM110 - a generator takes twice as long as what it asks
            if not test(add):
                return False
        return True

    return test


def _or_test(tests: Sequence[FileTest]) -> FileTest:
    def test(add: Add) -> bool:
        for test in tests:  # noqa: SIM110 - as above
            if test(add):
                return True
        return False

    return test


def _always(add: Add) -> bool:
    return True


def _never(add: Add) -> bool:
    return False

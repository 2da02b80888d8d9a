"""Predicates against a few files, asked again and again: what is known of a file is kept.

`pruning` judges very many files at once, by columns. Here a predicate becomes a function of one
file, and what the statistics of a file say of a column is worked out once, whoever asks for it.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import cmp_to_key, lru_cache
from typing import Any, Final, NamedTuple

from tidegate_delta.data_skipping import column_bounds
from tidegate_delta.data_skipping.column_bounds import Bounds
from tidegate_delta.data_skipping.file_pruning import JudgedFiles, marks_of, operator
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
"""Files of which is kept what is known of a column."""

COLUMNS_MAX: Final = 256
"""Columns of which something is kept."""

_PLAIN: Final[Mapping[frozenset[str], type]] = {
    frozenset({"byte", "short", "integer", "long"}): int,
    frozenset({"string"}): str,
}
"""Types that are compared with one another -> what their values are in Python, and in JSON."""

_KEY: Final = cmp_to_key(order)
"""Puts values of one family in order."""

FileTest = Callable[[Add], bool]
"""Returns whether a row of a file may match."""


class ColumnFacts(NamedTuple):
    """What is known of a column in one file: as `Bounds` have it.

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
            isinstance(one.kind, DecimalType)
            for path in paths_of(predicate)
            if (one := resolved(self._schema, path, self._mode)) is not None
        )
        return self._test(predicate, exact, negated=False)

    def beyond_partitions(self, predicate: Predicate) -> FileTest:
        """Return a test of files in partitions that may match: it asks of nothing else again.

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
            return _every(tests) if (op == "and") != negated else _some(tests)
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
        one = resolved(self._schema, path, self._mode)
        is_partition = path[0].lower() in self._partitioned
        found = self._columns[key] = None if one is None else _Column(one, exact, is_partition)
        return found


def may_hold(predicate: Predicate, adds: Sequence[Add], metadata: Metadata) -> list[bool]:
    """Return for each file whether a row of it may match: `prune`, for a few files.

    Law: a file that `prune` keeps may hold a row, and no other
    Spec: "Per-file Statistics"
    """
    return list(map(FileTests(metadata).of(predicate), adds))


class _Column:
    """A column, and what is known of it in files: by their statistics, or partition values."""

    def __init__(self, column: NamedColumn, exact: bool, is_partition: bool) -> None:
        self.kind = column.kind
        self.partition = column.path[0] if is_partition else None
        name = str(column.kind)
        self.kinds = next((kinds for kinds in _PLAIN if name in kinds), frozenset[str]())
        self.plain = _PLAIN.get(self.kinds)

        def of_partition(text: str | None) -> ColumnFacts:
            return _only(column_bounds.of_partition_texts([text], column.kind))

        def of_data(text: str | None) -> ColumnFacts:
            found = column_bounds.of_column([_statistics(text, exact)], column.path, column.kind)
            return _only(column_bounds.of_singles(found) if column.held_singles else found)

        self.known = _Kept(of_partition if is_partition else of_data)


class _Kept(dict[str | None, ColumnFacts]):
    """What was worked out of some texts."""

    def __init__(self, work: Callable[[str | None], ColumnFacts]) -> None:
        super().__init__()
        self._work = work

    def __missing__(self, text: str | None) -> ColumnFacts:
        if len(self) >= FEW:
            self.clear()
        found = self[text] = self._work(text)
        return found


@lru_cache(maxsize=FEW)
def _statistics(text: str | None, exact_numbers: bool) -> Mapping[str, Any]:
    return column_bounds.parse_all([text], exact_numbers=exact_numbers)[0]


def _only(found: Bounds) -> ColumnFacts:
    [lower], [upper] = found.lower, found.upper
    [may_be_null], [may_hold_value] = found.may_be_null, found.may_hold_value
    return ColumnFacts(lower, upper, may_be_null, may_hold_value)


def _general(
    node: Predicate, path: tuple[str, ...], column: _Column, *, negated: bool
) -> ColumnTest:
    """Return what `pruning` says of a leaf, of whatever kind."""
    kinds = {path: column.kind}

    def judge(known: ColumnFacts) -> bool:
        lower, upper, may_be_null, may_hold_value = known
        found = Bounds((lower,), (upper,), (may_be_null,), (may_hold_value,))
        return marks_of(node, JudgedFiles(1, kinds, {path: found}), negated=negated)[0]

    return judge


def _plain(node: Predicate, column: _Column, *, negated: bool) -> ColumnTest | None:
    """Return what is said of whole numbers and texts that are compared with their like, or None.

    These need no thought: Python orders them as the grammar does. A number that its type can't hold
    is in no predicate that was found right.
    """
    value, op = node.get("value"), node["op"]
    if op not in _JUDGES or type(value) is not column.plain or node["type"] not in column.kinds:
        return None
    return _JUDGES[operator(op, negated=negated)](value)


def _listed(node: Predicate, column: _Column, *, negated: bool) -> ColumnTest:
    """Return what is said of a list of values: it is put in order once, however long it is."""
    kind, values = kind_of(node), node["values"]
    present = [literal(value, kind) for value in values if value is not None]
    if len(present) < len(values) and (negated or not present):
        return _is_not
    if not present:
        return _is if negated else _is_not
    if family(column.kind) != family(kind):
        return _is
    if column.kind in (FLOAT, DOUBLE) and (negated or any(one != one for one in present)):
        return lambda known: known.may_hold_value
    wanted = sorted(map(_KEY, present))
    return _in_none(wanted) if negated else _in_some(wanted)


def _in_some(wanted: Sequence[Any]) -> ColumnTest:
    def judge(known: ColumnFacts) -> bool:
        low, high, _, is_there = known
        at = 0 if low is None else bisect_left(wanted, _KEY(low))
        return is_there and at < len(wanted) and (high is None or wanted[at] <= _KEY(high))

    return judge


def _in_none(wanted: Sequence[Any]) -> ColumnTest:
    def judge(known: ColumnFacts) -> bool:
        low, high, _, is_there = known
        if not is_there or low is None or high is None or order(low, high) != 0:
            return is_there
        at = bisect_left(wanted, _KEY(low))
        return at == len(wanted) or wanted[at] != _KEY(low)

    return judge


def _is(known: ColumnFacts) -> bool:
    return True


def _is_not(known: ColumnFacts) -> bool:
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


def _every(tests: Sequence[FileTest]) -> FileTest:
    def test(add: Add) -> bool:
        for one in tests:  # noqa: SIM110 - a generator takes twice as long as what it asks
            if not one(add):
                return False
        return True

    return test


def _some(tests: Sequence[FileTest]) -> FileTest:
    def test(add: Add) -> bool:
        for one in tests:  # noqa: SIM110 - as above
            if one(add):
                return True
        return False

    return test


def _always(add: Add) -> bool:
    return True


def _never(add: Add) -> bool:
    return False

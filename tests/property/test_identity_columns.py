"""Identity values: all are start + k * step, none is given twice, the mark never goes back."""

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate_delta.constraints.identity_columns import (
    LONG_MAX,
    LONG_MIN,
    IdentityColumn,
    Lease,
    define,
    lease,
    moves_marks_only,
    raised,
    with_marks,
    with_marks_of,
)
from tidegate_delta.errors import InvalidRequest
from tidegate_delta.log.actions import Metadata
from tidegate_delta.schema.types import LONG, StructField, StructType, format_schema

small = st.integers(-40, 40)
steps = st.integers(-7, 7).filter(bool)
columns = st.builds(IdentityColumn, st.just("id"), st.just("id"), small, steps, st.none() | small)


def on_the_line(column: IdentityColumn, value: int) -> bool:
    """Return whether a value is start + k * step with k >= 0, by trying each k."""
    return any(column.start + k * column.step == value for k in range(500))


@given(columns)
def test_the_next_value_is_the_first_on_the_line_beyond_the_mark(column: IdentityColumn) -> None:
    result = column.next_after(column.mark)
    assert on_the_line(column, result)
    line = [column.start + k * column.step for k in range(200)]
    beyond = [v for v in line if column.mark is None or column.is_beyond(v, column.mark)]
    assert result == beyond[0]


@given(columns, st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_no_value_is_given_to_two(column: IdentityColumn, counts: list[int]) -> None:
    given_out: list[Lease] = []
    for count in counts:
        given_out.append(lease(column, count, given_out))
    values = [record.value(row) for record in given_out for row in range(record.count)]
    assert len(set(values)) == len(values) == sum(counts)
    assert all(on_the_line(column, value) for value in values)
    if column.mark is not None:
        assert all(column.is_beyond(value, column.mark) for value in values)
    for item in given_out:
        own = [item.value(row) for row in range(item.count)]
        assert own[-1] == item.last
        assert item.holds(min(own), max(own))
        assert not item.holds(min(own) - 1, max(own))
        assert not item.holds(min(own), max(own) + abs(column.step))
        assert not item.lapses(column.mark)
        assert item.lapses(item.first)
        assert item.lapses(item.last)


@given(columns, small)
def test_a_mark_never_goes_back(column: IdentityColumn, value: int) -> None:
    result = raised(column, value)
    if column.mark is not None:
        assert result is not None
        assert not column.is_beyond(column.mark, result)
    if result is not None and not column.is_beyond(column.start, value):
        assert not column.is_beyond(value, result)
        assert column.is_beyond(column.next_after(result), value)
    assert raised(replace(column, mark=result), value) == result


@given(columns, small)
def test_a_value_is_rounded_to_the_next_on_the_line(column: IdentityColumn, value: int) -> None:
    result = column.rounded(value)
    assert (result - column.start) % column.step == 0
    assert not column.is_beyond(value, result)
    assert abs(result - value) < abs(column.step)


@given(small, steps, st.lists(small, max_size=4), st.lists(small, max_size=4))
def test_marks_of_two_writes_meet_in_any_order(
    start: int, step: int, one: list[int], two: list[int]
) -> None:
    column = define(StructField("id", LONG), start, step, allows_explicit=True)
    schema = format_schema(StructType((column, StructField("v", LONG))))
    table = Metadata(id="t", schema_string=schema)
    first, second = with_marks(table, {"id": one}), with_marks(table, {"id": two, "v": [99]})
    both = with_marks(table, {"id": [*one, *two]})
    assert with_marks_of(first, second) == with_marks_of(second, first) == both
    assert with_marks(both, {"id": one}) == both
    assert moves_marks_only(table, both)
    assert not moves_marks_only(table, both.with_(name="other"))


wide = st.integers(LONG_MIN, LONG_MAX)


@given(wide, wide.filter(bool), st.none() | wide, st.integers(1, 2**62), wide)
def test_what_is_given_out_has_64_bits(
    start: int, step: int, mark: int | None, count: int, value: int
) -> None:
    column = IdentityColumn("id", "id", start, step, mark)
    with suppress(InvalidRequest):
        result = lease(column, count)
        assert (
            LONG_MIN <= min(result.first, result.last) <= max(result.first, result.last) <= LONG_MAX
        )
    with suppress(InvalidRequest):
        moved = raised(column, value)
        assert moved is None or LONG_MIN <= moved <= LONG_MAX


@pytest.mark.parametrize(("step", "mark"), [(1, LONG_MAX), (-1, LONG_MIN), (5, LONG_MAX - 3)])
def test_an_exhausted_identity_column_is_refused(step: int, mark: int) -> None:
    column = IdentityColumn("id", "id", mark % step if step > 0 else 0, step, mark)
    with pytest.raises(InvalidRequest, match="no value left") as refused:
        lease(column, 1)
    assert refused.value.error_class == "ARITHMETIC_OVERFLOW"

"""Rows along a curve: in order by one column, near one another by several."""

import random
from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest

from tidegate_producers.parquet.row_sorting import curve_of


@pytest.mark.parametrize(
    "values",
    [
        [3, None, 1, 2],
        ["c", None, "a", "b"],
        [3.5, None, -1.0, 2.0],
        [date(2024, 3, 1), None, date(2024, 1, 1), date(2024, 2, 1)],
        [Decimal("3.1"), None, Decimal("1.1"), Decimal("2.1")],
    ],
)
def test_one_column_gives_its_order_with_nulls_last(values: list[object]) -> None:
    rows = pa.table({"k": pa.array(values)})
    assert curve_of(rows, [("k",)]).to_pylist() == [2, 3, 0, 1]
    nested = pa.table({"s": pa.array([{"k": value} for value in values])})
    assert curve_of(nested, [("s", "k")]).to_pylist() == [2, 3, 0, 1]
    dictionary = pa.table({"k": pa.array(values).dictionary_encode()})
    assert curve_of(dictionary, [("k",)]).to_pylist() == [2, 3, 0, 1]


def test_files_along_the_curve_hold_a_part_of_each_column() -> None:
    points = [(x, y) for x in range(32) for y in range(32)]
    random.Random(0).shuffle(points)
    rows = pa.table({"x": [x for x, _ in points], "y": [y for _, y in points]})
    ordered = rows.take(pa.array(_order(curve_of(rows, [("x",), ("y",)]).to_pylist())))
    for start in range(0, 1024, 64):
        part = ordered.slice(start, 64).to_pydict()
        assert max(part["x"]) - min(part["x"]) < 16
        assert max(part["y"]) - min(part["y"]) < 16


def _order(curve: list[int]) -> list[int]:
    return sorted(range(len(curve)), key=curve.__getitem__)

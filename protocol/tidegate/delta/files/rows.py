"""Rows of file actions, as JSON spells them, into columns: a list a column, no object a row."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, chain
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa

from tidegate.delta.errors import BrokenLog
from tidegate.delta.files.chunks import missing

Row = Mapping[str, Any]

STRINGS: Final = pa.map_(pa.string(), pa.string())


def to_columns(rows: Sequence[Row], schema: pa.Schema, where: str) -> pa.Table:
    """Return decoded file actions as a table of ADD_SCHEMA or REMOVE_SCHEMA.

    Raises: BrokenLog (`CorruptCommit`) for a missing path or a value of the wrong type.
    Spec: "Add File and Remove File"
    """
    if not rows:
        return _empty(schema)
    stated = set().union(*rows)
    there = [one for one in schema if one.name in stated]
    maps = [one for one in there if pa.types.is_map(one.type)]
    plain = [one for one in there if one not in maps]
    try:
        flat = pa.array(rows, pa.struct(plain))
        found = dict(zip((one.name for one in plain), flat.flatten(), strict=True))
        found |= {one.name: _mappings(_values(rows, one.name)) for one in maps}
        found |= {one.name: missing(len(rows), one.type) for one in schema if one not in there}
    except (pa.ArrowException, AttributeError, TypeError, OverflowError) as error:
        raise _malformed(where, error) from error
    if found["path"].null_count:
        raise _malformed(where, "no path")
    return pa.Table.from_arrays([found[one.name] for one in schema], schema=schema)


@lru_cache(maxsize=16)
def _empty(schema: pa.Schema) -> pa.Table:
    return schema.empty_table()


def _values(rows: Sequence[Row], name: str) -> Sequence[Any]:
    """Return what each row holds under a name; where all hold something, no row is asked twice."""
    try:
        return list(map(itemgetter(name), rows))
    except KeyError:
        return [row.get(name) for row in rows]


def _mappings(values: Sequence[Row | None]) -> pa.Array:
    """Return mappings of strings, written as their keys and values one after the other."""
    present = [value for value in values if value is not None]
    if not present:
        return pa.nulls(len(values), STRINGS)
    has_all = len(present) == len(values)
    sizes = [0 if value is None else len(value) for value in values]
    return pa.MapArray.from_arrays(
        pa.array(list(accumulate(sizes, initial=0)), pa.int32()),
        pa.array(list(chain.from_iterable(present)), pa.string()),
        pa.array([text for value in present for text in value.values()], pa.string()),
        mask=None if has_all else pa.array([value is None for value in values], pa.bool_()),
    )


def _malformed(where: str, why: object) -> BrokenLog:
    return BrokenLog(
        f"{where} holds a malformed file action ({why}): restore it from a backup, or the table "
        "to an earlier version",
        error_class="CorruptCommit",
    )

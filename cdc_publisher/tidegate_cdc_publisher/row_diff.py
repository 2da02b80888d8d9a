"""The net changes of a version: compares deleted and inserted rows, then pairs them by key.

A copy-on-write rewrite deletes and inserts the rows that it did not change; equal rows cancel out,
one against one. Of the rest, a deleted and an inserted row with the same key are an update if no
other row of the version has that key, and the deleted one has a value in each column that the
schema of the version requires.

`carried_table` has rows of one schema as rows of the next, as readers see them after it.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_cdc_publisher.json_rows import TEXT, map_parts, row_texts
from tidegate_cdc_publisher.record_form import PLAIN, RecordForm
from tidegate_messages.schema_announcement import Column


def carried_table(rows: pa.Table, columns: Sequence[Column], schema: pa.Schema) -> pa.Table:
    """Return rows of the schema before a change as rows of `schema`, the one after it.

    Law: as texts they are what `carried_row` makes of the texts before
    """
    arrays = [
        _carried(_array(rows, column), column, field.type, rows.num_rows)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def lacks_values(rows: pa.Table, schema: pa.Schema) -> pa.Array:
    """Return a mask of the rows that have a null where the columns of a schema allow none."""
    mask = pa.repeat(pa.scalar(False, pa.bool_()), rows.num_rows)
    for field in schema:
        if field.name in rows.column_names and _requires(field):
            mask = pc.or_(mask, _lacks(rows.column(field.name).combine_chunks(), field))
    return mask


def _requires(field: pa.Field) -> bool:
    """Return whether a field, or anything in it, may not be null."""
    kind = field.type
    inside = [kind.field(place) for place in range(kind.num_fields)]
    if pa.types.is_map(kind):
        inside = [kind.item_field]
    return not field.nullable or any(map(_requires, inside))


def _lacks(array: pa.Array, field: pa.Field) -> pa.Array:
    """Return a mask of the values that are null, or have a null inside, where none may be."""
    absent, kind = pc.is_null(array), field.type
    mask = pc.and_(absent, not field.nullable)
    inside: list[pa.Array] = []
    if pa.types.is_struct(kind):
        inside = [_lacks(*child) for child in zip(array.flatten(), kind.fields, strict=True)]
    elif pa.types.is_list(kind):
        inside = [_any_of(_offsets(array), _lacks(pc.list_flatten(array), kind.value_field))]
    elif pa.types.is_map(kind):
        offsets, _, values = map_parts(array)
        inside = [_any_of(offsets, _lacks(values, kind.item_field))]
    for lacking in inside:
        mask = pc.or_(mask, pc.and_not(lacking, absent))
    return mask


def _any_of(offsets: pa.Array, mask: pa.Array) -> pa.Array:
    """Return whether any value of each list is in a mask of the values of all."""
    if not pc.any(mask, min_count=0).as_py():
        return pa.repeat(pa.scalar(False, pa.bool_()), len(offsets) - 1)
    lists = pa.ListArray.from_arrays(offsets.cast(pa.int32()), mask)
    return pa.array([any(values) for values in lists.to_pylist()], pa.bool_())


def _array(rows: pa.Table, column: Column) -> pa.Array | None:
    if column.before is None:
        return None
    chunked = rows.column(column.before)
    return pa.concat_arrays(chunked.chunks) if chunked.num_chunks else pa.array([], chunked.type)


def _carried(array: pa.Array | None, column: Column, kind: pa.DataType, rows: int) -> pa.Array:
    if array is None:
        return pa.nulls(rows, kind)
    inside = (column.fields, column.element, column.key, column.value)
    if all(part is None for part in inside):
        return array if array.type == kind else array.cast(kind)
    if column.fields is not None:
        return _struct(array, column.fields, kind)
    if column.element is not None:
        offsets = _offsets(array)
        values = pc.list_flatten(array)
        elements = _carried(values, column.element, kind.value_type, len(values))
        return pa.ListArray.from_arrays(offsets, elements, type=kind, mask=pc.is_null(array))
    return _map(array, column, kind)


def _struct(array: pa.Array, fields: Sequence[Column], kind: pa.DataType) -> pa.Array:
    flat = dict(zip([field.name for field in array.type.fields], array.flatten(), strict=True))
    children = [
        _carried(
            None if column.before is None else flat[column.before], column, field.type, len(array)
        )
        for column, field in zip(fields, kind.fields, strict=True)
    ]
    return pa.StructArray.from_arrays(children, fields=list(kind.fields), mask=pc.is_null(array))


def _map(array: pa.Array, column: Column, kind: pa.DataType) -> pa.Array:
    assert column.key is not None, "a map"
    assert column.value is not None, "a map"
    offsets, keys, values = map_parts(array)
    entry_columns: list[Any] = [
        _carried(keys, column.key, kind.key_type, len(keys)),
        _carried(values, column.value, kind.item_type, len(values)),
    ]
    return pa.MapArray.from_arrays(offsets, *entry_columns, type=kind, mask=pc.is_null(array))


def _offsets(lists: pa.Array) -> pa.Array:
    lengths = pc.fill_null(pc.list_value_length(lists), 0).cast(pa.int32())
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])


@dataclass(frozen=True)
class Images:
    """Rows as JSON text, with their keys; `keys` is None for a stream without keys."""

    texts: pa.Array
    keys: pa.Array | None

    def __len__(self) -> int:
        """Return how many rows there are."""
        return len(self.texts)

    def slice(self, start: int, length: int | None = None) -> "Images":
        """Return `length` rows from `start` on, or all from there."""
        keys = None if self.keys is None else self.keys.slice(start, length)
        return Images(self.texts.slice(start, length), keys)


@dataclass(frozen=True)
class Changes:
    """The changes of a version, by kind, in the order in which they are published.

    `updated_before[i]` and `updated_after[i]` are the two images of one row. Each kind follows the
    order of the rows in the version's files, so the order is the same at every reading.
    """

    deleted: Images
    updated_before: Images
    updated_after: Images
    inserted: Images

    def __len__(self) -> int:
        """Return how many changes there are."""
        return len(self.deleted) + len(self.updated_after) + len(self.inserted)


def images(
    rows: pa.Table | pa.RecordBatch,
    key_columns: Sequence[str] | None,
    form: RecordForm = PLAIN,
) -> Images:
    """Return rows as text, with their keys if the stream has key columns."""
    keys = None if key_columns is None else row_texts(rows, key_columns, form.in_keys)
    return Images(row_texts(form.columns.applied(rows), types=form.in_values), keys)


@dataclass(frozen=True)
class SchemaShift:
    """A change of the schema in the version that is compared.

    `columns` and `schema` are of the new one; `old_keys` are the key columns before it.
    """

    columns: Sequence[Column]
    schema: pa.Schema
    old_keys: tuple[str, ...] | None


def compare(
    deleted: pa.Table,
    inserted: pa.Table,
    key_columns: Sequence[str] | None,
    form: RecordForm = PLAIN,
    shift: SchemaShift | None = None,
) -> Changes:
    """Return the net changes between deleted and inserted rows.

    Rows are compared and ordered by their ISO texts in every form, because other types lose
    differences; so a version may be continued in another form. With a shift, old rows are compared
    as rows of the new schema; those that are deleted remain in theirs, and those that are updated
    are published in the new one.
    Law: rows before the version - deleted - updated_before + updated_after + inserted are, as a
    multiset, rows before - `deleted` + `inserted`. No row of deleted and updated_before is also in
    updated_after and inserted.
    """
    carried = deleted if shift is None else carried_table(deleted, shift.columns, shift.schema)
    old_texts, new_texts = row_texts(carried), row_texts(inserted)
    old_kept, new_kept = _survivors(old_texts, new_texts)
    old = _images(carried, old_texts, old_kept, key_columns)
    new = _images(inserted, new_texts, new_kept, key_columns)
    lacking = lacks_values(carried, inserted.schema).filter(old_kept)
    pairs = None if old.keys is None or new.keys is None else _pairs(old.keys, new.keys, lacking)
    if not form.is_plain:
        old = images(carried.filter(old_kept), key_columns, form)
        new = images(inserted.filter(new_kept), key_columns, form)
    deleted_images = (
        old if shift is None else images(deleted.filter(old_kept), shift.old_keys, form)
    )
    if pairs is None:
        return Changes(deleted_images, _none(old), _none(new), new)
    old_paired, new_paired = pairs
    return Changes(
        _without(deleted_images, old_paired), _take(old, old_paired), _take(new, new_paired),
        _without(new, new_paired),
    )  # fmt: skip


def _survivors(old: pa.Array, new: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return two masks of the rows on each side that do not cancel out."""
    old_codes, new_codes, old_count, new_count = _counted(old, new)
    return (
        _excess(old_codes, old_count, new_count),
        _excess(new_codes, new_count, old_count),
    )


def _excess(codes: pa.Array, own_counts: pa.Array, other_counts: pa.Array) -> pa.Array:
    """Return the mask of rows that outnumber the other side's; of equal rows the last remain."""
    alone = pc.equal(other_counts, 0)
    partly = pc.and_(pc.greater(other_counts, 0), pc.greater(own_counts, other_counts))
    if not pc.any(partly).as_py():
        return alone.take(codes)
    mask = alone.take(codes).to_pylist()
    cancelled = Counter(dict(enumerate(other_counts.to_pylist())))
    doubtful = partly.take(codes).to_pylist()
    for row, (code, doubt) in enumerate(zip(codes.to_pylist(), doubtful, strict=True)):
        if doubt:
            mask[row] = cancelled[code] <= 0
            cancelled[code] -= 1
    return pa.array(mask, pa.bool_())


def _pairs(old: pa.Array, new: pa.Array, lacking: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return two aligned arrays of row indices: the rows whose key occurs once on each side.

    `lacking` is a mask of the old rows that can't be images of an update.
    """
    old_codes, new_codes, old_count, new_count = _counted(old, new)
    single = pc.and_(pc.equal(old_count, 1), pc.equal(new_count, 1))
    old_rows, new_rows = _rows_of(single, old_codes), _rows_of(single, new_codes)
    whole = pc.invert(lacking.take(old_rows))
    return old_rows.filter(whole), new_rows.filter(whole)


def _rows_of(chosen: pa.Array, codes: pa.Array) -> pa.Array:
    rows = pc.indices_nonzero(chosen.take(codes))
    return rows.take(pc.sort_indices(codes.take(rows)))


def _counted(old: pa.Array, new: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array, pa.Array]:
    """Return codes of the texts, row by row for each side, and per code its count on each side.

    Codes follow the first occurrence, the old side first.
    """
    codes = pa.concat_arrays([old, new]).dictionary_encode().indices
    old_codes, new_codes = codes.slice(0, len(old)), codes.slice(len(old))
    sides = pa.table(
        {
            "code": codes,
            "old": pa.concat_arrays([_ones(len(old)), _zeros(len(new))]),
            "new": pa.concat_arrays([_zeros(len(old)), _ones(len(new))]),
        }
    )
    totals = sides.group_by("code").aggregate([("old", "sum"), ("new", "sum")]).sort_by("code")
    counts = [totals.column(name).combine_chunks() for name in ("old_sum", "new_sum")]
    return old_codes, new_codes, counts[0], counts[1]


def _images(
    rows: pa.Table, texts: pa.Array, is_kept: pa.Array, key_columns: Sequence[str] | None
) -> Images:
    keys = None if key_columns is None else row_texts(rows.filter(is_kept), key_columns)
    return Images(texts.filter(is_kept), keys)


def _take(side: Images, rows: pa.Array) -> Images:
    return Images(side.texts.take(rows), None if side.keys is None else side.keys.take(rows))


def _without(side: Images, rows: pa.Array) -> Images:
    places = pa.array(range(len(side)), pa.int64())
    return _take(side, places.filter(pc.invert(pc.is_in(places, rows.cast(pa.int64())))))


def _none(side: Images) -> Images:
    keys = None if side.keys is None else pa.array([], TEXT)
    return Images(pa.array([], TEXT), keys)


def _ones(count: int) -> pa.Array:
    return pa.repeat(pa.scalar(1, pa.int64()), count)


def _zeros(count: int) -> pa.Array:
    return pa.repeat(pa.scalar(0, pa.int64()), count)

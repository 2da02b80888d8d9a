"""The JSON statistics of each file, whether a checkpoint holds them as text or as typed columns.

A checkpoint may hold typed statistics only. They stay typed, in one more column of the files, and
are converted only when the text is needed, so that loading a table does not pay for it.

Spec: "Per-file Statistics"
"""

from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

PARSED: Final = "stats_parsed"
"""The optional column of files beside those of ADD_SCHEMA."""

_ODD: Final = r'["\\\x00-\x1f\x7f]'
"""Matches the characters that a JSON string may have to escape (RE2)."""

_NUM_RECORDS: Final = r'"numRecords"\s*:\s*(?P<rows>[0-9]{1,18})'
_MICROSECONDS: Final = pa.timestamp("us")


def texts(files: pa.Table) -> pa.ChunkedArray:
    """Return the JSON statistics of each file; null where it has none."""
    stats = files.column("stats")
    if PARSED not in files.schema.names or stats.null_count == 0:
        return stats
    parsed = files.column(PARSED)
    needs_text = pc.and_(pc.is_null(stats), pc.is_valid(parsed))
    kept = parsed.filter(needs_text)
    rebuilt = [to_json(chunk) for chunk in kept.chunks if len(chunk)]
    if not rebuilt:
        return stats
    combined, mask = stats.combine_chunks(), needs_text.combine_chunks()
    return pa.chunked_array([pc.replace_with_mask(combined, mask, pa.concat_arrays(rebuilt))])


def row_counts(files: pa.Table) -> pa.ChunkedArray:
    """Return the `numRecords` of each file, deleted rows included; null where none is stated."""
    matches = pc.extract_regex(texts(files), _NUM_RECORDS)
    return pc.struct_field(matches, "rows").cast(pa.int64())


def with_texts(files: pa.Table) -> pa.Table:
    """Return files with all statistics as text, in the columns of ADD_SCHEMA alone.

    Spec: "Checkpoints"
    """
    if PARSED not in files.schema.names:
        return files
    index = files.schema.get_field_index("stats")
    return files.set_column(index, files.schema.field(index), texts(files)).drop_columns([PARSED])


def to_json(parsed: pa.Array) -> pa.Array:
    """Return typed statistics as JSON; a null field is left out.

    Timestamps are truncated to milliseconds, as in the statistics of a commit. NaN and infinities,
    which JSON can't represent, are left out.
    """
    if not pa.types.is_struct(parsed.type):
        return pa.nulls(len(parsed), pa.string())
    return _object(parsed)


def _object(values: pa.StructArray) -> pa.Array:
    pieces = []
    for field in values.type:
        value = _value(pc.struct_field(values, field.name))
        if value is not None:
            key = orjson.dumps(field.name).decode() + ":"
            # Each piece ends with its comma: joining with `null_handling="skip"` loses null rows.
            pieces.append(pc.fill_null(pc.binary_join_element_wise(key, value, ",", ""), ""))
    if not pieces:
        return pc.if_else(pc.is_valid(values), "{}", None)
    body = pc.ascii_rtrim(pc.binary_join_element_wise(*pieces, ""), ",")
    return pc.if_else(pc.is_valid(values), pc.binary_join_element_wise("{", body, "}", ""), None)


def _value(values: pa.Array) -> pa.Array | None:
    """Return values as JSON, null where there is none; None for a type without statistics."""
    kind = values.type
    if pa.types.is_struct(kind):
        return _object(values)
    if pa.types.is_dictionary(kind):
        return _value(values.dictionary_decode())
    if pa.types.is_floating(kind):
        finite = pc.if_else(pc.is_finite(values), values, None)
        return finite.cast(pa.string())
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_boolean(kind):
        return values.cast(pa.string())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _quoted(values.cast(pa.string()))
    if pa.types.is_date(kind):
        return pc.binary_join_element_wise('"', values.cast(pa.string()), '"', "")
    if pa.types.is_timestamp(kind):
        return _moments(values)
    return None


def _moments(values: pa.Array) -> pa.Array:
    zone = "Z" if values.type.tz else ""
    plain = values.cast(pa.timestamp("us", tz=values.type.tz), safe=False)
    floored = pc.floor_temporal(plain.cast(pa.int64()).cast(_MICROSECONDS), unit="millisecond")
    cut = floored.cast(pa.timestamp("ms")).cast(pa.string())
    timestamps = pc.replace_substring(cut, " ", "T", max_replacements=1)
    return pc.binary_join_element_wise('"', timestamps, f'{zone}"', "")


def _quoted(values: pa.Array) -> pa.Array:
    quoted = pc.binary_join_element_wise('"', values, '"', "")
    needs_escaping = pc.fill_null(pc.match_substring_regex(values, _ODD), False)
    if not pc.any(needs_escaping).as_py():
        return quoted
    fixed: list[Any] = [
        orjson.dumps(text).decode() for text in values.filter(needs_escaping).to_pylist()
    ]
    return pc.replace_with_mask(quoted, needs_escaping, pa.array(fixed, pa.string()))

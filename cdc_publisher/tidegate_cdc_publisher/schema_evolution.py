"""Which changes of a record's schema a registry takes although readers would misread old records.

A registry compares types and names, and sees neither the scale of a decimal nor what a Protobuf
field was before. A reader with the new schema would take old bytes for other values, in silence.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from tidegate_cdc_publisher.protobuf_encoding import field_number
from tidegate_cdc_publisher.record_form import Format

_Schema = Mapping[str, Any]


def misread_columns(record_format: Format, before: _Schema, after: _Schema) -> Iterator[str]:
    """Yield, as a sentence each, the columns of old records that the schema after them misreads.

    The schemas are Connect's, with field ids where the table has column mapping.
    """
    if before["type"] == after["type"] == "struct":
        if record_format == "protobuf":
            yield from _renumbered(before, after)
        old = {column["field"]: column for column in before["fields"]}
        for column in after["fields"]:
            if column["field"] in old:
                yield from misread_columns(record_format, old[column["field"]], column)
    elif before["type"] == after["type"] and before["type"] in ("array", "map"):
        part = "items" if before["type"] == "array" else "values"
        named = [{**schema[part], "field": after["field"]} for schema in (before, after)]
        yield from misread_columns(record_format, *named)
    else:
        kinds = _meaning(before), _meaning(after)
        if kinds[0] != kinds[1]:
            yield f"column {after['field']!r} was {kinds[0]} and is {kinds[1]}"


def _meaning(schema: _Schema) -> str:
    """Return the name of a type that means more than the type itself, with its parameters."""
    parameters = ", ".join(
        f"{name.removeprefix('connect.decimal.')} {value}"
        for name, value in sorted(schema.get("parameters", {}).items())
    )
    name = schema.get("name", "a plain value")
    return f"{name} ({parameters})" if parameters else name


def _renumbered(before: _Schema, after: _Schema) -> Iterator[str]:
    """Yield the fields of a message whose numbers another column had, or that have others now."""
    old_numbers = {
        column["field"]: (field_number(column, place), "id" in column)
        for place, column in enumerate(before["fields"], start=1)
    }
    old_names = {number: name for name, (number, _) in old_numbers.items()}
    for place, column in enumerate(after["fields"], start=1):
        name, number = column["field"], field_number(column, place)
        former, has_id = old_numbers.get(name, (number, False))
        taken_from = old_names.get(number, name)
        if has_id and "id" in column:
            continue  # By its id a column is itself under any name.
        if former != number:
            yield f"column {name!r} had the field number {former} and has {number}"
        elif taken_from != name and not ("id" in column and old_numbers[taken_from][1]):
            yield f"column {name!r} has the field number {number} that {taken_from!r} had"

"""Names and values of Connect schemas and payloads, as the encoders of other formats take them."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from tidegate_delta.errors import UnsupportedFeature

_ILLEGAL: Final = re.compile(r"[^A-Za-z0-9_.]")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Converter = Callable[[Any], Any]


def identifiers(name: str) -> str:
    """Return a schema's name with an identifier in each part between its dots, as Avro's and
    Protobuf's readers demand: other characters become `_`, which stands before a digit, too.
    """
    parts = _ILLEGAL.sub("_", name).split(".")
    return ".".join(part if _IDENTIFIER.fullmatch(part) else f"_{part}" for part in parts)


def check_identifier(column: str, wire_format: str) -> None:
    """Refuse a column whose name is no identifier. Raises: UnsupportedFeature."""
    if not _IDENTIFIER.fullmatch(column):
        raise UnsupportedFeature(
            f"column {column!r} has a name that {wire_format} does not allow (letters, digits and "
            "_ are allowed, and no digit at its begin); set `value_format` and `key_format` of its "
            "table to another format, or rename the column",
            feature=f"{wire_format} names",
        )


def unused(name: str, taken: set[str]) -> str:
    """Return a name, with `_` behind it until nothing else has it, and note that it is taken."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def struct_converter(
    connect: Mapping[str, Any], converter: Callable[[Mapping[str, Any]], Converter | None]
) -> Converter:
    """Return what converts each field of a struct in place, by what `converter` gives for it.

    `converter` gives None for fields whose values stay as they are.
    """
    inside = [
        (column["field"], convert)
        for column in connect["fields"]
        if (convert := converter(column)) is not None
    ]

    def convert_struct(value: dict[str, Any]) -> dict[str, Any]:
        for name, convert in inside:
            value[name] = convert(value.get(name))
        return value

    return convert_struct


def or_null(convert: Converter) -> Converter:
    """Return a converter that leaves null as it is."""
    return lambda value: None if value is None else convert(value)

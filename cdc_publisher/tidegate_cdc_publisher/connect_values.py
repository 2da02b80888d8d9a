"""Turns JSON payloads of a Connect schema into what an encoder of another format takes."""

from collections.abc import Callable, Mapping
from typing import Any

Converter = Callable[[Any], Any]


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

"""Check that a schemaString is one that every reader can parse, not only ours.

`parse_schema` is lenient with what is already in a log. Other readers are not, and one that can't
parse the schema can't read the table at all.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

import orjson

LEVELS_MAX: Final = 120
"""The greatest nesting depth of the JSON; delta-kernel fails at slightly more."""

_DECIMAL: Final = re.compile(r"decimal\( *[0-9]+ *, *[0-9]+ *\)")
_LEGACY: Final = {"null": "void", "decimal": "decimal(10,0)"}


def misspelt(schema_string: str) -> str | None:
    """Return what in a schemaString some readers do not parse, or None.

    Law: defined for texts that parse_schema accepts
    Spec: "Schema Serialization Format"
    """
    return next(_struct(orjson.loads(schema_string), "the schema", 1), None)


def _struct(plain: Any, location: str, level: int) -> Iterator[str]:
    if level > LEVELS_MAX:
        yield f"{location} is nested deeper than {LEVELS_MAX} levels of JSON"
        return
    seen = set[str]()
    for field in plain["fields"]:
        name = field["name"]
        if not isinstance(name, str) or "\0" in name:
            yield f"a field of {location} is named {name!r}, which is no text without NUL"
            return
        if name.lower() in seen:
            yield f"{location} has two fields {name!r}, which differ in case at most"
        seen.add(name.lower())
        yield from _field(field, f"the field {name!r}", level + 2)


def _field(field: Any, location: str, level: int) -> Iterator[str]:
    if not isinstance(field.get("nullable"), bool):
        yield f"{location} does not say by a boolean whether it is `nullable`"
    if not isinstance(field.get("metadata"), dict):
        yield f"{location} has no object `metadata`"
    yield from _kind(field["type"], location, level + 1)


def _kind(plain: Any, location: str, level: int) -> Iterator[str]:
    if isinstance(plain, str):
        if plain in _LEGACY:
            yield f"{location} has the type {plain!r}, which is written {_LEGACY[plain]!r}"
        elif plain.startswith("decimal") and not _DECIMAL.fullmatch(plain):
            yield f"{location} has the type {plain!r}, which lacks a precision or a scale"
    elif plain["type"] == "struct":
        yield from _struct(plain, location, level)
    elif plain["type"] == "array":
        yield from _flag(plain, "containsNull", location)
        yield from _kind(plain["elementType"], location, level + 1)
    else:
        yield from _flag(plain, "valueContainsNull", location)
        yield from _kind(plain["keyType"], location, level + 1)
        yield from _kind(plain["valueType"], location, level + 1)


def _flag(plain: Any, name: str, location: str) -> Iterator[str]:
    if not isinstance(plain[name], bool):
        yield f"{location} does not say by a boolean whether it `{name}`"

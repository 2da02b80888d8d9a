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


def _struct(plain: Any, where: str, level: int) -> Iterator[str]:
    if level > LEVELS_MAX:
        yield f"{where} is nested deeper than {LEVELS_MAX} levels of JSON"
        return
    seen = set[str]()
    for one in plain["fields"]:
        name = one["name"]
        if not isinstance(name, str) or "\0" in name:
            yield f"a field of {where} is named {name!r}, which is no text without NUL"
            return
        if name.lower() in seen:
            yield f"{where} has two fields {name!r}, which differ in case at most"
        seen.add(name.lower())
        yield from _field(one, f"the field {name!r}", level + 2)


def _field(one: Any, where: str, level: int) -> Iterator[str]:
    if not isinstance(one.get("nullable"), bool):
        yield f"{where} does not say by a boolean whether it is `nullable`"
    if not isinstance(one.get("metadata"), dict):
        yield f"{where} has no object `metadata`"
    yield from _kind(one["type"], where, level + 1)


def _kind(plain: Any, where: str, level: int) -> Iterator[str]:
    if isinstance(plain, str):
        if plain in _LEGACY:
            yield f"{where} has the type {plain!r}, which is written {_LEGACY[plain]!r}"
        elif plain.startswith("decimal") and not _DECIMAL.fullmatch(plain):
            yield f"{where} has the type {plain!r}, which lacks a precision or a scale"
    elif plain["type"] == "struct":
        yield from _struct(plain, where, level)
    elif plain["type"] == "array":
        yield from _flag(plain, "containsNull", where)
        yield from _kind(plain["elementType"], where, level + 1)
    else:
        yield from _flag(plain, "valueContainsNull", where)
        yield from _kind(plain["keyType"], where, level + 1)
        yield from _kind(plain["valueType"], where, level + 1)


def _flag(plain: Any, name: str, where: str) -> Iterator[str]:
    if not isinstance(plain[name], bool):
        yield f"{where} does not say by a boolean whether it `{name}`"

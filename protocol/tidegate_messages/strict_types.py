"""Types of fields that writers send, which take a JSON value as it is and convert nothing.

Pydantic alone would read `"0"`, `0.0` and `true` as the integer 0 or 1.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final
from uuid import UUID

from pydantic import BeforeValidator, Field, InstanceOf, JsonValue, Strict

UUID_CHARS: Final = 36
"""The length of a UUID in its usual form: 32 hexadecimal digits and four hyphens."""


def _hyphenated(value: Any) -> Any:
    if isinstance(value, str) and len(value) != UUID_CHARS:
        raise ValueError("a UUID is written with its hyphens, 8-4-4-4-12 hexadecimal digits")
    return value


_UUID_FORM: Final = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"

JsonObject = InstanceOf[Mapping[str, JsonValue]]
"""An object of JSON, as it was parsed: its values are not looked at, and not copied."""

Whole = Annotated[int, Strict()]
Count = Annotated[int, Strict(), Field(ge=0)]
Flag = Annotated[bool, Strict()]
HyphenatedUuid = Annotated[
    UUID, BeforeValidator(_hyphenated), Field(json_schema_extra={"pattern": _UUID_FORM})
]
"""A UUID in the form that record keys have, so that texts can be compared."""

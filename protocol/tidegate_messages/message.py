"""The base of all messages: frozen, snake_case, keeping unknown newer fields.

Fields that writers send have strict types: they take a JSON value as it is and convert nothing.
Pydantic alone would read `"0"`, `0.0` and `true` as the integer 0 or 1.
"""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Final, Self
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, InstanceOf, JsonValue, Strict

# A model is these four slots. Setting them directly takes half the time of `model_construct`.
_set_fields: Final = BaseModel.__dict__["__dict__"].__set__
_set_given: Final = BaseModel.__dict__["__pydantic_fields_set__"].__set__
_set_more: Final = BaseModel.__dict__["__pydantic_extra__"].__set__
_set_private: Final = BaseModel.__dict__["__pydantic_private__"].__set__


class Message(BaseModel):
    """A value that travels on a topic. Fields of a newer release are kept and passed on."""

    model_config = ConfigDict(frozen=True, extra="allow", hide_input_in_errors=True)

    @classmethod
    def trusted(cls, fields: Mapping[str, Any]) -> Self:
        """Return a message without validating its fields.

        Like `model_construct`, for messages that are made thousands of times a second.
        Law: m.trusted(vars(m)) == m, where every field of m is of its own release
        """
        instance = cls.__new__(cls)
        _set_fields(instance, {**_template(cls), **fields})
        _set_given(instance, set(fields))
        _set_more(instance, {})
        _set_private(instance, None)
        return instance


@cache
def _template(kind: type[Message]) -> Mapping[str, Any]:
    """Return the default of every field, in the order of the fields."""
    return {name: field.default for name, field in kind.model_fields.items()}


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

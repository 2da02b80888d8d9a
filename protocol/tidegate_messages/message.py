"""The base of all messages: frozen, snake_case, keeping unknown newer fields."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict

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

"""What all messages share: frozen, snake_case, and unknown newer fields survive a round trip."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Self

from pydantic import BaseModel, ConfigDict


class Message(BaseModel):
    """A value that travels on a topic. Fields of a newer release are kept and sent on."""

    model_config = ConfigDict(frozen=True, extra="allow", hide_input_in_errors=True)

    @classmethod
    def trusted(cls, fields: Mapping[str, Any], given: Iterable[str] | None = None) -> Self:
        """Return a message of fields that are known to be right: nothing is checked.

        As `model_construct`, for what is made thousands of times a second. With `given`, the names
        of those that were said, `fields` are all that there are, in their order.
        Law: m.trusted(vars(m)) == m, where every field of m is of its own release
        """
        one = cls.__new__(cls)
        whole = {**_template(cls), **fields} if given is None else fields
        object.__setattr__(one, "__dict__", whole)
        object.__setattr__(one, "__pydantic_fields_set__", set(fields if given is None else given))
        object.__setattr__(one, "__pydantic_extra__", {})
        object.__setattr__(one, "__pydantic_private__", None)
        return one


@cache
def _template(kind: type[Message]) -> Mapping[str, Any]:
    """Return what a message holds that says nothing, in the order of its fields."""
    return {name: one.default for name, one in kind.model_fields.items()}

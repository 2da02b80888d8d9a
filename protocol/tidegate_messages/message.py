"""The base of all messages: frozen, snake_case, keeping unknown newer fields."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from tidegate_messages.unvalidated_models import trusted


class Message(BaseModel):
    """A value that travels on a topic. Fields of a newer release are kept and passed on."""

    model_config = ConfigDict(frozen=True, extra="allow", hide_input_in_errors=True)

    @classmethod
    def trusted(cls, fields: Mapping[str, Any], given: set[str] | None = None) -> Self:
        """Return a message without validating its fields.

        Like `model_construct`, for messages that are made thousands of times a second. `given` are
        the names of the fields that were set. With it, `fields` must be all fields in their order,
        and both objects are kept, not copied.
        Law: m.trusted(vars(m)) == m, where every field of m is of its own release
        """
        if given is None:
            return trusted(cls, {**_template(cls), **fields}, set(fields), {})
        return trusted(cls, fields, given, {})


@cache
def _template(kind: type[Message]) -> Mapping[str, Any]:
    """Return the default of every field, in the order of the fields."""
    return {name: field.default for name, field in kind.model_fields.items()}

"""What all messages share: frozen, snake_case, and unknown newer fields survive a round trip."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from tidegate_messages.unvalidated_models import trusted


class Message(BaseModel):
    """A value that travels on a topic. Fields of a newer release are kept and sent on."""

    model_config = ConfigDict(frozen=True, extra="allow", hide_input_in_errors=True)

    @classmethod
    def trusted(cls, fields: Mapping[str, Any], given: set[str] | None = None) -> Self:
        """Return a message of fields that are known to be right: nothing is checked.

        As `model_construct`, for what is made thousands of times a second. With `given`, the names
        of those that were said, `fields` are all that there are, in their order; both are kept.
        Law: m.trusted(vars(m)) == m, where every field of m is of its own release
        """
        if given is None:
            return trusted(cls, {**_template(cls), **fields}, set(fields), {})
        return trusted(cls, fields, given, {})


@cache
def _template(kind: type[Message]) -> Mapping[str, Any]:
    """Return what a message holds that says nothing, in the order of its fields."""
    return {name: one.default for name, one in kind.model_fields.items()}

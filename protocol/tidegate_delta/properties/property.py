"""A table property: its key, default, parser, and the feature that it enables."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from tidegate_delta.errors import InvalidRequest
from tidegate_delta.log.actions import Metadata

T = TypeVar("T")


@dataclass(frozen=True)
class Property(Generic[T]):
    """A property of a table.

    `older` keys are read where the key is absent. A property that is not `settable` is written by
    engines only, never on a user's request. The feature that a property turns on names it
    (`features.supported_features`).
    Units: `unit` is what the value counts.
    Spec: "Table Properties"
    """

    key: str
    default: T
    read: Callable[[str], T]
    expected: str
    unit: str = ""
    older: tuple[str, ...] = ()
    settable: bool = True

    def __call__(self, metadata: Metadata) -> T:
        """Return the property's value. Raises: InvalidRequest for an invalid text."""
        return self.of(metadata.configuration)

    def of(self, configuration: Mapping[str, str]) -> T:
        """Return the property's value. Raises: InvalidRequest for an invalid text."""
        for key in (self.key, *self.older):
            if key in configuration:
                return self._read(key, configuration[key])
        return self.default

    def is_on(self, metadata: Metadata) -> bool:
        """Return whether its text is `true`: by any other one, valid or not, no feature is used."""
        for key in (self.key, *self.older):
            if key in metadata.configuration:
                return metadata.configuration[key].strip().lower() == "true"
        return False

    def _read(self, key: str, text: str) -> T:
        try:
            return self.read(text)
        except ValueError as error:
            raise InvalidRequest(
                f"table property {key!r} is {text!r}; expected {self.expected}: set it again",
                error_class="InvalidTableProperty",
            ) from error

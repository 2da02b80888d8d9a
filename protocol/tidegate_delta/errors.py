"""The exception hierarchy, grouped by how the caller should react.

A class decides what the caller does next (its `advice`). `error_class` names the broken rule in
words that Delta users know (`LogGap`, `VersionNotFound`, ...). Conflicts and refused proposals are
values of `tidegate_messages`, not exceptions.
"""

from copy import copy
from typing import ClassVar, Literal, Self

ErrorAdvice = Literal["retry", "set_aside", "leave", "stop", "fix"]


def _message(fault: str, remedy: str) -> str:
    return f"{fault}; {remedy}" if remedy else fault


class TidegateError(Exception):
    """The root: a message with what happened, to which table and version, and what to do.

    `remedy` is what the table's owner should do, where it is stated apart from `fault`.
    """

    advice: ClassVar[ErrorAdvice] = "stop"

    def __init__(self, message: str, *, error_class: str | None = None, remedy: str = "") -> None:
        super().__init__(_message(message, remedy))
        self.error_class = error_class or type(self).__name__
        self.fault = message
        self.remedy = remedy

    def with_fault(self, fault: str) -> Self:
        """Return the same error with another `fault` and the same remedy."""
        error = copy(self)
        error.fault = fault
        error.args = (_message(fault, self.remedy),)
        return error


class Unavailable(TidegateError):
    """The store or Kafka does not respond; nothing is known to be wrong."""

    advice: ClassVar[ErrorAdvice] = "retry"


class OutcomeUnknown(Unavailable):
    """A PUT or a proposal was sent without a response; read the log before anything else."""


class MalformedRecord(TidegateError):
    """A record that can't be read: write it to the dead-letter topic and continue.

    `what` describes the fault of the field `field`.
    """

    advice: ClassVar[ErrorAdvice] = "set_aside"

    def __init__(
        self, what: str, *, error_class: str | None = None, field: str = "(record)"
    ) -> None:
        message = what if field == "(record)" else f"field {field!r}: {what}"
        super().__init__(message, error_class=error_class)
        self.field = field
        self.what = what


class Fenced(TidegateError):
    """Another instance holds the role; leave with exit status 0."""

    advice: ClassVar[ErrorAdvice] = "leave"


class BrokenLog(TidegateError):
    """The table's log or one of its files contradicts PROTOCOL.md: a gap, a torn or missing file.

    `error_class` is one of `LogGap`, `CorruptCommit`, `CorruptCheckpoint`, `MissingProtocol`,
    `MissingMetadata`, `DataFileMissing`, `CorruptDataFile`, `CorruptChecksum`,
    `DeletionVectorMissing`, `CorruptDeletionVector`.
    """


class UnsupportedFeature(TidegateError):
    """The table requires a feature that this release does not support.

    `error_class` is `UnsupportedFeature`, or `UnsupportedProtocol` for a version out of range.
    """

    def __init__(
        self,
        message: str,
        *,
        feature: str = "",
        error_class: str | None = None,
        remedy: str = "",
    ) -> None:
        super().__init__(message, error_class=error_class, remedy=remedy)
        self.feature = feature


class Contended(TidegateError):
    """Other writers keep committing the version first."""


class InvalidRequest(TidegateError):
    """The caller asked for something that does not exist or is not allowed.

    `error_class` is the name that delta-spark or its tests use: `NotADeltaTable`,
    `VersionNotFound`, `TimestampBeforeEarliest`, `TimestampAfterLatest`, `CdfNotEnabled`,
    `InvalidVersionRange`, ...
    """

    advice: ClassVar[ErrorAdvice] = "fix"


class Misconfigured(TidegateError):
    """Settings are wrong; the message lists every fault at once."""

    advice: ClassVar[ErrorAdvice] = "fix"


def message_for(error: Exception) -> str:
    """Return a message for a Python exception that was raised by malformed data."""
    match error:
        case KeyError():
            return f"{error} is missing"
        case TypeError():
            return "something in it is of another kind than it has to be"
        case _:
            return str(error)

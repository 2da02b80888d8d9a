"""The result of checking a snapshot against its version checksum file: a value, never an error.

A wrong checksum file may be its writer's mistake. So reads go on, and the caller is told which
fields are in doubt.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Checked(Enum):
    """The outcome of comparing a version with its version checksum file.

    Spec: "State Validation"
    """

    NOT_ASKED = "not asked"
    ABSENT = "absent"
    UNREADABLE = "unreadable"
    AGREES = "agrees"
    CONTRADICTS = "contradicts"


@dataclass(frozen=True)
class ChecksumVerdict:
    """The outcome of the check, and the fields that contradict the log, as the file names them.

    Spec: "State Validation"
    """

    checked: Checked
    fields: tuple[str, ...] = ()

    @property
    def is_doubtful(self) -> bool:
        """Whether the version or its checksum file is damaged."""
        return self.checked in (Checked.UNREADABLE, Checked.CONTRADICTS)

    def __str__(self) -> str:
        verdict = self.checked.value
        return f"{verdict}: {', '.join(self.fields)}" if self.fields else verdict


NOT_ASKED: Final = ChecksumVerdict(Checked.NOT_ASKED)
ABSENT: Final = ChecksumVerdict(Checked.ABSENT)
UNREADABLE: Final = ChecksumVerdict(Checked.UNREADABLE)
AGREES: Final = ChecksumVerdict(Checked.AGREES)

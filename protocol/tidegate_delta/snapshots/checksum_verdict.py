"""What came of holding a version against its version checksum file: a value, never a refusal.

A wrong checksum file may be its writer's slip: rows are told all the same, and who reads is told
what to doubt.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Checked(Enum):
    """How a version and its version checksum file stand to each other.

    Spec: "State Validation"
    """

    NOT_ASKED = "not asked"
    ABSENT = "absent"
    UNREADABLE = "unreadable"
    AGREES = "agrees"
    CONTRADICTS = "contradicts"


@dataclass(frozen=True)
class ChecksumVerdict:
    """How they stand, and which fields contradict the log, as the file names them.

    Spec: "State Validation"
    """

    checked: Checked
    fields: tuple[str, ...] = ()

    @property
    def is_doubtful(self) -> bool:
        """Whether the version, or the file that tells of it, is damaged."""
        return self.checked in (Checked.UNREADABLE, Checked.CONTRADICTS)

    def __str__(self) -> str:
        told = self.checked.value
        return f"{told}: {', '.join(self.fields)}" if self.fields else told


NOT_ASKED: Final = ChecksumVerdict(Checked.NOT_ASKED)
ABSENT: Final = ChecksumVerdict(Checked.ABSENT)
UNREADABLE: Final = ChecksumVerdict(Checked.UNREADABLE)
AGREES: Final = ChecksumVerdict(Checked.AGREES)

"""Values of identity columns: writers put them into files, the committer keeps them unique.

A writer uses values beyond the column's high-water mark and declares them. Or it first leases a
block of values, by a proposal of its own, and uses these in later files.
"""

from typing import Annotated, Final

from pydantic import Field, PositiveInt, Strict, StringConstraints, model_validator

from tidegate_messages.message import Message
from tidegate_messages.strict_types import HyphenatedUuid

LONG_MIN: Final = -(2**63)
LONG_MAX: Final = 2**63 - 1

Long = Annotated[int, Strict(), Field(ge=LONG_MIN, le=LONG_MAX)]
ColumnName = Annotated[str, StringConstraints(min_length=1, max_length=1_024)]


class IdentityUsage(Message):
    """The least and the greatest value of an identity column in the files of a proposal.

    `column` is the physical name. `lease` is the id of the proposal that leased the block to which
    the values belong. Without it they must lie beyond the column's high-water mark.
    Spec: "Identity Columns"
    """

    column: ColumnName
    low: Long
    high: Long
    lease: HyphenatedUuid | None = None

    @model_validator(mode="after")
    def _is_a_range(self) -> "IdentityUsage":
        if self.low > self.high:
            raise ValueError("`low` is greater than `high`")
        return self


class IdentityDemand(Message):
    """A request to lease `count` values of an identity column, given by its physical name.

    Spec: "Identity Columns"
    """

    column: ColumnName
    count: Annotated[int, Strict(), Field(gt=0, le=LONG_MAX)]


class IdentityBlock(Message):
    """The values that a lease has reserved: `count` of them, `first`, `first + step`, ...

    Spec: "Identity Columns"
    """

    column: ColumnName
    first: Long
    step: Long
    count: PositiveInt

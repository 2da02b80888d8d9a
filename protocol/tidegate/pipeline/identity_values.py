"""Values of identity columns: they stand in data files, and so are settled before these.

A writer claims the values that its files hold, beyond the column's high-water mark; or it leases a
block first, by a proposal of its own, and then uses values of that block at its leisure.
"""

from typing import Annotated, Final
from uuid import UUID

from pydantic import Field, PositiveInt, StringConstraints, model_validator

from tidegate.pipeline.message import Message

LONG_MIN: Final = -(2**63)
LONG_MAX: Final = 2**63 - 1

Long = Annotated[int, Field(ge=LONG_MIN, le=LONG_MAX)]
Column = Annotated[str, StringConstraints(min_length=1, max_length=1_024)]


class IdentityUsage(Message):
    """Values of an identity column in the files of a proposal: the least and the greatest.

    `column` is the physical name. `lease` is the proposal by which the block was leased that the
    values are from; absent, they are claimed beyond the high-water mark.
    Spec: "Identity Columns"
    """

    column: Column
    low: Long
    high: Long
    lease: UUID | None = None

    @model_validator(mode="after")
    def _is_a_range(self) -> "IdentityUsage":
        if self.low > self.high:
            raise ValueError("`low` is greater than `high`")
        return self


class IdentityDemand(Message):
    """How many values of an identity column, by its physical name, a writer wants to lease.

    Spec: "Identity Columns"
    """

    column: Column
    count: Annotated[PositiveInt, Field(le=LONG_MAX)]


class IdentityBlock(Message):
    """Values that belong to one lease: `first`, `first + step`, ... `count` of them.

    Spec: "Identity Columns"
    """

    column: Column
    first: Long
    step: Long
    count: PositiveInt

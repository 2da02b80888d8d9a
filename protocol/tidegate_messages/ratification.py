"""Put-if-absent by a Kafka topic, for stores that lack it: the first valid claim gets the version.

A committer stages its bytes under a unique name, appends a record that claims a version for them,
and reads the topic partition back. Whether a record is valid depends only on the records before it,
so every reader gets the same result.
"""

from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import Field, StringConstraints

from tidegate_messages.message import Message
from tidegate_messages.proposal import Sha256, TableRoot

STAGED_NAME: Final = r"^[0-9]{20}\.[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.json$"
StagedName = Annotated[str, StringConstraints(pattern=STAGED_NAME)]


class Ratification(Message):
    """A claim to a version, or the first record of a table.

    With `staged` and `sha256` it claims `version` for the bytes of that file. Without them it says
    that the table's log ends at `version` (-1: no log), and that later versions count only if they
    are claimed on this topic.
    """

    table_root: TableRoot
    version: Annotated[int, Field(ge=-1)]
    staged: StagedName | None = None
    sha256: Sha256 | None = None

    @property
    def is_claim(self) -> bool:
        """Whether it claims a version. If not, it is the first record of a table."""
        return self.staged is not None and self.sha256 is not None


@dataclass(frozen=True)
class Ratified:
    """The state of a table after reading part of its partition: the version `head`, and its claim.

    `claim` is None while the head is the version of the table's first record. Earlier claims need
    not be kept: a committer publishes the version before the one that it claims.
    """

    head: int
    claim: Ratification | None = None


def fold(ratified: Ratified | None, record: Ratification) -> Ratified | None:
    """Return the table's state after one more of its records, in partition order.

    Only the first record without a claim counts, and no claim before it. A claim is valid iff its
    version is the one after the head. An invalid claim never has an effect.
    Law: a head is reached by one claim only, for every reader and however often it reads.
    """
    if not record.is_claim:
        return Ratified(record.version) if ratified is None else ratified
    if ratified is None or record.version != ratified.head + 1:
        return ratified
    return Ratified(record.version, record)

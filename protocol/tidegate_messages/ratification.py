"""Put-if-absent by a Kafka topic, for stores that lack it: the first valid claim has the version.

A committer stages its bytes under a unique name, appends a record that claims a version for them,
and reads the topic partition back. Whether a record is valid depends only on those before it, so
every reader comes to the same result.
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
    are claimed here.
    """

    table_root: TableRoot
    version: Annotated[int, Field(ge=-1)]
    staged: StagedName | None = None
    sha256: Sha256 | None = None

    @property
    def is_claim(self) -> bool:
        """Whether it claims a version, rather than begins a table."""
        return self.staged is not None and self.sha256 is not None


@dataclass(frozen=True)
class Ratified:
    """What a partition has decided of a table so far: the version `head`, and whose claim it was.

    `claim` is None while the head is the one with which the table began. The claims before it need
    not be kept: who claims a version has published the one before.
    """

    head: int
    claim: Ratification | None = None


def fold(ratified: Ratified | None, record: Ratification) -> Ratified | None:
    """Return what is decided once one more record of the table was read, in partition order.

    The first record that begins the table counts, and no claim before it. A claim is valid iff its
    version is the one after the head; what is not valid changes nothing, now and for ever.
    Law: a head is reached by one claim only, whoever reads, and however often.
    """
    if not record.is_claim:
        return Ratified(record.version) if ratified is None else ratified
    if ratified is None or record.version != ratified.head + 1:
        return ratified
    return Ratified(record.version, record)

"""The tables of the world: where they lie, on which topic partition, and what they are at first."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from tests import builders
from tidegate.pipeline.proposal import Operation, Proposal

Row = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """A table of the world.

    `is_found` tells one that another engine made and that is registered with its past; the others
    are created through the gate. `rows` are protocol and metaData.
    """

    number: int
    name: str
    partition: int
    rows: tuple[Row, Row]
    is_found: bool = False

    @property
    def id(self) -> UUID:
        """The registry's id of the table."""
        return UUID(int=0xA0 + self.number)

    @property
    def root(self) -> str:
        """The URI of its root."""
        return f"memory://tables/{self.name}"

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The columns by which its files are partitioned."""
        return tuple(self.rows[1]["metaData"]["partitionColumns"])

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties that it is created with, with `delta.`."""
        told: Mapping[str, str] = self.rows[1]["metaData"]["configuration"]
        return told

    def opening(self, proposal_id: UUID) -> Proposal:
        """Return the proposal that makes the gate serve the table."""
        told: Row = {"proposal_id": proposal_id, "table": self.id, "table_root": self.root}
        if self.is_found:
            return builders.proposal(kind="register", read_version=0, **told)
        operation = Operation(name="CREATE TABLE")
        return builders.proposal(*self.rows, read_version=-1, operation=operation, **told)


VECTORS: Final = ("deletionVectors",)
PROTOCOL: Final = builders.protocol(3, 7, readerFeatures=VECTORS, writerFeatures=VECTORS)
TABLES = (
    Table(0, "made", 0, (PROTOCOL, builders.metadata(enableDeletionVectors="true"))),
    Table(
        1, "found", 0, (PROTOCOL, builders.metadata(enableDeletionVectors="true")), is_found=True
    ),
    Table(2, "split", 1, (PROTOCOL, builders.metadata(("p",), enableDeletionVectors="true"))),
)
"""One is made through the gate, one is found, one has partitions and another topic partition."""

"""The tables of the world: their roots, their topic partitions and their first metadata."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from tests import builders
from tidegate_messages.proposal import Operation, Proposal

Row = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """A table of the world.

    `is_found`: another engine created it, and it is registered with its earlier versions; the
    others are created by a proposal. `rows` are protocol and metaData.
    """

    number: int
    name: str
    partition: int
    rows: tuple[Row, Row]
    is_found: bool = False

    @property
    def id(self) -> UUID:
        """The table's id in the registry, which selects one of two topic partitions."""
        return UUID(int=0xA0 + 2 * self.number + self.partition)

    @property
    def root(self) -> str:
        """The URI of its root."""
        return f"memory://tables/{self.name}"

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """Its partition columns."""
        return tuple(self.rows[1]["metaData"]["partitionColumns"])

    @property
    def is_numbered(self) -> bool:
        """Whether it has an identity column."""
        return "identityColumns" in self.rows[0]["protocol"]["writerFeatures"]

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties at creation, with the prefix `delta.`."""
        result: Mapping[str, str] = self.rows[1]["metaData"]["configuration"]
        return result

    def opening(self, proposal_id: UUID) -> Proposal:
        """Return the proposal that creates or registers the table."""
        result: Row = {"proposal_id": proposal_id, "table": self.id, "table_root": self.root}
        if self.is_found:
            return builders.proposal(kind="register", read_version=0, **result)
        operation = Operation(name="CREATE TABLE")
        return builders.proposal(*self.rows, read_version=-1, operation=operation, **result)


VECTORS: Final = ("deletionVectors",)


def _protocol(*features: str) -> Row:
    return builders.protocol(3, 7, readerFeatures=VECTORS, writerFeatures=(*VECTORS, *features))


def _numbered(row: Row) -> Row:
    """Return metaData with an added identity column whose values the writer may leave out."""
    schema = json.loads(row["metaData"]["schemaString"])
    own = {"start": 1, "step": 1, "allowExplicitInsert": True}
    about = {f"delta.identity.{name}": value for name, value in own.items()}
    schema["fields"].append({"name": "id", "type": "long", "nullable": True, "metadata": about})
    return {"metaData": {**row["metaData"], "schemaString": json.dumps(schema)}}


_ON: Final = {"enableDeletionVectors": "true"}
_FED: Final = {**_ON, "enableChangeDataFeed": "true"}
TABLES = (
    Table(0, "made", 0, (_protocol("identityColumns"), _numbered(builders.metadata(**_ON)))),
    Table(1, "found", 0, (_protocol("changeDataFeed"), builders.metadata(**_FED)), is_found=True),
    Table(2, "split", 1, (_protocol(), builders.metadata(("p",), **_ON))),
)
"""The first is created by a proposal and has an identity column, the second is found and has a
change feed, the third has partitions and another topic partition.
"""

"""A table's definition (metaData and protocol), and the flaws that checks find in it.

Spec: "Change Metadata"
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from tidegate_delta.errors import InvalidRequest
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_delta.log.protocol_versions import supported_features
from tidegate_delta.schema.types import StructType, parse_schema


class Definition(NamedTuple):
    """A table's metaData and protocol."""

    metadata: Metadata
    protocol: Protocol

    @property
    def schema(self) -> StructType:
        """The parsed schema. Raises: as `parse_schema`."""
        return parse_schema(self.metadata.schema_string)

    @property
    def supported(self) -> frozenset[str]:
        """The features that the protocol supports."""
        return supported_features(self.protocol)


@dataclass(frozen=True)
class Flaw:
    """A broken rule: its name, the field, the reason, and the remedy.

    `error_class` is delta-spark's for the same fault, where it has one.
    Spec: "Writer Requirements"
    """

    rule: str
    field: str
    reason: str
    remedy: str
    error_class: str | None = None

    def __str__(self) -> str:
        return f"{self.field} {self.reason}: {self.remedy}"


def refuse(flaws: Iterable[Flaw], table: str) -> None:
    """Refuse a table that has flaws, naming them all.

    Raises: InvalidRequest, with the error class of the first.
    Spec: "Writer Requirements"
    """
    found_flaws = tuple(flaws)
    if found_flaws:
        raise InvalidRequest(
            f"table {table} cannot be so: " + "; ".join(map(str, found_flaws)),
            error_class=found_flaws[0].error_class or found_flaws[0].rule,
        )


def configured(key: str) -> str:
    """Return the name of a property as flaws write it."""
    return f"metaData.configuration.{key}"

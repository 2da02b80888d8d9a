"""The settings of the publisher: the section `cdc` beside what every service is told."""

from typing import Literal

from pydantic import Field

from tidegate_runtime.service.settings import Section, ServiceSettings


class TableChanges(Section):
    """How one table's changes are published.

    `key_columns` stands above the table property `tidegate.cdc.keyColumns`. `key: none` publishes
    without keys, on a topic with one partition and without tombstones.
    """

    key: Literal["columns", "none"] = "columns"
    key_columns: tuple[str, ...] = ()
    tombstones: bool = True
    snapshot_mode: Literal["initial", "no_data"] | None = None


class CdcSection(Section):
    """What holds for all tables, and what for some, by their registered names."""

    tables: dict[str, TableChanges] = Field(default_factory=dict)
    snapshot_mode: Literal["initial", "no_data"] = "initial"
    """`initial` publishes the rows that are there first; `no_data` begins with the next version."""
    chunk_rows: int = Field(default=20_000, ge=1, le=100_000)
    """Changes in one Kafka transaction."""
    partitions: int = Field(default=1, ge=1, le=10_000)
    """Partitions of a change topic that the publisher creates."""
    transaction_timeout_ms: int = Field(default=30_000, ge=2_000, le=900_000)
    look_s: float = Field(default=30.0, gt=0)
    """Seconds between two looks at the registry and the logs, besides the doorbells."""


class CdcSettings(ServiceSettings):
    """All that the publisher is told."""

    cdc: CdcSection = CdcSection()

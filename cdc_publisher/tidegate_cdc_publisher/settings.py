"""The publisher's settings: the section `cdc` beside those of every service."""

from typing import Final, Literal

from pydantic import Field

from tidegate_cdc_publisher.record_form import Format, RecordForm
from tidegate_runtime.service.settings import Section, ServiceSettings


class TableChanges(Section):
    """How one table's changes are published.

    `key_columns` overrides the table property `tidegate.cdc.keyColumns`. `key: none` publishes
    without keys and tombstones, on a topic with one partition. What is None is as for all tables.
    """

    key: Literal["columns", "none"] = "columns"
    key_columns: tuple[str, ...] = ()
    tombstones: bool = True
    snapshot_mode: Literal["initial", "no_data"] | None = None
    value_format: Format | None = None
    key_format: Format | None = None


_AS_SET: Final = TableChanges()


class CdcSection(Section):
    """Settings for all tables, and for single tables by their registered names."""

    tables: dict[str, TableChanges] = Field(default_factory=dict)
    snapshot_mode: Literal["initial", "no_data"] = "initial"
    """`initial` publishes the existing rows first; `no_data` begins with the next version."""
    value_format: Format = "json"
    """`json_schema` gives each value its Kafka Connect schema."""
    key_format: Format = "json"
    chunk_rows: int = Field(default=20_000, ge=1, le=100_000)
    """Maximum number of changes in one Kafka transaction."""
    partitions: int = Field(default=1, ge=1, le=10_000)
    """Partitions of a change topic that the publisher creates."""
    transaction_timeout_ms: int = Field(default=30_000, ge=2_000, le=900_000)
    look_s: float = Field(default=30.0, gt=0)
    """Seconds between two passes over the registry and the logs, in addition to notifications."""

    def form(self, table: str) -> RecordForm:
        """Return how the records of a table are written; its own settings have precedence."""
        of_table = self.tables.get(table, _AS_SET)
        return RecordForm(
            value_format=of_table.value_format or self.value_format,
            key_format=of_table.key_format or self.key_format,
        )


class CdcSettings(ServiceSettings):
    """All settings of the publisher."""

    cdc: CdcSection = CdcSection()

"""The checkpointer's settings: its own section beside those of every service."""

from pydantic import Field

from tidegate_runtime.service.settings import Section, ServiceSettings


class CheckpointerSection(Section):
    """Intervals. The checkpoint interval is a property of each table instead."""

    compaction_interval: int = Field(default=5, ge=2, le=1000)
    """Versions in one log compaction."""
    look_s: float = Field(default=30.0, gt=0)
    """Seconds between two passes over the registry and the logs, in addition to notifications."""

    state_bytes_max: int = Field(default=1 << 30, ge=0)
    """Bytes of memory for the states of tables between checkpoints, some 100 for each live file; a
    table that has none is read again from its newest checkpoint on."""


class CheckpointerSettings(ServiceSettings):
    """All settings of the checkpointer."""

    checkpointer: CheckpointerSection = CheckpointerSection()

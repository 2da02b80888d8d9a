"""The settings of the checkpointer: its own section beside what every service is told."""

from pydantic import Field

from tidegate_runtime.service.settings import Section, ServiceSettings


class CheckpointerSection(Section):
    """How often. How often a table is checkpointed is the table's own property."""

    compaction_interval: int = Field(default=5, ge=2, le=1000)
    """Versions in one log compaction."""
    look_s: float = Field(default=30.0, gt=0)
    """Seconds between two looks at the registry and the logs, besides the doorbells."""


class CheckpointerSettings(ServiceSettings):
    """All that the checkpointer is told."""

    checkpointer: CheckpointerSection = CheckpointerSection()

"""The settings of the operations page: the section `console` beside those of every service."""

from pydantic import Field

from tidegate_runtime.service.settings import Section, ServiceSettings


class ConsoleSection(Section):
    """Where the page is, how often it reads Kafka, and whether it may change something."""

    host: str = "127.0.0.1"
    port: int = Field(default=8090, ge=0, le=65535)
    refresh_s: float = Field(default=5.0, ge=1)
    """Seconds between two readings of Kafka, however many browsers are open."""
    operator_token_location: str | None = None
    """The file with the token by which operators sign in; without it nothing can be changed."""


class ConsoleSettings(ServiceSettings):
    """All settings of the operations page."""

    console: ConsoleSection = ConsoleSection()

"""A rule in words."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Refusal:
    """A rule in words: why it refuses, and the way out."""

    cause: str
    remedy: str

"""What the committer's shell is given: the doors, the settings, and the named points of failure."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final
from uuid import UUID

from tidegate.committer import puts
from tidegate.committer.background import AtOnce, Background
from tidegate.committer.proposals.policy import Policy
from tidegate.committer.puts import Puts
from tidegate.committer.settings import CommitterSection
from tidegate.pipeline.topics import Topics
from tidegate.runtime import failpoints
from tidegate.runtime.bus import Bus
from tidegate.runtime.clock import Clock
from tidegate.runtime.stores.log_store import LogStore

FAILPOINTS: Final = (
    "after_read",
    "after_take",
    "after_load",
    "after_decide",
    "before_put",
    "after_put",
    "before_resolve",
    "after_register",
    "after_outcomes",
    "after_commits",
    "before_flush",
    "after_flush",
    "after_state",
    "before_offsets",
    "after_offsets",
)
"""Every point at which a test may kill the committer, in the order in which they are passed."""


def _taken_as_it_comes(store: LogStore) -> None:
    """Let a store pass."""


def _nothing(at_leisure: bool, is_idle: bool) -> None:
    """Do nothing."""


@dataclass(frozen=True)
class Doors:
    """The world outside. `new_id` rolls the dice; `engine` names the release.

    `process` names the operating system's process, from its start to its death; without one each
    loop counts as a process.
    `background` asks stores for what nobody waits for, `loads` reads tables that somebody may,
    `reads` what decisions need besides. These and `puts` come one after the other unless a service
    is given threads for them.
    `tidy` is called after each step, and told whether nobody waits for a moment, and whether
    nothing is under way at all.
    `vet` lets a store pass before the first table on it is accepted. Raises: Misconfigured;
    Unavailable.
    """

    bus: Bus
    topics: Topics
    open_store: Callable[[str], LogStore]
    clock: Clock
    new_id: Callable[[], UUID]
    settings: CommitterSection
    engine: str = "Tidegate"
    puts: Puts = field(default_factory=puts.AtOnce)
    background: Background = field(default_factory=AtOnce)
    loads: Background = field(default_factory=AtOnce)
    reads: Background = field(default_factory=AtOnce)
    tidy: Callable[[bool, bool], None] = _nothing
    vet: Callable[[LogStore], None] = _taken_as_it_comes
    process: str = ""

    def close(self) -> None:
        """Ask stores for nothing more; what flies goes on by itself."""
        for one in (self.puts, self.background, self.loads, self.reads):
            one.close()

    @cached_property
    def policy(self) -> Policy:
        """What the operator allows, as the judgement is told it."""
        return self.settings.policy


def reach(point: str, about: object = "") -> None:
    """Pass one of FAILPOINTS, with the id of what it is about."""
    assert point in FAILPOINTS, "a point has a name that tests can know"
    failpoints.reach(point, about)

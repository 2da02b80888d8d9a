"""The committer loop's dependencies: Kafka, stores, clock, threads, settings; its failpoints."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final
from uuid import UUID

from tidegate_committer.policy import Policy
from tidegate_committer.settings import CommitterSection
from tidegate_committer.state.version_history import HistoryBudget
from tidegate_committer.store_executor import InlineExecutor, StoreExecutor
from tidegate_messages.topics import Topics
from tidegate_runtime import failpoints
from tidegate_runtime.clock import Clock
from tidegate_runtime.kafka.client_protocols import Bus, NoReplies, Replies
from tidegate_runtime.storage.log_store import LogStore

FAILPOINTS: Final = (
    "after_read",
    "after_take",
    "after_load",
    "after_decide",
    "before_put",
    "after_put",
    "before_resolve",
    "after_claim",
    "after_register",
    "after_move",
    "after_outcomes",
    "after_commits",
    "before_flush",
    "after_flush",
    "after_state",
    "before_offsets",
    "after_offsets",
)
"""Every point at which a test may kill the committer, in the order in which they are passed."""


def _accept_any_store(store: LogStore) -> None:
    """Accept a store unchecked."""


def _nothing(at_leisure: bool, is_idle: bool) -> None:
    """Do nothing."""


@dataclass(frozen=True)
class Dependencies:
    """The interfaces to the outside world, so that tests can replace each of them.

    `new_id` returns random UUIDs. `engine` is our release, as written into commitInfo. `process`
    identifies the operating system process; if it is empty, each loop counts as a process.
    Stores are read in `background` (audits and probes, on which nothing waits), `loads` (whole
    tables) and `reads` (what decisions need). PUTs go through `puts`. The default executors use
    no threads: they finish each call before they return.
    `tidy` is called after each step, with two flags: whether there is time to spare, and whether
    nothing is in progress at all. `vet` checks a store before the first table on it is accepted.
    Raises: Misconfigured; Unavailable.
    """

    bus: Bus
    topics: Topics
    open_store: Callable[[str], LogStore]
    clock: Clock
    new_id: Callable[[], UUID]
    settings: CommitterSection
    engine: str = "Tidegate"
    puts: StoreExecutor = field(default_factory=InlineExecutor)
    background: StoreExecutor = field(default_factory=InlineExecutor)
    loads: StoreExecutor = field(default_factory=InlineExecutor)
    reads: StoreExecutor = field(default_factory=InlineExecutor)
    tidy: Callable[[bool, bool], None] = _nothing
    vet: Callable[[LogStore], None] = _accept_any_store
    histories: HistoryBudget = field(default_factory=HistoryBudget)
    process: str = ""
    replies: Replies = field(default_factory=NoReplies)

    def close(self) -> None:
        """Start no more reads, PUTs and replies; those in flight may still finish."""
        for executor in (self.puts, self.background, self.loads, self.reads, self.replies):
            executor.close()

    @cached_property
    def policy(self) -> Policy:
        """The operator's limits, in the form that the pure code takes."""
        return self.settings.policy


def reach(point: str, object_id: object = "") -> None:
    """Pass one of FAILPOINTS, with the id of the object that it concerns."""
    assert point in FAILPOINTS, "a point has a name that tests can know"
    failpoints.reach(point, object_id)

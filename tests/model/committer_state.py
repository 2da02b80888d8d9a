"""The state of the committer's model: one table, one topic partition, some committers.

Rows are the ids of the operations that were applied, so a correct snapshot of version v holds
exactly the ids of the operations committed up to v.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, NamedTuple

Phase = Literal[
    "off", "fencing", "loading", "ready", "waiting", "resolving", "publishing", "published"
]

ALIVE: Final = ("ready", "waiting", "resolving", "publishing", "published")
"""Phases in which a committer relies on what it has read of the log."""


class Operation(NamedTuple):
    """What a proposal does to the table: it adds a file with these rows, and removes files."""

    id: str
    rows: tuple[str, ...]
    removes: frozenset[str]


class Record(NamedTuple):
    """A proposal on the topic; `read` is the number of versions when it was started.

    For a verbatim proposal `id` is the attempt, and `read` the version that its bytes are for.
    """

    id: str
    read: int
    rows: tuple[str, ...]
    removes: frozenset[str]


class Entry(NamedTuple):
    """A version: its writer (a generation, 0 for others, or the bytes' name), and its content."""

    token: Hashable
    operations: tuple[Operation, ...]
    refused: tuple[str, ...]


class Outcome(NamedTuple):
    """An outcome: C committed at a version, R rejected, E expired or denied, with the reason."""

    id: str
    status: Literal["C", "R", "E"]
    reason: int | str


class Plan(NamedTuple):
    """A pending decision: the version, its entry, the offset after it, and the outcomes.

    `place` is the offset of the record that it decides, if that is a verbatim proposal.
    """

    version: int
    entry: Entry | None
    end: int
    outcomes: tuple[Outcome, ...]
    place: int = -1


class Put(NamedTuple):
    """A pending request to the store."""

    version: int
    entry: Entry
    sender: int


class Committer(NamedTuple):
    """A committer: what it has read of topic and log, and what it is doing.

    `known` is the memory of a committer that relies on its own; `unpublished` are decided but
    unpublished outcomes, each with its offset.
    """

    phase: Phase
    generation: int = 0
    position: int = 0
    head: int = 0
    plan: Plan | None = None
    known: frozenset[Outcome] = frozenset()
    unpublished: tuple[tuple[int, tuple[Outcome, ...]], ...] = ()


class Group(NamedTuple):
    """Kafka's state: generation, owner, offset, and the generation below which it fences."""

    generation: int
    owner: int
    offset: int
    fence: int


class Budget(NamedTuple):
    """The faults and events that may still happen."""

    rebalances: int
    repeats: int
    drops: int
    timeouts: int
    rule_changes: int
    cleanups: int
    torn: int


class External(NamedTuple):
    """Another engine on the same log: idle, or with a transaction based on what it read."""

    head: int
    work: Operation | None
    kind: str
    left: int


class Writer(NamedTuple):
    """A foreign writer: its phase, the version it aims at, and how often it was refused.

    `refused_for_native` counts the refusals that a native group caused; `attempt` names the bytes.
    """

    phase: Literal["new", "staged", "sent", "refused", "ok", "conflict", "failed", "unknown"]
    version: int = 0
    refused: int = 0
    refused_for_native: int = 0
    attempt: str = ""
    rows: tuple[str, ...] = ()
    removes: frozenset[str] = frozenset()


class Hold(NamedTuple):
    """The writers for which a committer holds native groups, and the records decided ahead."""

    writers: frozenset[str] = frozenset()
    settled: frozenset[int] = frozenset()
    may_begin: bool = True


class Extras(NamedTuple):
    """The events that may still happen to verbatim proposals."""

    replays: int
    gaps: int
    impatient: int
    expiries: int
    spoils: int


class Foreign(NamedTuple):
    """State beside the native protocol; `lost` are staged files that no longer exist."""

    writers: tuple[Writer, ...]
    holds: tuple[Hold, ...]
    extras: Extras
    lost: frozenset[str] = frozenset()


class State(NamedTuple):
    """The whole state. `log` holds None where a version is missing below a later one."""

    proposals: tuple[Record | None, ...]
    topic: tuple[Record, ...]
    log: tuple[Entry | None, ...]
    network: frozenset[Put]
    committers: tuple[Committer, ...]
    group: Group
    outcomes: frozenset[Outcome]
    budget: Budget
    external: External
    denies: bool
    floor: int
    broken: str
    foreign: Foreign | None = None


@dataclass(frozen=True)
class Setting:
    """The rules in force and the faults that may happen. The defaults are the protocol's rules.

    `kinds` has a letter for each proposal: A appends blindly, W rewrites all that it read.
    `deniable` are the proposals, by number, that the admission rule may refuse when it `denies`.
    """

    kinds: str = "AW"
    committers: int = 2
    group_max: int = 1
    group_is_checked: bool = True
    puts_if_absent: bool = True
    external: str = ""
    external_max: int = 1
    external_puts_if_absent: bool = True
    dedupe: Literal["window", "memory", "none"] = "window"
    looks_for_id_first: bool = True
    compares: bool = True
    library_retries: bool = True
    refusals: Literal["told", "logged", "claimed"] = "told"
    deniable: str = ""
    rule_changes: int = 0
    denies_first: bool = False
    publishing: Literal["transaction", "plain", "torn"] = "transaction"
    is_fenced: bool = True
    offsets_are_fenced: bool = True
    fences_first: bool = True
    repeats_are_the_same: bool = True
    rebalances: int = 1
    repeats: int = 1
    drops: int = 0
    timeouts: int = 1
    cleanups: int = 0
    puts_expire: bool = True
    views_expire: bool = True
    too_old: Literal["expired", "rejected"] = "expired"
    pipelines: bool = False
    behind_max: int = 0
    publishes_in_order: bool = True
    asks_again: bool = False
    unchecked: tuple[str, ...] = ()


@lru_cache(maxsize=1_000_000)
def snapshot(log: tuple[Entry | None, ...]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the live files and their rows after all versions of a log."""
    if not log:
        return ()
    files = dict(snapshot(log[:-1]))
    entry = log[-1]
    if entry is not None:
        for operation in entry.operations:
            for path in operation.removes:
                files.pop(path, None)
        for operation in entry.operations:
            files[operation.id] = operation.rows
    return tuple(sorted(files.items()))


@lru_cache(maxsize=1_000_000)
def misread(log: tuple[Entry | None, ...]) -> str | None:
    """Return how a version differs from what was committed up to it, or None."""
    if not log:
        return None
    earlier = misread(log[:-1])
    if earlier:
        return earlier
    wanted = sorted(operation.id for entry in log if entry for operation in entry.operations)
    there = sorted(row for _, rows in snapshot(log) for row in rows)
    if wanted != there:
        return f"version {len(log) - 1} reads {there}, history says {wanted}"
    return None


def made_of(log: tuple[Entry | None, ...], kind: str, own: str) -> Operation:
    """Return the operation that a writer of a kind derives from the log that it has read."""
    if kind == "A":
        return Operation(own, (own,), frozenset())
    files = snapshot(log)
    rows = tuple(sorted(row for _, rows in files for row in rows))
    return Operation(own, (*rows, own), frozenset(path for path, _ in files))


def head_of(log: tuple[Entry | None, ...]) -> int:
    """Return the number of versions before the first gap."""
    return log.index(None) if None in log else len(log)

"""What must hold of the tables and the topics, whatever happened: named predicates.

They see what anybody can see, bytes in the store and records on the topics, and share no code with
the committer. A predicate returns a sentence when it is broken, None when it holds.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.row_writers import rows_of
from tidegate.pipeline.topics import Topics
from tidegate.runtime.bus import Record, TopicPartition
from tidegate.runtime.memory import MemoryStore
from tidegate.runtime.memory_bus import MemoryBus

Rows = list[dict[str, Any]]


@dataclass
class Log:
    """A table's log as it was seen: bytes and rows by version.

    `is_found` tells a table that was registered, with a past that need not be told.
    """

    store: MemoryStore
    is_found: bool = False
    files: dict[int, bytes] = field(default_factory=dict)
    entries: list[Rows] = field(default_factory=list)

    def names(self) -> dict[int, str]:
        """Return the commit files there are, by version."""
        found = (name.rpartition("/")[2] for name in self.store.files)
        return {int(name[:20]): f"_delta_log/{name}" for name in found if name.endswith(".json")}

    def provenance(self, version: int) -> dict[str, Any]:
        """Return the committer's part of an entry, or {} for another writer's."""
        told: dict[str, Any] = _info(self.entries[version]).get("tidegate") or {}
        return told


@dataclass
class History:
    """Everything that was seen so far. `sent` are the proposals by offset, as their writers made
    them: table root, id, SHA-256 and the body, or None for what is no proposal."""

    bus: MemoryBus
    topics: Topics
    logs: dict[str, Log] = field(default_factory=dict)
    outcomes: list[dict[str, Any]] = field(default_factory=list)
    commits: list[dict[str, Any]] = field(default_factory=list)
    sent: list[dict[str, Any] | None] = field(default_factory=list)
    answered: set[str] = field(default_factory=set)
    letters: int = 0

    def look(self) -> bool:
        """Take in what is new; return whether anything was."""
        before = (len(self.outcomes), len(self.commits), len(self.sent), self.letters)
        for record in self._since(self.topics.outcomes, len(self.outcomes)):
            outcome = json.loads(record.value or b"")
            self.outcomes.append(outcome)
            self.answered.add(f"{outcome['proposal_id']}/{outcome['proposal_sha256']}")
        for record in self._since(self.topics.commits, len(self.commits)):
            self.commits.append(json.loads(record.value or b""))
        for record in self._since(self.topics.proposals, len(self.sent)):
            self.sent.append(_sent(record))
        self.letters = len(self.bus.logs[TopicPartition(self.topics.dead_letters, 0)])
        grown = [self._read(log) for log in self.logs.values()]
        return any(grown) or before != (
            len(self.outcomes),
            len(self.commits),
            len(self.sent),
            self.letters,
        )

    def accepted(self) -> Iterator[tuple[str, int, int, dict[str, Any]]]:
        """Yield root, version, place and provenance of every accepted proposal."""
        for root, log in self.logs.items():
            for version in range(len(log.entries)):
                for place, one in enumerate(log.provenance(version).get("accepted", ())):
                    yield root, version, place, one

    def registry(self) -> dict[str, dict[str, Any]]:
        """Return the last registration of each table."""
        records = self._since(self.topics.table_state, 0)
        return {str(record.key): json.loads(record.value or b"") for record in records}

    def digest(self) -> str:
        """Return a hash of everything that was seen: equal histories have equal ones."""
        told = [self.outcomes, self.commits, [log.entries for log in self.logs.values()]]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()

    def _since(self, topic: str, start: int) -> list[Record]:
        return self.bus.logs[TopicPartition(topic, 0)][start:]

    def _read(self, log: Log) -> bool:
        start = len(log.entries)
        for version in range(start, start + 1_000):
            content = log.store.files.get(f"_delta_log/{version:020d}.json")
            if content is None:
                break
            log.files[version] = content
            log.entries.append([json.loads(line) for line in content.splitlines()])
        return len(log.entries) > start


def exactly_once(history: History) -> str | None:
    """I1: an id is in at most one entry, once, and a file that it adds joins nowhere else."""
    seen: dict[str, tuple[str, int]] = {}
    for root, version, _, one in history.accepted():
        if one["id"] in seen:
            return f"{one['id']} is in {seen[one['id']]} and in {(root, version)}"
        seen[one["id"]] = (root, version)
    for root, log in history.logs.items():
        joined: dict[str, int] = {}
        for version, rows in enumerate(log.entries):
            gone = _paths(rows, "remove")
            for path in _paths(rows, "add"):
                # A file with another vector leaves and comes back: that is no second joining.
                if path in gone:
                    continue
                if path in joined:
                    return f"{path} joined {root} in {joined[path]} and in {version}"
                joined[path] = version
    return None


def no_overwrite(history: History) -> str | None:
    """I2: a version, once visible, does not change or disappear."""
    for root, log in history.logs.items():
        for version, content in log.files.items():
            if log.store.files.get(f"_delta_log/{version:020d}.json") != content:
                return f"version {version} of {root} changed"
    return None


def no_gap(history: History) -> str | None:
    """I3: versions are contiguous whenever anybody looks."""
    for root, log in history.logs.items():
        versions = sorted(log.names())
        if versions != list(range(len(versions))):
            return f"{root} has versions {versions}"
    return None


def consistent_read(history: History) -> str | None:
    """I4: every removal takes a live file away, every file joins once; so versions add up."""
    for root, log in history.logs.items():
        live: set[str] = set()
        for version, rows in enumerate(log.entries):
            gone = _paths(rows, "remove")
            if not set(gone) <= live:
                return f"version {version} of {root} removes {sorted(set(gone) - live)}, not live"
            live.difference_update(gone)
            live.update(_paths(rows, "add"))
    return None


def outcome_agreement(history: History) -> str | None:
    """I5: committed(v) says that v holds it; rejected, that nothing does, now or ever."""
    held = {(one["id"], one["sha256"]): version for _, version, _, one in history.accepted()}
    for outcome in history.outcomes:
        key = (_target(history, outcome), outcome["proposal_sha256"])
        version = held.get(key)
        if _kind(history, outcome) == "cancel":
            version = next((v for (one, _), v in held.items() if one == key[0]), None)
        if _kind(history, outcome) == "register":
            continue
        if outcome["status"] == "committed" and version != outcome["version"]:
            return f"{key[0]} told committed at {outcome['version']}, the log has {version}"
        if outcome["status"] == "rejected" and version is not None:
            return f"{key[0]} told rejected ({outcome['rejection']['rule']}), but is in {version}"
    return None


def offset_safe(history: History) -> str | None:
    """I6: the group's offset passes a delivery only when its answer is published."""
    at = TopicPartition(history.topics.proposals, 0)
    passed = history.bus.committed(f"{history.topics.prefix}committer").get(at, 0)
    for offset in range(passed):
        one = history.sent[offset]
        if one is not None and f"{one['id']}/{one['sha256']}" not in history.answered:
            return f"offset {passed} was recorded, {one['id']} at {offset} has no outcome"
    return None


def no_conflict(history: History) -> str | None:
    """I8: nothing that an accepted proposal read was changed after its read version."""
    bodies = {f"{one['id']}/{one['sha256']}": one for one in history.sent if one is not None}
    for root, version, place, one in history.accepted():
        body = bodies[f"{one['id']}/{one['sha256']}"]["body"]
        reads = body.get("reads", {})
        seen, whole = set(reads.get("files", ())), bool(reads.get("whole_table"))
        if not seen and not whole:
            continue
        log = history.logs[root]
        mates = log.provenance(version)["accepted"][:place]
        earlier = [bodies[f"{mate['id']}/{mate['sha256']}"]["body"]["actions"] for mate in mates]
        since = range(body["read_version"] + 1, version)
        minds = not reads.get("delete_insensitive")
        for rows in (*(log.entries[other] for other in since), *earlier):
            gone, came = set(_paths(rows, "remove")), _paths(rows, "add")
            gone -= set() if minds else _only_lost_rows(log.store, rows)
            if seen & gone or (whole and (gone or came)):
                return f"{one['id']} in {version} of {root} read what changed after it looked"
    return None


def monotone_time(history: History) -> str | None:
    """I9: a version of ours is later than the one before it."""
    for root, log in history.logs.items():
        latest = -1
        for version, rows in enumerate(log.entries):
            told = int(_info(rows).get("timestamp", 0))
            if log.provenance(version) and told <= latest:
                return f"version {version} of {root} is not later than the one before it"
            latest = told
    return None


def dense_events(history: History) -> str | None:
    """I10: versions are told in order, none left out; what is told again is the same."""
    told: dict[str, dict[int, dict[str, Any]]] = {}
    for event in history.commits:
        mine = told.setdefault(event["table_root"], {})
        log, version = history.logs[event["table_root"]], event["version"]
        if version in mine:
            if mine[version] != event:
                return f"version {version} of {event['table_root']} was told in two ways"
        elif version > max(mine, default=version if log.is_found else -1) + 1:
            return f"version {version} of {log.store.root} was told after {max(mine, default=-1)}"
        mine[version] = event
        content = log.files.get(version)
        if content is None or hashlib.sha256(content).hexdigest() != event["sha256"]:
            return f"version {version} of {event['table_root']} was told and is another"
    return None


def applications_advance(history: History) -> str | None:
    """An application's version is in the table at most once, and they come in order."""
    for root, log in history.logs.items():
        seen: dict[str, int] = {}
        for version, rows in enumerate(log.entries):
            for row in rows:
                txn = row.get("txn")
                if txn is None or txn["appId"].startswith("tidegate/"):
                    continue
                if txn["version"] <= seen.get(txn["appId"], -1):
                    return f"version {version} of {root} takes {txn['appId']} back"
                seen[txn["appId"]] = txn["version"]
    return None


def tables_apart(history: History) -> str | None:
    """I12: an entry of a table holds proposals for that table only."""
    roots = {one["id"]: one["body"].get("table_root") for one in history.sent if one is not None}
    for root, version, _, one in history.accepted():
        if roots[one["id"]] != root:
            return f"version {version} of {root} holds {one['id']}, for {roots[one['id']]}"
    return None


ALWAYS: tuple[Callable[[History], str | None], ...] = (
    exactly_once,
    no_overwrite,
    no_gap,
    consistent_read,
    outcome_agreement,
    offset_safe,
    no_conflict,
    monotone_time,
    dense_events,
    applications_advance,
    tables_apart,
)
"""What holds at every moment."""


def everybody_is_answered(history: History) -> str | None:
    """I7: once the faults have stopped, every delivery has its outcome, every version was told."""
    for offset, one in enumerate(history.sent):
        if one is not None and f"{one['id']}/{one['sha256']}" not in history.answered:
            return f"{one['id']} at offset {offset} has no outcome"
    for record in history.registry().values():
        head = len(history.logs[record["table_root"]].entries) - 1
        if record["published_through"] != head:
            return (
                f"{record['table_root']} was told up to {record['published_through']}, not {head}"
            )
    at = TopicPartition(history.topics.proposals, 0)
    passed = history.bus.committed(f"{history.topics.prefix}committer").get(at, 0)
    return None if passed == len(history.sent) else f"the offset stays at {passed}"


AT_REST: tuple[Callable[[History], str | None], ...] = (everybody_is_answered,)
"""What holds after the faults have stopped and everything had its time."""


def _info(rows: Rows) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next((row["commitInfo"] for row in rows if "commitInfo" in row), {})
    return found


def _only_lost_rows(store: MemoryStore, rows: Rows) -> set[str]:
    """Return the files that came back with a vector that holds all of the one before."""
    before = {row["remove"]["path"]: row["remove"] for row in rows if "remove" in row}
    after = {row["add"]["path"]: row["add"] for row in rows if "add" in row}
    return {
        path
        for path in before.keys() & after.keys()
        if rows_of(store, before[path].get("deletionVector"))
        <= rows_of(store, after[path].get("deletionVector"))
    }


def _paths(rows: Rows, kind: str) -> list[str]:
    return [row[kind]["path"] for row in rows if kind in row]


def _sent(record: Record) -> dict[str, Any] | None:
    try:
        body = json.loads(record.value or b"")
        digest = hashlib.sha256(record.value or b"").hexdigest()
        return {"id": body["proposal_id"], "sha256": digest, "body": body}
    except (ValueError, KeyError, TypeError):
        return None


def _told_of(history: History, outcome: Mapping[str, Any]) -> Mapping[str, Any] | None:
    for one in history.sent:
        if one is not None and one["sha256"] == outcome["proposal_sha256"]:
            body: Mapping[str, Any] = one["body"]
            return body
    return None


def _kind(history: History, outcome: Mapping[str, Any]) -> str:
    body = _told_of(history, outcome)
    return str(body.get("kind", "commit")) if body else "commit"


def _target(history: History, outcome: Mapping[str, Any]) -> str:
    body = _told_of(history, outcome)
    target = body.get("cancels") if body and body.get("kind") == "cancel" else None
    return str(target or outcome["proposal_id"])

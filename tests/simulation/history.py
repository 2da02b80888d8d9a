"""What was observed of the world: bytes in the stores and records on the topics, in order.

The invariants see nothing else, and it shares no code with the committer.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from tests.fakes.memory_bus import MemoryBus
from tests.fakes.memory_store import MemoryStore
from tests.linearizability import run_record
from tidegate_messages.topics import Topics
from tidegate_runtime.kafka.client_protocols import Record, TopicPartition

Rows = list[dict[str, Any]]

WINDOW: Final = 5
"""How many versions a committer of the simulation remembers in full."""

Registered = tuple[str, int]
"""A table's id, and a topic partition that has a registry record for it."""

Spot = tuple[str, int]
"""A topic partition in one life of its topic: the topic's id and the partition number."""

ANSWER = ("proposal_id", "status", "version", "sub_index", "repeat", "offset")
"""The fields of an outcome that `digest` covers."""


@dataclass
class Log:
    """A table's log as observed: bytes and rows by version, and the live files.

    `is_found` marks a table that existed before its registration, whose earlier versions need not
    be published; `floor` is the first version that cleanup left; `positions` are the
    versions of applications at each version; `appeared` is the moment at which each was first seen.
    """

    store: MemoryStore
    is_found: bool = False
    floor: int = 0
    files: dict[int, bytes] = field(default_factory=dict)
    entries: list[Rows] = field(default_factory=list)
    live: dict[str, dict[str, Any]] = field(default_factory=dict)
    positions: list[dict[str, int]] = field(default_factory=list)
    appeared: list[int] = field(default_factory=list)
    appeared_s: list[float] = field(default_factory=list)

    @property
    def head(self) -> int:
        """The last version, -1 where there is none."""
        return len(self.entries) - 1

    @property
    def metadata(self) -> dict[str, Any]:
        """The newest metaData.

        Law: the log has a version.
        """
        found = (
            row["metaData"] for rows in reversed(self.entries) for row in rows if "metaData" in row
        )
        result: dict[str, Any] = next(found)
        return result

    @property
    def configuration(self) -> dict[str, str]:
        """The table's properties; empty if there is no table."""
        result: dict[str, str] = self.metadata["configuration"] if self.entries else {}
        return result

    def names(self) -> dict[int, str]:
        """Return the commit files that exist, by version."""
        result = (path.rpartition("/") for path in self.store.files if path.endswith(".json"))
        return {
            int(name[:20]): commit_path(int(name[:20]))
            for folder, _, name in result
            if folder == "_delta_log"
        }

    def provenance(self, version: int) -> dict[str, Any]:
        """Return the committer's part of an entry's commitInfo, or {} for another writer's."""
        result: dict[str, Any] = info_of(self.entries[version]).get("tidegate") or {}
        return result

    def read(self, moment: int, now_s: float) -> bool:
        """Read the new versions; return whether there are any."""
        start = len(self.entries)
        while (content := self.store.files.get(commit_path(len(self.entries)))) is not None:
            rows = [json.loads(line) for line in content.splitlines()]
            self.files[len(self.entries)] = content
            self.entries.append(rows)
            self.appeared.append(moment)
            self.appeared_s.append(now_s)
            for path in paths_of(rows, "remove"):
                self.live.pop(path, None)
            self.live |= {row["add"]["path"]: row["add"] for row in rows if "add" in row}
            moved = {row["txn"]["appId"]: row["txn"]["version"] for row in rows if "txn" in row}
            self.positions.append({**(self.positions[-1] if self.positions else {}), **moved})
        return len(self.entries) > start


@dataclass(frozen=True)
class Sent:
    """A record on the proposals topic that is JSON and has an id."""

    id: str
    sha256: str
    body: dict[str, Any]
    moment: int

    @property
    def key(self) -> str:
        """The id and the digest of the bytes, which identify it."""
        return f"{self.id}/{self.sha256}"

    @property
    def kind(self) -> str:
        """The kind of the proposal."""
        return str(self.body.get("kind", "commit"))


@dataclass(frozen=True)
class PublishedOutcome:
    """An outcome, and the moment at which it was seen."""

    body: dict[str, Any]
    moment: int

    @property
    def key(self) -> str:
        """The id and the digest of the proposal that it answers."""
        return f"{self.body['proposal_id']}/{self.body['proposal_sha256']}"


@dataclass
class History:
    """Everything observed so far. Each call of `look` is one `moment`.

    `deliveries` are the proposals by topic partition and offset, None for a record that is not a
    proposal; `commits` are the published commit records, each with its topic partition.
    `registered` is the last registry record of each topic partition for each table, by the table's
    root; `registry` is the one that counts; `homes` are the topic partitions that have ever
    registered a table.
    """

    bus: MemoryBus
    topics: Topics
    logs: dict[str, Log]
    moment: int = 0
    outcomes: list[PublishedOutcome] = field(default_factory=list)
    commits: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    deliveries: dict[Spot, list[Sent | None]] = field(default_factory=dict)
    sent: dict[str, Sent] = field(default_factory=dict)
    answered: set[str] = field(default_factory=set)
    registry: dict[str, dict[str, Any]] = field(default_factory=dict)
    registered: dict[str, dict[Registered, dict[str, Any]]] = field(default_factory=dict)
    homes: dict[str, set[int]] = field(default_factory=dict)
    registry_life: str = ""
    longest: int = 0
    seen: dict[Spot, int] = field(default_factory=dict)

    def look(self, now_s: float) -> bool:
        """Observe what is new; return whether anything was."""
        self.moment += 1
        grown = [log.read(self.moment, now_s) for log in self.logs.values()]
        takers: dict[str, Callable[[Spot, Record], None]] = {
            self.topics.proposals: self._delivered,
            self.topics.admin: self._delivered,
            self.topics.outcomes: self._answered,
            self.topics.commits: self._published,
            self.topics.table_state: self._registered,
        }
        for topic, take in takers.items():
            life = self._life(topic)
            for number in range(self.bus.partitions(topic)):
                records = self.bus.logs[TopicPartition(topic, number)]
                start = self.seen.get((life, number), 0)
                for record in records[start:]:
                    take((life, number), record)
                self.seen[life, number] = len(records)
                grown.append(len(records) > start)
        return any(grown)

    def accepted(self) -> Iterator[tuple[str, int, int, dict[str, Any]]]:
        """Yield root, version, index and provenance of every accepted proposal."""
        for root, log in self.logs.items():
            for version in range(len(log.entries)):
                for place, one in enumerate(log.provenance(version).get("accepted", ())):
                    yield root, version, place, one

    def published_through(self, root: str) -> int:
        """Return a table's last published version, -1 if there is none."""
        result = (event["version"] for _, event in self.commits if event["table_root"] == root)
        return max(result, default=-1)

    def spots(self) -> dict[TopicPartition, list[Sent | None]]:
        """Return the proposals and requests in the present lives of their topics."""
        return {
            TopicPartition(topic, number): self.deliveries.get((self._life(topic), number), [])
            for topic in (self.topics.proposals, self.topics.admin)
            for number in range(self.bus.partitions(topic))
        }

    def account(self) -> run_record.Account:
        """Return the run as the linearizability checker needs it; the two share no code."""
        sent = {
            (item.id, item.sha256): run_record.Sent((item.id, item.sha256), item.body, item.moment)
            for item in self.sent.values()
        }
        tables = {
            root: run_record.Table(
                log.entries, log.floor, dict(enumerate(log.appeared)), _digests(log.files)
            )
            for root, log in self.logs.items()
        }
        claims = {
            path: content
            for log in self.logs.values()
            for path, content in log.store.files.items()
            if path.startswith("_tidegate/")
        }
        result = [run_record.PublishedOutcome(one.body, one.moment) for one in self.outcomes]
        # Records of a topic that was recreated may never have been read.
        lives = {life for life, _ in self.deliveries if not life.startswith(self.topics.admin)}
        return run_record.Account(
            sent, result, tables, claims, is_over=len(lives) == 1, window=WINDOW
        )

    def digest(self) -> str:
        """Return a hash of what happened; it does not depend on the wording of messages."""
        result = [
            (*map(item.body.get, ANSWER), rule_of(item.body), item.moment) for item in self.outcomes
        ]
        events = [(number, one["table_root"], one["version"]) for number, one in self.commits]
        logs = [
            [
                [paths_of(rows, kind) for kind in ("add", "remove", "cdc")]
                + [[one["id"] for one in log.provenance(version).get("accepted", ())]]
                for version, rows in enumerate(log.entries)
            ]
            for log in self.logs.values()
        ]
        return hashlib.sha256(json.dumps([result, events, logs]).encode()).hexdigest()

    def _life(self, topic: str) -> str:
        """Return a topic's id, which changes when the topic is recreated."""
        return self.bus.identity([topic]).topic_ids[topic]

    def _delivered(self, spot: Spot, record: Record) -> None:
        sent = _sent(record, self.moment)
        self.deliveries.setdefault(spot, []).append(sent)
        if sent is not None:
            self.sent.setdefault(sent.key, sent)

    def _answered(self, spot: Spot, record: Record) -> None:
        result = PublishedOutcome(json.loads(record.value or b""), self.moment)
        self.longest = max(self.longest, len(record.value or b""))
        self.outcomes.append(result)
        self.answered.add(result.key)

    def _published(self, spot: Spot, record: Record) -> None:
        self.commits.append((spot[1], json.loads(record.value or b"")))

    def home_of(self, table: str) -> int | None:
        """Return the topic partition on which a table is registered, or None."""
        for item in self.registry.values():
            if item["table"] == table and item["status"] != "staged":
                return int(item["topic_partition"])
        return None

    def _registered(self, spot: Spot, record: Record) -> None:
        if spot[0] != self.registry_life:
            self.registry_life = spot[0]
            self.registry.clear()
            self.registered.clear()
        if record.value is None:
            gone = ((record.key or b"").decode(), spot[1])
            for root, said in self.registered.items():
                if said.pop(gone, None) is not None:
                    self._count(root)
            return
        body = json.loads(record.value)
        root, by = body["table_root"], (body["table"], body["topic_partition"])
        said = self.registered.setdefault(root, {})
        known = said.get(by)
        # An operator's later ruling outranks an older copy of the record.
        if known is None or _standing(body) >= _standing(known):
            said[by] = body
        if body["status"] != "staged":
            self.homes.setdefault(root, set()).add(body["topic_partition"])
        self._count(root)

    def _count(self, root: str) -> None:
        """Choose the registry record that counts among those of all topic partitions."""
        said = self.registered[root]
        self.registry.pop(root, None)
        if said:
            first = min(said, key=lambda by: (*(-int(item) for item in _standing(said[by])), by[1]))
            self.registry[root] = said[first]


def _standing(registered: dict[str, Any]) -> tuple[bool, bool, int]:
    number = int((registered.get("ruling") or {}).get("number", 0))
    return registered["status"] == "dropped", registered["status"] != "staged", number


def rule_of(outcome: dict[str, Any]) -> str:
    """Return the rule that refused a proposal, or ""."""
    return str((outcome.get("rejection") or {}).get("rule", ""))


def _digests(files: dict[int, bytes]) -> dict[str, int]:
    return {hashlib.sha256(content).hexdigest(): version for version, content in files.items()}


def commit_path(version: int) -> str:
    """Return the path of a version's commit file."""
    return f"_delta_log/{version:020d}.json"


def info_of(rows: Rows) -> dict[str, Any]:
    """Return the commitInfo of an entry."""
    return next((row["commitInfo"] for row in rows if "commitInfo" in row), {})


def paths_of(rows: Rows, kind: str) -> list[str]:
    """Return the paths of the actions of a kind."""
    return [row[kind]["path"] for row in rows if kind in row]


def _sent(record: Record, moment: int) -> Sent | None:
    value = record.value or b""
    try:
        body = json.loads(value)
        return Sent(body["proposal_id"], hashlib.sha256(value).hexdigest(), body, moment)
    except (ValueError, KeyError, TypeError):
        return None

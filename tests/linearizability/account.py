"""An account of a run: what was sent, what was told and when, and the files of the logs.

It is made of bytes that anybody can read, parsed with plain JSON. Moments are numbers of any one
clock or counter; of two with the same moment nobody knows which was first.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Rows = list[dict[str, Any]]
Key = tuple[str, str]
"""What identifies a proposal: its id and the SHA-256 of its bytes."""

FILES = ("add", "remove", "cdc")


@dataclass(frozen=True)
class Sent:
    """A proposal, and the moment at which it was sent for the first time."""

    key: Key
    body: Mapping[str, Any]
    moment: float

    @property
    def root(self) -> str:
        """The root of the table that it is for."""
        return str(self.body.get("table_root", ""))

    @property
    def read_version(self) -> int:
        """The version that its writer had read."""
        return int(self.body["read_version"])

    @property
    def kind(self) -> str:
        """What it asks for."""
        return str(self.body.get("kind", "commit"))

    @property
    def reads(self) -> Mapping[str, Any]:
        """What its writer had looked at; without a word on it, at the whole table."""
        reads = self.body.get("reads")
        return {"whole_table": True} if reads is None else reads

    @property
    def intents(self) -> frozenset[str]:
        """The files of which it deletes rows, and which stay."""
        return frozenset(one["path"] for one in self.body.get("dv_intents") or ())

    @property
    def moves(self) -> Mapping[str, str]:
        """The file to which the rows of each file go that leaves, where it says so."""
        told = self.body.get("row_mapping") or ()
        return {source["path"]: one["path"] for one in told for source in one["sources"]}

    @property
    def minds_lost_rows(self) -> bool:
        """Whether rows that leave a file which stays matter to whoever read it."""
        return not (self.reads.get("delete_insensitive") or self.moves)

    @property
    def is_serializable(self) -> bool:
        """Whether rows that come may matter to whoever read the whole table."""
        return self.body.get("isolation", "default") in ("default", "Serializable")


@dataclass(frozen=True)
class Told:
    """An outcome, and the moment at which it was there."""

    body: Mapping[str, Any]
    moment: float

    @property
    def key(self) -> Key:
        """Which proposal it answers."""
        return str(self.body["proposal_id"]), str(self.body["proposal_sha256"])

    @property
    def status(self) -> str:
        """What became of it."""
        return str(self.body["status"])

    @property
    def rule(self) -> str:
        """The rule that refused it."""
        return str((self.body.get("rejection") or {}).get("rule", ""))

    @property
    def winner(self) -> int | None:
        """The version that it lost to."""
        found: int | None = (self.body.get("rejection") or {}).get("winner_version")
        return found


@dataclass(frozen=True)
class Table:
    """A table's log, every version of it that there ever was.

    `floor` is the first version that cleanup left; `appeared` says when a version was first seen,
    for those of which it is known, `digests` which version a SHA-256 is that of.
    """

    entries: Sequence[Rows]
    floor: int = 0
    appeared: Mapping[int, float] = field(default_factory=dict)
    digests: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, files: Sequence[bytes], **known: Any) -> "Table":
        """Return a table of the bytes of its versions."""
        return cls([[json.loads(line) for line in one.splitlines()] for one in files], **known)

    def accepted(self, version: int) -> list[Key]:
        """Return whose proposals a version says it holds, in their order."""
        return [(one["id"], one["sha256"]) for one in self._told(version).get("accepted", ())]

    def refused(self) -> set[tuple[str, str | None]]:
        """Return the refusals that stand in the log; without a SHA-256, whatever its bytes."""
        found = (
            one for version in range(len(self.entries)) for one in self._told(version)["refused"]
        )
        return {(one["id"], one.get("sha256")) for one in found}

    def _told(self, version: int) -> dict[str, Any]:
        infos = [row["commitInfo"] for row in self.entries[version] if "commitInfo" in row]
        told = (infos[0].get("tidegate") if infos else None) or {}
        return {"accepted": [], "refused": [], **told}


@dataclass(frozen=True)
class Account:
    """A run. `claims` are the files, by path, in which proposals left their actions.

    `is_over` says that everybody had the time to be answered: then nothing may be missing.
    """

    sent: Mapping[Key, Sent]
    told: Sequence[Told]
    tables: Mapping[str, Table]
    claims: Mapping[str, bytes] = field(default_factory=dict)
    is_over: bool = True

    def actions(self, sent: Sent) -> Rows:
        """Return the actions that a proposal brought."""
        claim = sent.body.get("claim_check")
        if claim is None:
            return list(sent.body.get("actions", ()))
        return [json.loads(line) for line in self.claims[claim["path"]].splitlines()]

    def followed(self, files: Iterable[str]) -> set[str]:
        """Return some files, and all those to which their rows may have moved."""
        found, ways = set(files), [way for one in self.sent.values() for way in one.moves.items()]
        while new := {there for here, there in ways if here in found} - found:
            found |= new
        return found

    def members(self) -> Iterator[tuple[str, int, int, Key]]:
        """Yield root, version, place and key of every proposal that a log says it holds."""
        for root, table in self.tables.items():
            for version in range(len(table.entries)):
                for place, key in enumerate(table.accepted(version)):
                    yield root, version, place, key


def proposals(values: Sequence[tuple[bytes, float]]) -> dict[Key, Sent]:
    """Return the proposals among some records, given as bytes and moment, in their order."""
    found: dict[Key, Sent] = {}
    for value, moment in values:
        try:
            body = json.loads(value)
            key = (str(body["proposal_id"]), hashlib.sha256(value).hexdigest())
            found.setdefault(key, Sent(key, body, moment))
        except (ValueError, KeyError, TypeError):
            continue
    return found


def paths(rows: Rows, *kinds: str) -> list[tuple[str, str]]:
    """Return kind and path of the actions on files."""
    return [(kind, row[kind]["path"]) for row in rows for kind in kinds if kind in row]

"""The record of a run: what was sent, which outcomes came when, and the files of the logs.

It is made of bytes that anyone can read, parsed as plain JSON. Moments are numbers of any one clock
or counter; the order of two events at the same moment is unknown.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

Rows = list[dict[str, Any]]
Key = tuple[str, str]
"""A proposal's identity: its id and the SHA-256 of its bytes."""

FILES = ("add", "remove", "cdc")


@dataclass(frozen=True)
class Sent:
    """A proposal, and the moment at which it was first sent."""

    key: Key
    body: Mapping[str, Any]
    moment: float

    @property
    def root(self) -> str:
        """The root of its table."""
        return str(self.body.get("table_root", ""))

    @property
    def read_version(self) -> int:
        """The version that its writer read."""
        return int(self.body["read_version"])

    @property
    def kind(self) -> str:
        """The kind of the proposal."""
        return str(self.body.get("kind", "commit"))

    @property
    def reads(self) -> Mapping[str, Any]:
        """Its read set; the whole table if it has none."""
        reads = self.body.get("reads")
        return {"whole_table": True} if reads is None else reads

    @property
    def intents(self) -> frozenset[str]:
        """The files whose rows it deletes while the files stay."""
        return frozenset(item["path"] for item in self.body.get("dv_intents") or ())

    @property
    def moves(self) -> Mapping[str, str]:
        """The file to which the rows of each removed file move, if it says so.

        A removed file is there as it is spelt and in its canonical form: others may spell it so.
        """
        moves = [
            (source["path"], item["path"])
            for item in self.body.get("row_mapping") or ()
            for source in item["sources"]
        ]
        return {unquote(path): to for path, to in moves} | dict(moves)

    @property
    def is_rewrite(self) -> bool:
        """Whether it changes no data, as far as its record says: maintenance, which may lose."""
        files = [row[kind] for row in self.body.get("actions", ()) for kind in FILES if kind in row]
        changes = any(file.get("dataChange") for file in files) or self.intents
        return bool(self.moves) or (bool(files) and not changes)

    @property
    def needs_lost_rows(self) -> bool:
        """Whether it conflicts with rows deleted from a file that it read and that stays."""
        return not (self.reads.get("delete_insensitive") or self.moves)

    @property
    def is_serializable(self) -> bool:
        """Whether it conflicts with added rows if it read the whole table."""
        return self.body.get("isolation", "default") in ("default", "Serializable")


@dataclass(frozen=True)
class PublishedOutcome:
    """An outcome, and the moment at which it was published."""

    body: Mapping[str, Any]
    moment: float

    @property
    def key(self) -> Key:
        """The proposal that it answers."""
        return str(self.body["proposal_id"]), str(self.body["proposal_sha256"])

    @property
    def status(self) -> str:
        """Its status."""
        return str(self.body["status"])

    @property
    def rule(self) -> str:
        """The rule that refused it."""
        return str((self.body.get("rejection") or {}).get("rule", ""))

    @property
    def winner(self) -> int | None:
        """The version to which it lost."""
        result: int | None = (self.body.get("rejection") or {}).get("winner_version")
        return result


@dataclass(frozen=True)
class Table:
    """A table's log, with every version that ever existed.

    `floor` is the first version that cleanup left; `appeared` maps versions to the moment they were
    first seen, where known; `digests` maps a SHA-256 to its version.
    """

    entries: Sequence[Rows]
    floor: int = 0
    appeared: Mapping[int, float] = field(default_factory=dict)
    digests: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, files: Sequence[bytes], **known: Any) -> "Table":
        """Return a table from the bytes of its versions."""
        return cls([[json.loads(line) for line in file.splitlines()] for file in files], **known)

    def accepted(self, version: int) -> list[Key]:
        """Return the keys of the proposals in a version, in order."""
        return [(item["id"], item["sha256"]) for item in self._told(version).get("accepted", ())]

    def returned(self, version: int) -> list[frozenset[str]]:
        """Return the files of compactions that each proposal in a version adds again."""
        return [frozenset(item.get("returned", ())) for item in self._told(version)["accepted"]]

    def refused(self) -> set[tuple[str, str | None]]:
        """Return the refusals in the log; one without a SHA-256 holds for any bytes of its id."""
        result = (
            item for version in range(len(self.entries)) for item in self._told(version)["refused"]
        )
        return {(one["id"], one.get("sha256")) for one in result}

    def _told(self, version: int) -> dict[str, Any]:
        infos = [row["commitInfo"] for row in self.entries[version] if "commitInfo" in row]
        result = (infos[0].get("tidegate") if infos else None) or {}
        return {"accepted": [], "refused": [], **result}


@dataclass(frozen=True)
class Account:
    """The record of a run. `claims` are the staged action files of proposals, by path; `window` is
    how many versions a committer remembers in full.

    `is_over` means that all had time to be answered, so that no outcome may be missing.
    """

    sent: Mapping[Key, Sent]
    outcomes: Sequence[PublishedOutcome]
    tables: Mapping[str, Table]
    claims: Mapping[str, bytes] = field(default_factory=dict)
    is_over: bool = True
    window: int = 1_000

    def actions(self, sent: Sent) -> Rows:
        """Return the actions of a proposal."""
        claim = sent.body.get("claim_check")
        if claim is None:
            return list(sent.body.get("actions", ()))
        return [json.loads(line) for line in self.claims[claim["path"]].splitlines()]

    def followed(self, files: Iterable[str]) -> set[str]:
        """Return the given files, and all files to which their rows may have moved."""
        result, ways = (
            set(files),
            [way for item in self.sent.values() for way in item.moves.items()],
        )
        while new := {there for here, there in ways if here in result} - result:
            result |= new
        return result

    def members(self) -> Iterator[tuple[str, int, int, Key]]:
        """Yield root, version, index and key of every proposal in the logs."""
        for root, table in self.tables.items():
            for version in range(len(table.entries)):
                for place, key in enumerate(table.accepted(version)):
                    yield root, version, place, key


def proposals(values: Sequence[tuple[bytes, float]]) -> dict[Key, Sent]:
    """Return the proposals among some records, given as bytes and moment, in order."""
    result: dict[Key, Sent] = {}
    for value, moment in values:
        try:
            body = json.loads(value)
            key = (str(body["proposal_id"]), hashlib.sha256(value).hexdigest())
            result.setdefault(key, Sent(key, body, moment))
        except (ValueError, KeyError, TypeError):
            continue
    return result


def paths(rows: Rows, *kinds: str) -> list[tuple[str, str]]:
    """Return kind and path of the actions on files."""
    return [(kind, row[kind]["path"]) for row in rows for kind in kinds if kind in row]

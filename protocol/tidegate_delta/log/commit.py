"""A commit: the actions that take a table from version - 1 to version; newline-delimited JSON.

Spec: "Delta Log Entries"
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import orjson

from tidegate_delta.errors import BrokenLog
from tidegate_delta.log.actions import (
    Action,
    Add,
    CommitInfo,
    DomainMetadata,
    LogicalFile,
    Metadata,
    Protocol,
    Remove,
    Txn,
    check_single,
    read_row,
)
from tidegate_delta.log.file_names import Version, commit_name

A = TypeVar("A", bound=Action)


@dataclass(frozen=True)
class Commit:
    """A version and its actions, in the order of the file.

    Law: Commit.decode(c.version, c.encode()) == c
    """

    version: Version
    actions: tuple[Action, ...]

    @property
    def name(self) -> str:
        """The file's name inside `_delta_log`."""
        return commit_name(self.version)

    def of(self, kind: type[A]) -> Sequence[A]:
        """Return the actions of one kind, in order."""
        return [action for action in self.actions if isinstance(action, kind)]

    @cached_property
    def info(self) -> CommitInfo | None:
        """The commitInfo, or None."""
        return next(iter(self.of(CommitInfo)), None)

    @cached_property
    def metadata(self) -> Metadata | None:
        """The metaData of this commit, or None."""
        return next(iter(self.of(Metadata)), None)

    @cached_property
    def protocol(self) -> Protocol | None:
        """The protocol of this commit, or None."""
        return next(iter(self.of(Protocol)), None)

    @cached_property
    def adds(self) -> Sequence[Add]:
        """The files that the commit adds."""
        return self.of(Add)

    @cached_property
    def removes(self) -> Sequence[Remove]:
        """The files that the commit removes."""
        return self.of(Remove)

    @cached_property
    def removed(self) -> frozenset[LogicalFile]:
        """The keys of the files that the commit removes."""
        return frozenset(remove.key for remove in self.removes)

    @cached_property
    def txns(self) -> Sequence[Txn]:
        """The app transactions."""
        return self.of(Txn)

    @cached_property
    def domains(self) -> Sequence[DomainMetadata]:
        """The domain metadata."""
        return self.of(DomainMetadata)

    @property
    def is_blind_append(self) -> bool:
        """`isBlindAppend` of the commitInfo; False where it is missing."""
        return bool(self.info and self.info.is_blind_append)

    def encode(self) -> bytes:
        """Return the bytes of the commit file: a line for each action, each ended by a newline."""
        return b"".join(orjson.dumps(action.to_row()) + b"\n" for action in self.actions)

    @classmethod
    def decode(cls, version: int, content: bytes) -> "Commit":
        """Return the commit in a file's bytes.

        Raises: BrokenLog (`CorruptCommit`) for a line that is no JSON object or no action, and for
        several actions of a kind of which one is allowed.
        """
        commit = cls(Version(version), tuple(_action(version, line) for line in _lines(content)))
        for kind in (Protocol, Metadata):
            check_single(commit.name, commit.of(kind))
        return commit


def sha256(content: bytes) -> str:
    """Return the SHA-256 of an entry's bytes, in lower-case hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def _lines(content: bytes) -> list[bytes]:
    return [line for line in content.split(b"\n") if line.strip()]


def _action(version: int, line: bytes) -> Action:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise BrokenLog(
            f"{commit_name(version)} holds a line that is no JSON ({error}); the file is torn or "
            "was written by hand",
            error_class="CorruptCommit",
            remedy="restore it from a backup, or the table to an earlier version",
        ) from error
    if not isinstance(row, dict):
        raise BrokenLog(
            f"{commit_name(version)} holds a line that is no JSON object",
            error_class="CorruptCommit",
            remedy="restore it from a backup, or the table to an earlier version",
        )
    return read_row(commit_name(version), row)

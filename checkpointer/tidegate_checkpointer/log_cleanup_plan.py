"""Decides which files of one table's log go, and why each goes or stays. Pure: deletes nothing.

The newest checkpoint at or before the cutoff, the *floor*, stays with all commits from its version
on, so that every later version can be read. What lies below it goes. Above it, a checkpoint,
checksum or log compaction goes once newer ones replace it, after a grace for readers that have
listed it.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, chain, pairwise
from typing import Final, Literal

from tidegate_checkpointer.machine import RECENT_MAX
from tidegate_delta.log.file_names import (
    LAST_CHECKPOINT,
    LogFile,
    LogFileKind,
    parse,
    staged_version,
)
from tidegate_messages.published_records import Gate

HOUR_MS: Final = 60 * 60 * 1000
DAY_MS: Final = 24 * HOUR_MS
GRACE_MS: Final = 10 * 60 * 1000
"""How long a replaced checkpoint, checksum or compaction stays for readers that have listed it."""

GRACE_LEAST_MS: Final = 60 * 1000
"""How long it stays where replaced checkpoints weigh more than the rest of the log."""

GRACE_BYTES: Final = 64 * 1024 * 1024
"""Bytes of replaced checkpoints that stay for the whole grace, whatever the rest weighs."""


@dataclass(frozen=True)
class ListedFile:
    """A file as a listing shows it. `path` is relative to the table root."""

    path: str
    size_bytes: int
    modified_ms: int

    @property
    def name(self) -> str:
        """The bare name."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True)
class LogListing:
    """The files in `_delta_log`, in `_sidecars` and in `_staged_commits`.

    The sidecars must be listed first: then a sidecar that is listed belongs to a checkpoint that is
    listed, too, or to one that is being written.
    """

    log: Sequence[ListedFile]
    sidecars: Sequence[ListedFile] = ()
    staged: Sequence[ListedFile] = ()


@dataclass(frozen=True)
class Circumstances:
    """What decides besides the listing.

    `cutoff_version` is the newest version that was committed at or before the cutoff, or -1.
    `protected_before` is the version below which checkpoints are protected, or 0. `verified` are
    versions whose checkpoints were compared with an independent fold. `sidecars_of` maps the name
    of a checkpoint file to the names of its sidecars; `unread` are checkpoint files of which these
    are not known.
    """

    now_ms: int
    cutoff_version: int
    is_enabled: bool = True
    protected_before: int = 0
    gates: tuple[Gate, ...] = ()
    verified: frozenset[int] = frozenset()
    sidecars_of: Mapping[str, frozenset[str]] = field(default_factory=dict)
    unread: frozenset[str] = frozenset()


@dataclass(frozen=True)
class FileDecision:
    """A file, and why it goes or stays."""

    file: ListedFile
    why: str


@dataclass(frozen=True)
class Blocked:
    """Why less goes than the table's properties allow: a word for metrics, and a sentence."""

    cause: Literal["disabled", "gap", "held", "protected", "unreadable"]
    why: str


@dataclass(frozen=True)
class CleanupPlan:
    """The files that go, in the order in which they are to be deleted, and those that stay.

    `floor` is the version of the oldest checkpoint that stays, with all commits from it on; -1
    where nothing goes by age. `to_verify` are versions whose checkpoints must be verified before
    the first file goes. `rest_bytes` are those of the commits that stay and of two checkpoints.
    """

    goes: tuple[FileDecision, ...] = ()
    stays: tuple[FileDecision, ...] = ()
    floor: int = -1
    to_verify: tuple[int, ...] = ()
    blocked: tuple[Blocked, ...] = ()
    rest_bytes: int = 0

    @property
    def bytes_going(self) -> int:
        """The bytes of the files that go."""
        return sum(verdict.file.size_bytes for verdict in self.goes)


def cutoff_ms(now_ms: int, retention_ms: int) -> int:
    """Return midnight UTC of the day on which the retention began. Units: Unix time in ms."""
    return (now_ms - retention_ms) // DAY_MS * DAY_MS


def plan(listing: LogListing, circumstances: Circumstances) -> CleanupPlan:
    """Return which files go and which stay.

    Law: `_last_checkpoint`, unknown files, the two newest checkpoints, two verified ones, and all
    commits from the floor on stay.
    Law: every version from the floor on can be read without any file that goes.
    """
    every = (*listing.log, *listing.sidecars, *listing.staged)
    if not circumstances.is_enabled:
        reason = "delta.enableExpiredLogCleanup is false, so nothing of this log is ever deleted"
        return CleanupPlan(
            stays=tuple(FileDecision(file, reason) for file in every),
            blocked=(Blocked("disabled", reason),),
        )
    log = _Log(listing, circumstances)
    if log.gap is not None:
        reason = f"version {log.gap} is missing from the log: restore it before anything is deleted"
        return CleanupPlan(
            stays=tuple(FileDecision(file, reason) for file in every),
            blocked=(Blocked("gap", reason),),
        )
    going, staying = log.verdicts()
    to_verify = log.to_verify if going else ()
    return CleanupPlan(going, staying, log.floor, to_verify, tuple(log.blocked()), log.rest_bytes)


def is_due(since_ms: float, written_bytes: int, rest_bytes: int) -> bool:
    """Return whether a cleanup is due: once an hour, and sooner where checkpoints are large.

    `since_ms` is the time since the last cleanup, `written_bytes` are those of the checkpoints
    written since, `rest_bytes` those of the log that must stay.
    """
    is_heavy = written_bytes > max(GRACE_BYTES, rest_bytes // 2)
    return since_ms >= HOUR_MS or is_heavy


@dataclass(frozen=True)
class _Instance:
    """One checkpoint of a version: a file, or the parts of a multi-part checkpoint."""

    version: int
    kind: LogFileKind
    files: tuple[ListedFile, ...]
    is_complete: bool

    @property
    def modified_ms(self) -> int:
        return max(file.modified_ms for file in self.files)

    @property
    def rank(self) -> tuple[int, str]:
        """The instance that readers take among several of one version has the highest rank."""
        order = (
            LogFileKind.CHECKPOINT_PART,
            LogFileKind.CHECKPOINT_CLASSIC,
            LogFileKind.CHECKPOINT_V2,
        )
        return order.index(self.kind), self.files[0].name


class _Log:
    """A listed log, and what of it is needed."""

    def __init__(self, listing: LogListing, circumstances: Circumstances) -> None:
        self._listing, self._circumstances = listing, circumstances
        self._parsed: list[tuple[LogFile, ListedFile]] = []
        self._unparsed: list[ListedFile] = []
        for file in listing.log:
            parsed = parse(file.name)
            if parsed is None:
                self._unparsed.append(file)
            else:
                self._parsed.append((parsed, file))
        self._commits = {int(p.version): f for p, f in self._parsed if p.kind is LogFileKind.COMMIT}
        self._instances = list(_instances(self._parsed))
        best: dict[int, _Instance] = {}
        for checkpoint in self._instances:
            rival = best.get(checkpoint.version)
            if checkpoint.is_complete and (rival is None or rival.rank < checkpoint.rank):
                best[checkpoint.version] = checkpoint
        self._best = dict(sorted(best.items()))
        self._versions = list(self._best)
        self._sizes = {file.name: file.size_bytes for file in listing.sidecars}
        self._weights = _RunningTotal(self._commits)

    @cached_property
    def gap(self) -> int | None:
        """The first version that is missing between the floor and the newest commit, or None."""
        first = self.floor if self.floor >= 0 else self._second_newest
        for before, after in pairwise(sorted(v for v in self._commits if v >= first)):
            if after != before + 1:
                return before + 1
        return None

    @cached_property
    def floor(self) -> int:
        """The version from which everything stays, or -1."""
        unprotected = self._floor_by_age
        return -1 if unprotected < self._circumstances.protected_before else unprotected

    @cached_property
    def rest_bytes(self) -> int:
        """The bytes of the commits that stay and of the two newest checkpoints."""
        newest = [self._best[version] for version in self._versions[-2:]]
        commits = self._weights.between(self.floor - 1, 2**63)
        return commits + sum(self._own_bytes(checkpoint, ()) for checkpoint in newest)

    @cached_property
    def to_verify(self) -> tuple[int, ...]:
        """The versions to verify: the floor where files go below it, and the newest up to two."""
        verified = self._circumstances.verified & self._best.keys()
        unverified = [self.floor] if self._goes_below and self.floor not in verified else []
        for version in reversed(self._versions):
            if len(verified.union(unverified)) >= 2:
                break
            if version not in verified and version not in unverified:
                unverified.append(version)
        return tuple(unverified)

    def blocked(self) -> Iterator[Blocked]:
        """Yield why less goes by age than the table's properties allow."""
        circumstances = self._circumstances
        for gate in circumstances.gates:
            if gate.needed_from < min(circumstances.cutoff_version, self._second_newest):
                reason = f"{gate.holder} needs the versions from {gate.needed_from} on"
                yield Blocked("held", reason)
        if 0 <= self._floor_by_age < circumstances.protected_before:
            reason = (
                f"checkpoints before version {circumstances.protected_before} are protected until "
                "everything before it can go at once"
            )
            yield Blocked("protected", reason)
        if circumstances.unread:
            reason = f"checkpoint {min(circumstances.unread)} can't be read, so no sidecar goes"
            yield Blocked("unreadable", reason)

    def verdicts(self) -> tuple[tuple[FileDecision, ...], tuple[FileDecision, ...]]:
        """Return what goes, in the order of deletion, and what stays."""
        judged = list(chain(self._small_files(), self._staged(), self._checkpoints()))
        names_going = {checked.name for checked, _, goes in judged if goes}
        judged += self._sidecars(names_going)
        judged += [(file, _unknown_because(file.name), False) for file in self._unparsed]
        goes = tuple(FileDecision(file, reason) for file, reason, goes in judged if goes)
        return goes, tuple(FileDecision(file, reason) for file, reason, goes in judged if not goes)

    @cached_property
    def _second_newest(self) -> int:
        return self._versions[-2] if len(self._versions) > 1 else -1

    @cached_property
    def _floor_by_age(self) -> int:
        needed = [gate.needed_from for gate in self._circumstances.gates]
        return self._at_or_before(
            min(self._circumstances.cutoff_version, self._second_newest, *needed, 2**63)
        )

    def _at_or_before(self, version: int) -> int:
        """Return the version of the newest checkpoint at or before a version, or -1."""
        place = bisect_right(self._versions, version)
        return self._versions[place - 1] if place else -1

    @cached_property
    def _goes_below(self) -> bool:
        return any(parsed.version < self.floor for parsed, _ in self._parsed)

    def _small_files(self) -> Iterator[tuple[ListedFile, str, bool]]:
        """Yield the commits, oldest first, then checksums and log compactions."""
        kinds = (LogFileKind.COMMIT, LogFileKind.CHECKSUM, LogFileKind.COMPACTED)
        spans = _Spans(p for p, _ in self._parsed if p.kind is LogFileKind.COMPACTED)
        below = f"older than the retention, and not needed beside the checkpoint of {self.floor}"
        needed = (
            f"versions from {self.floor} on are kept"
            if self.floor >= 0
            else ("no checkpoint is as old as the retention")
        )
        for kind in kinds:
            for parsed, file in self._parsed:
                if parsed.kind is not kind:
                    continue
                is_compaction = kind is LogFileKind.COMPACTED
                if parsed.start < self.floor or (is_compaction and parsed.start == self.floor):
                    yield file, below, True
                elif is_compaction:
                    yield self._compaction(parsed, file, spans)
                elif kind is LogFileKind.CHECKSUM:
                    yield self._checksum(parsed, file)
                else:
                    yield file, needed, False

    def _checksum(self, parsed: LogFile, file: ListedFile) -> tuple[ListedFile, str, bool]:
        # In a table of small commits checksums weigh several times as much as the commits.
        if parsed.version > self._second_newest - RECENT_MAX:
            return file, "readers of new versions compare with it", False
        if parsed.version in self._kept_checkpoints:
            return file, "its version has a checkpoint that is kept", False
        if self._circumstances.now_ms - file.modified_ms < GRACE_MS:
            return file, "replaced, and kept for readers that have listed it", False
        return file, "replaced by those of newer versions", True

    def _compaction(
        self, parsed: LogFile, file: ListedFile, spans: "_Spans"
    ) -> tuple[ListedFile, str, bool]:
        is_replaced = parsed.version <= self._second_newest or spans.covers(parsed)
        if not is_replaced:
            return file, "readers of new versions read it instead of commits", False
        if self._is_held(parsed):
            return file, "a reader holds a version that it is part of", False
        if self._circumstances.now_ms - file.modified_ms < GRACE_MS:
            return file, "replaced, and kept for readers that have listed it", False
        return file, "replaced by a newer checkpoint or a longer compaction", True

    def _is_held(self, parsed: LogFile) -> bool:
        return any(
            self._at_or_before(gate.needed_from) < parsed.start
            and parsed.version <= gate.needed_from
            for gate in self._circumstances.gates
        )

    def _staged(self) -> Iterator[tuple[ListedFile, str, bool]]:
        for file in self._listing.staged:
            version = staged_version(file.name)
            if version is None:
                yield file, "no file of the log that this release knows", False
            elif version <= self.floor:
                yield file, f"published, and not needed beside the checkpoint of {self.floor}", True
            else:
                yield file, "staged for a version that is kept, or not yet decided", False

    def _checkpoints(self) -> Iterator[tuple[ListedFile, str, bool]]:
        reasons_to_stay = self._kept_checkpoints
        for checkpoint in self._instances:
            reason, goes = self._checkpoint(checkpoint, reasons_to_stay)
            for file in checkpoint.files:
                yield file, reason, goes

    def _checkpoint(
        self, checkpoint: _Instance, reasons_to_stay: Mapping[int, str]
    ) -> tuple[str, bool]:
        circumstances = self._circumstances
        if checkpoint.version < self.floor:
            return f"older than the retention: the checkpoint of {self.floor} replaces it", True
        if checkpoint.version < circumstances.protected_before:
            return (
                f"checkpoints before version {circumstances.protected_before} are protected",
                False,
            )
        if not checkpoint.is_complete:
            is_torn = bool(self._versions) and checkpoint.version < self._versions[-1]
            if is_torn and circumstances.now_ms - checkpoint.modified_ms >= DAY_MS:
                return "never completed, and a day old", True
            return "not complete: it may be being written", False
        if checkpoint.version not in reasons_to_stay:
            return "replaced by newer checkpoints; commits lead to its version", True
        best = self._best[checkpoint.version]
        if checkpoint is best or checkpoint.kind is LogFileKind.CHECKPOINT_CLASSIC:
            return reasons_to_stay[checkpoint.version], False
        if (
            circumstances.now_ms - best.modified_ms < GRACE_MS
            or checkpoint.version >= self._second_newest
        ):
            return "a second checkpoint of its version, kept for its readers", False
        return f"a second checkpoint of its version, beside {best.files[0].name}", True

    @cached_property
    def _kept_checkpoints(self) -> dict[int, str]:
        """Return the versions whose checkpoints stay, each with the reason."""
        circumstances = self._circumstances
        verified = sorted({*circumstances.verified, *self.to_verify} & self._best.keys())[-2:]
        reasons = {version: "starts an hour of its own" for version in self._hourly()}
        holder_by_version = {
            self._at_or_before(gate.needed_from): gate.holder for gate in circumstances.gates
        }
        reasons |= {
            version: f"{holder} needs it"
            for version, holder in holder_by_version.items()
            if version >= 0
        }
        reasons |= {version: "one of two that are verified" for version in verified}
        reasons |= {version: "one of the two newest" for version in self._versions[-2:]}
        if self.floor >= 0:
            reasons[self.floor] = "the oldest version that is kept is read from it"
        elif self._versions:
            reasons.setdefault(self._versions[0], "no checkpoint is as old as the retention")
        return reasons | self._in_grace(reasons)

    def _hourly(self) -> Iterator[int]:
        """Yield the first checkpoint of each hour, unless it weighs more than what it spares."""
        last: int | None = None
        for version, checkpoint in self._best.items():
            if version < self.floor:
                continue
            if last is not None:
                is_new_hour = (
                    checkpoint.modified_ms // HOUR_MS > self._best[last].modified_ms // HOUR_MS
                )
                spared = self._weights.between(last, version)
                if not is_new_hour or self._own_bytes(checkpoint, self._below(last)) > spared:
                    continue
                yield version
            last = version

    def _in_grace(self, reasons_to_stay: Mapping[int, str]) -> dict[int, str]:
        """Return replaced checkpoints that stay for a while, the newest first, within a weight."""
        in_grace: dict[int, str] = {}
        counted = set(chain.from_iterable(self._below(version) for version in reasons_to_stay))
        left = max(GRACE_BYTES, self.rest_bytes // 2)
        for newer, version in pairwise(reversed(self._versions)):
            if version < self.floor or version in reasons_to_stay:
                continue
            checkpoint = self._best[version]
            age_ms = self._circumstances.now_ms - self._best[newer].modified_ms
            left -= self._own_bytes(checkpoint, counted)
            counted |= self._below(version)
            if age_ms < GRACE_LEAST_MS or (age_ms < GRACE_MS and left >= 0):
                in_grace[version] = "replaced, and kept for readers that have listed it"
        return in_grace

    def _below(self, version: int) -> frozenset[str]:
        return self._sidecars_of(self._best[version])

    def _sidecars_of(self, checkpoint: _Instance) -> frozenset[str]:
        sidecars_of = self._circumstances.sidecars_of
        return frozenset().union(
            *(sidecars_of.get(file.name, frozenset()) for file in checkpoint.files)
        )

    def _own_bytes(self, checkpoint: _Instance, shared: Iterable[str]) -> int:
        """Return the bytes of a checkpoint with the sidecars that it does not share."""
        own_sidecars = self._sidecars_of(checkpoint).difference(shared)
        top = sum(file.size_bytes for file in checkpoint.files)
        return top + sum(self._sizes.get(name, 0) for name in own_sidecars)

    def _sidecars(self, names_going: set[str]) -> Iterator[tuple[ListedFile, str, bool]]:
        """Yield the sidecars; those of checkpoints that go need no age."""
        circumstances = self._circumstances
        needed: set[str] = set()
        freed: set[str] = set()
        for name, sidecars in circumstances.sidecars_of.items():
            (freed if name in names_going else needed).update(sidecars)
        cutoff = cutoff_ms(circumstances.now_ms, DAY_MS)
        for file in self._listing.sidecars:
            if file.name in needed:
                yield file, "a checkpoint that stays refers to it", False
            elif circumstances.unread - names_going:
                yield file, "a checkpoint can't be read that may refer to it", False
            elif file.name in freed:
                yield file, "only checkpoints that go refer to it", True
            elif file.modified_ms < cutoff:
                yield file, "no checkpoint refers to it, and it is older than a day", True
            else:
                yield file, "it may belong to a checkpoint that is being written", False


class _RunningTotal:
    """The bytes of the commits between two versions."""

    def __init__(self, commits: Mapping[int, ListedFile]) -> None:
        self._versions = sorted(commits)
        self._sums = [0, *accumulate(commits[version].size_bytes for version in self._versions)]

    def between(self, after: int, until: int) -> int:
        """Return the bytes of the commits after one version, up to another."""
        end = self._sums[bisect_right(self._versions, until)]
        return end - self._sums[bisect_right(self._versions, after)]


class _Spans:
    """The ranges of log compactions."""

    def __init__(self, compactions: Iterable[LogFile]) -> None:
        self._sorted = sorted((compaction.start, -compaction.version) for compaction in compactions)
        self._reach = list(accumulate((-end for _, end in self._sorted), max))

    def covers(self, compaction: LogFile) -> bool:
        """Return whether a longer compaction holds all versions of this one."""
        place = self._sorted.index((compaction.start, -compaction.version))
        return place > 0 and self._reach[place - 1] >= compaction.version


def _instances(parsed_files: Iterable[tuple[LogFile, ListedFile]]) -> Iterator[_Instance]:
    """Yield the checkpoints, ascending by version; an empty file makes one incomplete."""
    by_instance: dict[tuple[int, str], list[tuple[LogFile, ListedFile]]] = defaultdict(list)
    for parsed, file in parsed_files:
        if parsed.is_checkpoint:
            is_part = parsed.kind is LogFileKind.CHECKPOINT_PART
            by_instance[parsed.version, str(parsed.parts) if is_part else parsed.name].append(
                (parsed, file)
            )
    for (version, _), members in sorted(by_instance.items()):
        first = members[0][0]
        is_whole = first.kind is not LogFileKind.CHECKPOINT_PART or len(members) == first.parts
        files = tuple(file for _, file in members)
        is_complete = is_whole and all(file.size_bytes > 0 for file in files)
        yield _Instance(version, first.kind, files, is_complete)


def _unknown_because(name: str) -> str:
    if name == LAST_CHECKPOINT:
        return "the hint to the newest checkpoint is never deleted"
    return "no file of the log that this release knows"

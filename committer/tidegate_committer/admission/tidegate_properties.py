"""Tidegate's own table properties: limits of groups, unsafe writers, and checks of added files.

Group limits: how many proposals may share an entry. A table whose readers want each commit in its
own version says so where all its writers see it. The operator's limits come first: a property can
only lower them.

Unsafe writers are external ones without put-if-absent: the committer warns of them, or halts their
table. On S3 no log store of delta-spark writes a version by a conditional PUT: the default one
checks for the file and then writes it, and the DynamoDB one excludes only writers that use it too.
On a local or mounted file system it checks and then renames, which is safe only within one process.
So it may overwrite a version that we commit at the same moment. It is recognised by its engineInfo.

Added files are checked on request: they exist and have the stated size. Decisions read no data
file. A proposal (`verify_files`) or a table (VERIFY_FILES) may request this check of each new file.
It is made before the decision, in another thread than the loop's. The contents of the files are not
checked.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, get_args

from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.proposal_actions import canonical
from tidegate_committer.intake.refusals import FILE_MISSING, FILE_SIZE, TOO_LARGE, flaw
from tidegate_committer.policy import Policy, UnsafeWriters
from tidegate_committer.state.log_entry import Entry
from tidegate_committer.state.table_state import TableState
from tidegate_delta.errors import BrokenLog
from tidegate_delta.log.file_paths import is_absolute
from tidegate_messages.outcome import Rejection
from tidegate_messages.published_records import TableRecord

GROUP_LIMITS: Final[Mapping[str, str]] = {
    "tidegate.groupMembersMax": "group_members_max",
    "tidegate.groupActionsMax": "group_actions_max",
    "tidegate.groupBytesMax": "group_bytes_max",
}
"""Table property -> the limit that it lowers. With one member an entry, nothing is grouped."""


def group_limit_problem(configuration: Mapping[str, str]) -> str | None:
    """Return the name of a property that is not a whole number of at least 1, or None."""
    names = (name for name in GROUP_LIMITS if name in configuration)
    return next((name for name in names if _limit(configuration[name]) is None), None)


def within_group_limits(policy: Policy, configuration: Mapping[str, str]) -> Policy:
    """Return the policy for entries of a table with these properties.

    Law: no limit is higher than the policy's; an invalid value is ignored
    """
    lowered: dict[str, Any] = {}
    for name, limit in GROUP_LIMITS.items():
        value = _limit(configuration[name]) if name in configuration else None
        if value is not None and value < getattr(policy, limit):
            lowered[limit] = value
    return replace(policy, **lowered) if lowered else policy


def _limit(text: str) -> int | None:
    is_number = text.isascii() and text.isdigit() and len(text) <= 18
    return int(text) or None if is_number else None


UNSAFE_WRITERS: Final = "tidegate.unsafeWriters"
"""The table property, `warn` or `halt`, that overrides the operator's setting."""

_UNSAFE_WRITERS_VALUES: Final = get_args(UnsafeWriters)
_STORES: Final = ("s3://", "file://")


def is_unsafe(entry: Entry, record: TableRecord) -> bool:
    """Return whether a version was written by an engine that may overwrite one on this store."""
    is_past_us = entry.is_past_the_gate and entry.by_delta_spark
    return is_past_us and record.table_root.startswith(_STORES)


def unsafe_writers_problem(configuration: Mapping[str, str]) -> str | None:
    """Return the property's value if it is neither `warn` nor `halt`, or None."""
    value = configuration.get(UNSAFE_WRITERS)
    return None if value is None or value.lower() in _UNSAFE_WRITERS_VALUES else value


def halts(configuration: Mapping[str, str], default: UnsafeWriters) -> bool:
    """Return whether a table with these properties is halted for such a version."""
    value = configuration.get(UNSAFE_WRITERS, "").lower()
    return (value if value in _UNSAFE_WRITERS_VALUES else default) == "halt"


def what_halts(
    entries: Iterable[Entry],
    record: TableRecord,
    configuration: Mapping[str, str],
    default: UnsafeWriters,
) -> BrokenLog | None:
    """Return the error of the first version for which a table is halted, or None."""
    if not halts(configuration, default):
        return None
    return next(
        (unsafe_writer_error(entry, record) for entry in entries if is_unsafe(entry, record)), None
    )


def unsafe_writer_error(entry: Entry, record: TableRecord) -> BrokenLog:
    """Return the error with which a table is halted for such a version."""
    return BrokenLog(
        f"version {entry.version} of {record.table_root} was written past the gate by delta-spark, "
        "whose log stores on S3 and on files overwrite versions of others: end that job, or let it "
        "write through the gate; then, once every version is as it was, set "
        f"committer.unsafe_writers or the table's {UNSAFE_WRITERS} to `warn`",
        error_class="UnsafeWriter",
    )


VERIFY_FILES: Final = "tidegate.verifyFiles"
"""The table property, `true` or `false`, that requests it for every proposal to the table."""

FILES_MAX: Final = 10_000
"""The most new files of a proposal that are checked; a proposal with more is refused."""

_VERIFY_FILES_VALUES: Final = ("true", "false")


@dataclass(frozen=True)
class NewFile:
    """A file to check: its path below the root, decoded; its proposed size in bytes; the field of
    the proposal that names it.
    """

    path: str
    size: int
    field: str


def verify_files_problem(configuration: Mapping[str, str]) -> str | None:
    """Return the property's value if it is neither `true` nor `false`, or None."""
    value = configuration.get(VERIFY_FILES)
    return None if value is None or value.lower() in _VERIFY_FILES_VALUES else value


def needs_file_check(state: TableState, candidate: Candidate) -> bool:
    """Return whether new files of a candidate are to be checked before it is decided."""
    proposal, content = candidate.proposal, candidate.content
    if proposal is None or candidate.files_verified or candidate.flaw is not None:
        return False
    if proposal.kind != "commit" or not (content.adds or content.changes):
        return False
    if not (proposal.verify_files or _verifies_files(state, candidate)):
        return False
    return candidate.id not in state.decisions


def new_files(state: TableState, candidate: Candidate) -> list[NewFile]:
    """Return the files that a candidate adds to the table, change files included.

    Files outside the root are left out, as a restored shallow clone has them.
    """
    content = candidate.content
    added = [
        NewFile(path, add.size, f"actions.add[{index}]")
        for index, (add, (path, _)) in enumerate(zip(content.adds, content.added, strict=True))
        if path not in state.files and not is_absolute(path)
    ]
    changes = [
        NewFile(canonical(change.path), change.size, f"actions.cdc[{index}]")
        for index, change in enumerate(content.changes)
    ]
    return added + changes


def too_many(files: int) -> Rejection:
    """Return the refusal of a proposal with more new files than are checked."""

    problem = f"is asked for {files} new files, and at most {FILES_MAX} are looked at"
    return flaw(TOO_LARGE, "verify_files", problem, "propose in several steps")


def file_problem(file: NewFile, stored_size: int | str | None) -> Rejection | None:
    """Return what is wrong with a file. `stored_size` is its size in bytes, None if it is missing,
    or why it can't be read.
    """
    if stored_size == file.size:
        return None
    if isinstance(stored_size, int):
        problem = f"{file.path[:256]!r} has {stored_size} bytes, the proposal says {file.size}"
        remedy = "take `size` from the finished file, and propose again under a new id"
        return flaw(FILE_SIZE, f"{file.field}.size", problem, remedy, path=file.path[:1024])
    problem = "is not there" if stored_size is None else f"cannot be read: {stored_size}"
    remedy = "write the file first, whole, and propose again under a new id"
    description = f"{file.path[:256]!r} {problem}"
    return flaw(FILE_MISSING, f"{file.field}.path", description, remedy, path=file.path[:1024])


def _verifies_files(state: TableState, candidate: Candidate) -> bool:
    own = candidate.content.metadata
    if own is None and not state.table_definitions:
        return False
    configuration = (own or state.table_definition.metadata).configuration
    return configuration.get(VERIFY_FILES, "").lower() == "true"

"""Checks on request that the files which a proposal adds exist and have the stated size.

Decisions read no data file. A proposal (`verify_files`) or a table (PROPERTY) may request this
check of each new file. It is made before the decision, in another thread than the loop's. The
contents of the files are not checked.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.proposal_actions import canonical
from tidegate_committer.intake.refusals import FILE_MISSING, FILE_SIZE, TOO_LARGE, flaw
from tidegate_committer.state.table_state import TableState
from tidegate_delta.log.file_paths import is_absolute
from tidegate_messages.outcome import Rejection

PROPERTY: Final = "tidegate.verifyFiles"
"""The table property, `true` or `false`, that requests it for every proposal to the table."""

FILES_MAX: Final = 10_000
"""The most new files of a proposal that are checked; a proposal with more is refused."""

_WORDS: Final = ("true", "false")


@dataclass(frozen=True)
class NewFile:
    """A file to check: its path below the root, decoded; its proposed size in bytes; the field of
    the proposal that names it.
    """

    path: str
    size: int
    field: str


def wrong_flag(configuration: Mapping[str, str]) -> str | None:
    """Return the property's value if it is neither `true` nor `false`, or None."""
    value = configuration.get(PROPERTY)
    return None if value is None or value.lower() in _WORDS else value


def needs_file_check(state: TableState, candidate: Candidate) -> bool:
    """Return whether new files of a candidate are to be checked before it is decided."""
    proposal, content = candidate.proposal, candidate.content
    if proposal is None or candidate.files_verified or candidate.flaw is not None:
        return False
    if proposal.kind != "commit" or not (content.adds or content.changes):
        return False
    if not (proposal.verify_files or _verifies_files(state, candidate)):
        return False
    return candidate.id not in state.settled


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


def wrong_file(file: NewFile, stored_size: int | str | None) -> Rejection | None:
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
    return configuration.get(PROPERTY, "").lower() == "true"

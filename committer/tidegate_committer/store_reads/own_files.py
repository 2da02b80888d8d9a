"""Reads the files that a proposal brings: its claim check, and the sizes of what it adds."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import BinaryIO, Final, TypeVar

from tidegate_committer.admission.file_checks import (
    FILES_MAX,
    needs_file_check,
    new_files,
    too_many,
    wrong_file,
)
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.proposal_reader import needs_claim
from tidegate_committer.state.table_state import TableState
from tidegate_delta.errors import BrokenLog, Unavailable
from tidegate_messages.proposal import ClaimCheck
from tidegate_runtime.storage.log_store import LogStore

LOOKS_AT_ONCE: Final = 16
"""How many files of a proposal are checked at the same time."""

Read = TypeVar("Read")


def needs_own_files(state: TableState, candidate: Candidate) -> bool:
    """Return whether files of a candidate's writer must be read before it is decided."""
    return needs_claim(candidate) or needs_file_check(state, candidate)


def read_claim(store: LogStore, claim: ClaimCheck) -> bytes | str | None:
    """Return the bytes of a claim-check file, None if there is none, or why it is unreadable.

    Of a file larger than the claim says, return one byte more than claimed: it is refused for its
    size, which has no bound. Raises: Unavailable; InvalidRequest, for a root that leads elsewhere.
    """
    return _read(store, claim.path, lambda file: file.read(claim.size + 1))


def with_verified_files(store: LogStore, state: TableState, candidate: Candidate) -> Candidate:
    """Return a candidate whose new files were checked, with a flaw if one is missing or has
    another size than proposed.

    Raises: as `read_claim`.
    """
    files = new_files(state, candidate)
    if len(files) > FILES_MAX:
        return replace(candidate, files_verified=True, flaw=too_many(len(files)))
    with ThreadPoolExecutor(LOOKS_AT_ONCE, "look") as pool:
        sizes = pool.map(lambda file: _read(store, file.path, _size), files)
        rejections = [wrong_file(file, size) for file, size in zip(files, sizes, strict=True)]
    flaw = next((rejection for rejection in rejections if rejection is not None), None)
    return replace(candidate, files_verified=True, flaw=flaw)


def _size(file: BinaryIO) -> int:
    return file.seek(0, os.SEEK_END)


def _read(store: LogStore, path: str, take: Callable[[BinaryIO], Read]) -> Read | str | None:
    try:
        with store.open(path) as file:
            return take(file)
    except FileNotFoundError:
        return None
    except BrokenLog as error:
        return error.fault
    except Unavailable as error:
        if isinstance(error.__cause__, PermissionError):
            # For a single file no retry helps, and all proposals for the table would wait for it.
            return error.fault
        raise
    except OSError as error:
        raise Unavailable(f"reading {path!r} of {store.root} failed: {error}") from error

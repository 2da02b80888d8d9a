"""Commits that another engine writes past the committer."""

from tests.builders import ROOT, Gate, Row, info, to_bytes
from tests.support.stores import store_of
from tidegate_delta.log.file_names import commit_name, in_log


def write(gate: Gate, version: int, *rows: Row) -> None:
    """Write a version as another engine."""
    store = store_of(gate)
    store.files[in_log(commit_name(version))] = to_bytes([info("DELETE"), *rows])


def write_next(gate: Gate, *rows: Row) -> None:
    """Write the next version of a table as another engine."""
    gate.stores[ROOT].put(in_log(commit_name(len(gate.entries()))), to_bytes(rows))

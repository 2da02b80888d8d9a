"""Commits that another engine writes past the committer."""

from tests.builders import Gate, Row, info, to_bytes
from tests.support.stores import store_of
from tidegate_delta.log.file_names import commit_name, in_log


def write(gate: Gate, version: int, *rows: Row) -> None:
    """Write a version as another engine."""
    store = store_of(gate)
    store.files[in_log(commit_name(version))] = to_bytes([info("DELETE"), *rows])

"""Stores are opened before the committer joins its group, and none keeps it from joining."""

from tests.fakes.memory_store import MemoryStore
from tidegate_committer.store_executor import InlineExecutor
from tidegate_committer.store_reads.early_stores import open_early
from tidegate_delta.errors import Unavailable
from tidegate_runtime.storage.log_store import LogStore


def test_each_bucket_is_opened_once_and_what_is_no_bucket_is_left() -> None:
    opened: list[str] = []

    def open_root(root: str) -> LogStore:
        opened.append(root)
        return MemoryStore()

    early = open_early(("s3://lake/", "s3://", "file:///tables/"), open_root, InlineExecutor())
    assert opened == ["s3://lake/"]
    assert isinstance(early[0].result(), MemoryStore), "it is kept"


def test_a_store_that_is_away_is_no_error_at_the_start() -> None:
    def open_root(root: str) -> LogStore:
        raise Unavailable(f"{root} does not answer")

    [early] = open_early(("s3://lake/",), open_root, InlineExecutor())
    assert isinstance(early.exception(), Unavailable)

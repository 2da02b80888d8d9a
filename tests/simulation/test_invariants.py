"""Show histories that violate them to the predicates that mutants seldom violate."""

from typing import Any

import pytest

from tests.builders import Row, add, info, remove, to_bytes
from tests.fakes.memory_bus import MemoryBus
from tests.fakes.memory_store import MemoryStore
from tests.simulation.history import History, Log, commit_path
from tests.simulation.invariants import Predicate, monotone_time, referential
from tidegate_messages.topics import Topics

ROOT = "memory://tables/t"
TOPICS = Topics()
OURS: dict[str, Any] = {"tidegate": {"epoch": "e"}}


def seen(*versions: list[Row], files: tuple[str, ...] = ()) -> History:
    """Return the history of a table with these versions and these data files."""
    store = MemoryStore(ROOT)
    for version, rows in enumerate(versions):
        store.put(commit_path(version), to_bytes(rows))
    for path in files:
        store.put(path, b"rows")
    log = Log(store)
    log.read(0, 0.0)
    return History(MemoryBus(TOPICS.declared()), TOPICS, {ROOT: log})


@pytest.mark.parametrize(
    ("predicate", "sound", "broken"),
    [
        (
            monotone_time,
            seen([info(timestamp=5)], [info(timestamp=6, **OURS)], [info(timestamp=3)]),
            seen([info(timestamp=5)], [info(timestamp=5, **OURS)]),
        ),
        (
            monotone_time,
            seen([info(timestamp=9)], [info(timestamp=3, inCommitTimestamp=10, **OURS)]),
            seen([info(inCommitTimestamp=9)], [info(timestamp=99, inCommitTimestamp=9, **OURS)]),
        ),
        (
            referential,
            seen([info(), add("a"), add("b%20c")], [info(), remove("a")], files=("b c",)),
            seen([info(), add("a"), add("b")], [info(), remove("a")], files=("a",)),
        ),
    ],
)
def test_a_predicate_holds_of_what_is_sound_and_fails_where_it_is_broken(
    predicate: Predicate, sound: History, broken: History
) -> None:
    assert predicate(sound) is None
    assert predicate(broken) is not None

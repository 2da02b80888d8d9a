"""One entry's PUT: when it starts, what it holds, and what is published meanwhile."""

import pytest
from prometheus_client import REGISTRY

from tests.builders import ROOT, StillClock, add, commit, digest_of, info, to_bytes
from tests.fakes.memory_store import MemoryStore
from tidegate_committer.group_commit.entry_encoding import EncodedEntry
from tidegate_committer.loop.entry_put import EntryPut, PutResult
from tidegate_committer.state.log_entry import entry_of
from tidegate_delta.errors import OutcomeUnknown
from tidegate_delta.log.file_names import commit_name, in_log
from tidegate_runtime.storage.log_store import Put

ROWS = (info(), add("a"))
CONTENT = to_bytes(ROWS)
PATH = in_log(commit_name(1))


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(ROOT)


@pytest.fixture
def put(store: MemoryStore) -> EntryPut:
    entry = entry_of(commit(1, *ROWS), digest_of(CONTENT), len(CONTENT))
    return EntryPut(store, "entry-put", EncodedEntry(CONTENT, entry))


def on_their_way() -> float | None:
    return REGISTRY.get_sample_value("tidegate_puts_in_flight")


def landed() -> float:
    labels = {"table": "entry-put"}
    return REGISTRY.get_sample_value("tidegate_commit_write_seconds_count", labels) or 0.0


def test_what_it_takes_is_counted_from_its_turn(put: EntryPut, clock: StillClock) -> None:
    def turn() -> bool:
        clock.boot += 0.5
        return True

    assert put.land(clock, clock.boot + 9.0, turn) == PutResult(Put.WON, 0.0)


def test_it_is_not_on_its_way_before_its_turn_nor_after_its_end(
    put: EntryPut, store: MemoryStore, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, seen = on_their_way(), []
    write = store._write

    def turn() -> bool:
        seen.append(on_their_way())
        return True

    def written(path: str, content: bytes) -> None:
        seen.append(on_their_way())
        write(path, content)

    monkeypatch.setattr(store, "_write", written)
    count = landed()
    put.land(clock, clock.boot + 9.0, turn)
    assert before is not None
    assert [*seen, on_their_way()] == [before, before + 1, before]
    assert landed() == count + 1


@pytest.mark.parametrize(("there", "answer"), [(CONTENT, Put.WON), (b"theirs", Put.LOST)])
def test_the_result_of_a_put_in_doubt_is_read_from_the_log(
    put: EntryPut,
    store: MemoryStore,
    clock: StillClock,
    monkeypatch: pytest.MonkeyPatch,
    there: bytes,
    answer: Put,
) -> None:
    sent: list[object] = []

    def doubtful(*arguments: object) -> Put:
        sent.append(arguments)
        store.put(PATH, there)
        return Put.UNKNOWN

    monkeypatch.setattr(store, "put_if_absent", doubtful)
    assert put.land(clock, clock.boot + 9.0).put is answer
    assert len(sent) == 1


def test_its_turn_is_requested_once_however_often_it_is_sent(
    put: EntryPut, store: MemoryStore, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def turn() -> bool:
        asked.append(clock.boot)
        return True

    really = store.put_if_absent
    answers = iter([Put.UNKNOWN, Put.UNKNOWN])

    def doubtful(*arguments: object) -> Put:
        *_rest, its_turn = arguments
        assert callable(its_turn)
        assert its_turn()
        return next(answers, None) or really(PATH, CONTENT, 1.0)

    monkeypatch.setattr(store, "put_if_absent", doubtful)
    assert put.land(clock, clock.boot + 9.0, turn).put is Put.WON
    assert len(asked) == 1


def test_a_store_that_throttles_is_retried_ever_more_rarely(
    put: EntryPut, store: MemoryStore, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[float] = []

    def throttled(*_told: object) -> Put:
        sent.append(clock.boot)
        return Put.UNKNOWN

    monkeypatch.setattr(store, "put_if_absent", throttled)
    began_s = clock.boot
    with pytest.raises(OutcomeUnknown, match="deadline"):
        put.land(clock, began_s + 60.0)
    assert sent[1] - began_s <= 0.05, "what was lost on the way is sent again soon"
    assert len(sent) < 40
    assert clock.boot <= began_s + 60.0


def test_what_is_withheld_is_no_put(put: EntryPut, store: MemoryStore, clock: StillClock) -> None:
    count, before = landed(), on_their_way()
    assert put.land(clock, clock.boot + 9.0, lambda: False).put is Put.WITHHELD
    assert (landed(), on_their_way()) == (count, before)
    assert store.read(PATH) is None


def test_nothing_is_sent_past_the_deadline(
    put: EntryPut, store: MemoryStore, clock: StillClock
) -> None:
    with pytest.raises(OutcomeUnknown, match="deadline"):
        put.land(clock, clock.boot)
    assert store.read(PATH) is None

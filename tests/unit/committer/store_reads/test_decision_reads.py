"""What a decision reads from a store is fetched in the background: other tables never wait."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, BinaryIO
from unittest import mock
from uuid import UUID

import pytest

from tests.builders import (
    ROOT,
    TABLE,
    Gate,
    Row,
    add,
    an_id,
    create,
    creation,
    digest_of,
    info,
    metadata,
    proposal,
    protocol,
    remove,
    table_in_memory,
    to_bytes,
)
from tests.fakes.memory_store import MemoryStore
from tests.support.claim_checks import claiming
from tests.support.feature_rows import WIDE
from tests.support.outcomes import answers_of, rejection_of
from tests.support.tables import creating
from tests.unit.committer.held_puts import HeldPuts
from tests.unit.committer.held_reads import Held
from tidegate_committer.__main__ import PUTS_MAX
from tidegate_committer.loop.table_committer import CLAIM_S
from tidegate_committer.settings import CommitterSection
from tidegate_committer.store_executor import LOST_MAX, STORES_KEPT, StoreThreads
from tidegate_delta.errors import Unavailable
from tidegate_delta.log.file_names import commit_name, in_log
from tidegate_messages.outcome import Outcome
from tidegate_messages.proposal import Proposal, ReadSet
from tidegate_runtime.storage.log_store import LogStore

OTHER = UUID(int=0x7000_8000_0000_0000_4712)
OTHER_ROOT = "memory://others/t2"
SECTION = CommitterSection(
    roots=("memory://tables", "memory://others"), audit_s=1e9, view_age_max_s=CLAIM_S / 2
)
NAMES = ["deletionVectors", "inCommitTimestamp"]
FEATURES = protocol(3, 7, readerFeatures=NAMES[:1], writerFeatures=NAMES)


@pytest.fixture
def new_gate(held: Held) -> Gate:
    return Gate(SECTION, reads=held)


@pytest.fixture
def first_proposals() -> list[Proposal]:
    """Two tables; one has a file and deletion vectors."""
    opened = [FEATURES, metadata(enableDeletionVectors="true")]
    opening = creating(*opened)
    return [opening, create(table=OTHER, table_root=OTHER_ROOT), proposal(add("old"))]


@pytest.fixture
def after_first_proposals(held: Held) -> Callable[[Gate], None]:
    """Hold the reads of one table's store."""
    return lambda gate: held.held.add(ROOT)


def at_other(*actions: Row) -> Proposal:
    return proposal(*actions, table=OTHER, table_root=OTHER_ROOT)


def write(gate: Gate, version: int, *rows: Row) -> None:
    """Write a version as another engine."""
    gate.stores[ROOT].put(in_log(commit_name(version)), to_bytes([info(), *rows]))


def results(outcomes: list[Outcome]) -> list[tuple[UUID, str, int | None]]:
    return [(outcome.table, outcome.status, outcome.version) for outcome in outcomes]


def with_a_claim(gate: Gate) -> Proposal:
    return claiming(gate, add("a"), read_version=1)


def who_has_seen_more(gate: Gate) -> Proposal:
    write(gate, 2, add("foreign"))
    return proposal(add("a"), read_version=2)


def who_loses_a_race(gate: Gate) -> Proposal:
    write(gate, 2, add("foreign"))
    return proposal(add("a"), read_version=1)


def who_brings_a_vector(gate: Gate) -> Proposal:
    vector = {"storageType": "u", "pathOrInlineDv": f"{'0' * 19}1", "offset": 1, "sizeInBytes": 34}
    new = add("old", deletionVector={**vector, "cardinality": 1}, stats=WIDE)
    reads = ReadSet(files=("old",))
    return proposal(remove("old"), new, read_version=1, reads=reads)


def who_begins_timestamps(gate: Gate) -> Proposal:
    on = metadata(enableDeletionVectors="true", enableInCommitTimestamps="true")
    return proposal(on, read_version=1)


@pytest.mark.parametrize(
    "made",
    [with_a_claim, who_has_seen_more, who_loses_a_race, who_brings_a_vector, who_begins_timestamps],
)
def test_a_store_that_hangs_for_one_table_lets_the_others_commit_on(
    gate: Gate, held: Held, made: Callable[[Gate], Proposal]
) -> None:
    gate.send(made(gate))
    for version in (1, 2, 3):
        assert results(gate.ask(at_other(add(f"b{version}")))) == [(OTHER, "committed", version)]
    assert len(held.asked) == 1, "the store is asked once, and looked after"
    held.held.clear()
    held.answer()
    gate.settle()
    assert [outcome.table for outcome in gate.outcomes()].count(TABLE) == 3
    assert gate.loop.pending == 0


def test_versions_of_others_are_learned_at_an_idle_table_while_others_commit(
    gate: Gate, held: Held
) -> None:
    write(gate, 2, add("foreign"))
    gate.clock.boot += gate.settings.external_probe_s
    gate.settle()
    [_] = held.asked
    assert results(gate.ask(at_other(add("b")))) == [(OTHER, "committed", 1)]
    held.answer()
    gate.settle()
    assert [commit.version for commit in gate.commits() if commit.table == TABLE] == [0, 1, 2]


def test_external_versions_are_probed_once(gate: Gate, held: Held) -> None:
    held.held.clear()
    write(gate, 2, add("foreign"))
    assert results(gate.ask(proposal(add("a"), read_version=1))) == [(TABLE, "committed", 3)]
    store = gate.stores[ROOT]
    with mock.patch.object(store, "read", wraps=store.read) as read:
        assert results(gate.ask(proposal(add("b"), read_version=3))) == [(TABLE, "committed", 4)]
    # The audit's look at an older head may be due.
    assert {call.args[0] for call in read.call_args_list} <= {in_log(commit_name(3))}


def test_what_a_slow_store_has_fetched_is_decided_on_however_long_it_took(
    gate: Gate, held: Held
) -> None:
    gate.send(with_a_claim(gate))
    gate.settle()
    gate.clock.boot += gate.settings.view_age_max_s + 1.0
    gate.loop.step()
    held.answer()
    gate.settle()
    assert len(held.asked) == 1
    assert results(gate.outcomes())[-1] == (TABLE, "committed", 2)


def test_who_waits_for_such_a_store_makes_no_watchman_restart_the_committer(gate: Gate) -> None:
    gate.send(with_a_claim(gate))
    gate.settle()
    assert (gate.loop.pending, gate.loop.movable) == (1, 0)


def test_an_offset_is_not_passed_before_its_answer(gate: Gate, held: Held) -> None:
    at = next(iter(gate.loop.workers))
    before = gate.loop.consumer.committed(at)
    gate.send(with_a_claim(gate), at_other(add("b")))
    gate.settle(12)
    assert gate.loop.consumer.committed(at) == before
    held.answer()
    gate.settle()
    assert before is not None
    assert gate.loop.consumer.committed(at) == before + 2


def test_an_answer_that_comes_after_the_partition_was_lost_is_dropped(
    gate: Gate, held: Held
) -> None:
    one = with_a_claim(gate)
    gate.send(one)
    gate.settle()
    late, held.asked = held.asked, []
    held.held.clear()
    gate.restart()
    gate.settle()
    before = (results(gate.outcomes()), len(gate.entries()))
    held.asked = late
    held.answer()
    gate.settle()
    assert (results(gate.outcomes()), len(gate.entries())) == before
    assert [out.status for out in gate.outcomes() if out.proposal_id == one.proposal_id] == [
        "committed"
    ]


def test_a_halt_by_hand_does_not_wait_for_the_store_and_ignores_its_late_answer(
    gate: Gate, held: Held
) -> None:
    gate.send(with_a_claim(gate))
    gate.settle()
    [(_, question, answer)] = held.asked
    outcomes = gate.ask(proposal(kind="halt", table_root=ROOT, reason="files are moved"))
    assert [outcome.status for outcome in outcomes] == ["denied", "committed"]
    assert answer.cancelled()
    question()  # the read's thread may still finish
    held.held.clear()
    reopened = gate.ask(proposal(kind="reopen", table_root=ROOT), proposal(add("b")))
    assert results(reopened) == [(TABLE, "committed", 1), (TABLE, "committed", 2)]


def test_an_audit_waits_until_nothing_is_fetched(gate: Gate, held: Held) -> None:
    """Its result is compared with a state whose maps the fetching thread uses meanwhile."""
    gate.send(with_a_claim(gate))
    gate.settle()
    [worker] = gate.loop.workers.values()
    overwritten: Future[dict[int, str]] = Future()
    overwritten.set_result({1: "another"})
    worker.schedule.audits[TABLE].answer = overwritten  # type: ignore[assignment]  # as a thread sets it
    gate.loop.step()
    assert gate.table_committer().halted is None
    held.answer()
    gate.settle(2)
    assert gate.table_committer().halted is not None


def test_what_a_store_returned_before_it_failed_is_not_read_again(gate: Gate, held: Held) -> None:
    held.held.clear()
    many = [claiming(gate, add(name), read_version=1) for name in "abc"]
    store, failing = gate.stores[ROOT], [many[2].claim_check]
    opened, open_one = list[str](), store.open

    def fragile(path: str) -> BinaryIO:
        opened.append(path)
        if failing and failing[0] is not None and path == failing[0].path:
            failing.clear()
            raise Unavailable("away")
        return open_one(path)

    with mock.patch.object(store, "open", fragile):
        outcomes = gate.ask(*many)
    assert {outcome.status for outcome in outcomes} == {"committed"}
    assert len(opened) == 4, "one of the three is read twice"


def test_a_clean_stop_waits_for_no_store_that_is_only_read() -> None:
    flown, held = HeldPuts(), Held()
    gate = Gate(SECTION, puts=flown, reads=held)
    gate.ask(create())
    held.held.add(ROOT)
    flown.is_holding = True
    gate.send(proposal(add("a")))
    gate.settle(2)
    write(gate, 1, add("foreign"))
    flown.lands_in_time = True
    gate.loop.finish()
    gate.loop.leave()
    assert len(gate.outcomes()) == 1, "who lost the race is answered by the next owner"


# Tables registered and reopened


def register(table: UUID = OTHER, root: str = OTHER_ROOT, **fields: Any) -> Proposal:
    return proposal(kind="register", table=table, table_root=root, **fields)


@pytest.fixture
def loads() -> Held:
    return Held({OTHER_ROOT})


@pytest.fixture
def found(loads: Held) -> Gate:
    """A committer of one table; a second, existing table's store does not answer."""
    there = table_in_memory(creation(), root=OTHER_ROOT)
    gate = Gate(SECTION, stores={OTHER_ROOT: there}, loads=loads)
    gate.ask(create())
    return gate


def test_a_table_is_registered_while_others_commit(found: Gate, loads: Held) -> None:
    asked = register()
    found.send(asked, at_other(add("b")))
    assert results(found.ask(proposal(add("a")))) == [(TABLE, "committed", 1)]
    loads.answer()
    found.settle()
    assert results(found.outcomes()[-2:]) == [(OTHER, "committed", 0), (OTHER, "committed", 1)]
    assert found.tables()[OTHER].published_through == 1


def test_a_request_for_a_table_that_is_being_registered_waits_for_the_result(
    found: Gate, loads: Held
) -> None:
    another = UUID(int=9)
    found.send(register(), register(another), create(table=another, table_root=OTHER_ROOT))
    found.settle()
    assert len(found.outcomes()) == 1
    loads.answer()
    found.settle()
    first, again, created = found.outcomes()[1:]
    assert (first.status, first.repeat) == ("committed", False)
    assert (again.status, again.repeat) == ("committed", True)
    assert rejection_of(created).rule == "table_exists"


def test_a_name_that_could_not_be_checked_is_requested_again(found: Gate, loads: Held) -> None:
    root = "memory://tables/third"
    third = create(table=UUID(int=9), table_root=root, name="sales")
    found.send(register(name="sales"))
    found.settle()
    [outcome] = found.ask(third)
    assert (rejection_of(outcome).rule, rejection_of(outcome).advice) == ("being_created", "retry")
    [(_, _, answer)] = loads.asked
    answer.set_exception(Unavailable("away"))
    found.settle()
    assert found.outcomes()[-1].status == "denied"
    assert [item.status for item in found.ask(third)] == ["committed"]


def test_a_store_that_is_away_denies_a_registration_and_leaves_nothing(
    found: Gate, loads: Held
) -> None:
    found.send(register(), at_other(add("b")))
    found.settle()
    [(_, _, answer)] = loads.asked
    answer.set_exception(Unavailable("away"))
    found.settle()
    denied, behind = found.outcomes()[1:]
    assert (rejection_of(denied).rule, rejection_of(denied).advice) == ("Unavailable", "retry")
    assert rejection_of(behind).rule == "unknown_table"
    assert OTHER not in found.tables()
    loads.held.clear()
    assert results(found.ask(register())) == [(OTHER, "committed", 0)]


def test_a_table_is_reopened_while_others_commit(found: Gate, loads: Held) -> None:
    loads.held.clear()
    found.ask(register())
    found.ask(proposal(kind="halt", table=OTHER, table_root=OTHER_ROOT, reason="a restore"))
    loads.held.add(OTHER_ROOT)
    reopen = proposal(kind="reopen", table=OTHER, table_root=OTHER_ROOT)
    found.send(reopen)
    found.loop.step()
    found.send(at_other(add("b")))
    assert results(found.ask(proposal(add("a")))) == [(TABLE, "committed", 1)]
    assert found.tables()[OTHER].status == "halted"
    loads.answer()
    found.settle()
    assert results(found.outcomes()[-2:]) == [(OTHER, "committed", 0), (OTHER, "committed", 1)]
    assert found.tables()[OTHER].status == "open"


def test_reopening_a_table_reports_its_log_as_it_is_now(found: Gate, loads: Held) -> None:
    """A load that the table began before the request may have read the log before its repair."""
    loads.held.clear()
    found.ask(register())
    store = found.stores[OTHER_ROOT]
    whole = store.read(in_log(commit_name(0)))
    assert whole is not None
    store.put(in_log(commit_name(0)), b"torn")
    found.restart()
    found.settle()
    assert found.tables()[OTHER].status == "halted"
    loads.held.add(OTHER_ROOT)
    found.clock.boot += 60.0
    found.settle()
    [(_, _, before)] = loads.asked
    store.put(in_log(commit_name(0)), whole)
    found.send(proposal(kind="reopen", table=OTHER, table_root=OTHER_ROOT))
    found.settle()
    assert before.cancelled()
    loads.answer()
    found.settle()
    assert found.outcomes()[-1].status == "committed"
    assert found.tables()[OTHER].status == "open"


def test_a_store_is_vetted_in_the_background(loads: Held) -> None:
    asked = list[str]()
    gate = Gate(SECTION, loads=loads, vet=lambda store: asked.append(store.root))
    gate.send(create(table=OTHER, table_root=OTHER_ROOT))
    assert results(gate.ask(create())) == [(TABLE, "committed", 0)]
    assert asked == [ROOT]
    loads.answer()
    gate.settle()
    assert asked == [ROOT, OTHER_ROOT]
    assert gate.outcomes()[-1].table == OTHER


# Threads


class Hanging(MemoryStore):
    """A store that does not answer for a while, and must not be called from the loop's thread."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.answers = threading.Event()
        self.answers.set()
        self.waiting = 0

    def _wait(self) -> None:
        assert threading.current_thread() is not threading.main_thread(), "the loop asks"
        self.waiting += 1
        assert self.answers.wait(60.0), "the test has ended"
        self.waiting -= 1

    def read(self, path: str) -> bytes | None:
        """Return a file, after a while."""
        self._wait()
        return super().read(path)

    def open(self, path: str) -> BinaryIO:
        """Return a reader, after a while."""
        self._wait()
        return super().open(path)

    def list_from(self, folder: str, start: str) -> Any:
        """List a folder, after a while."""
        self._wait()
        return super().list_from(folder, start)


def test_a_committer_with_threads_goes_on_beside_a_store_that_hangs() -> None:
    hanging, other = Hanging(ROOT), Hanging(OTHER_ROOT)
    stores: dict[str, LogStore] = {ROOT: hanging, OTHER_ROOT: other}
    loads, reads, background = (StoreThreads(most, "test") for most in (1, 4, 8))
    gate = Gate(
        SECTION,
        stores=stores,
        puts=StoreThreads(PUTS_MAX, "put"),
        background=background,
        loads=loads,
        reads=reads,
    )

    def until(is_so: Callable[[], bool]) -> None:
        for _ in range(3_000):
            gate.loop.step()
            if is_so():
                return
            gate.clock.boot += 0.01
            time.sleep(0.001)
        raise AssertionError("it hangs")

    gate.send(create(), create(table=OTHER, table_root=OTHER_ROOT))
    until(lambda: len(gate.outcomes()) == 2)
    one = claiming(gate, add("a"), read_version=0)
    hanging.answers.clear()
    gate.send(one)
    until(lambda: hanging.waiting == 1)
    for count in range(3, 13):
        gate.send(at_other(add(f"f{count}")))
        until(lambda: len(gate.outcomes()) == count)  # noqa: B023
    assert gate.outcomes()[-1].table == OTHER
    hanging.answers.set()
    until(lambda: len(gate.outcomes()) == 13)
    assert gate.outcomes()[-1].proposal_id == one.proposal_id
    gate.loop.finish()
    gate.loop.leave()


def test_a_stop_runs_nothing_of_the_queue() -> None:
    many, going_on, asked = StoreThreads(1, "read"), threading.Event(), list[str]()

    def first() -> None:
        asked.append("first")
        going_on.wait(10.0)

    one = many.begin("s3://bucket/a", first)
    other = many.begin("s3://bucket/b", lambda: asked.append("second"))
    many.close()
    going_on.set()
    one.result(10.0)
    assert other.cancelled()
    assert asked == ["first"]


def test_threads_of_idle_stores_end() -> None:
    many, going_on = StoreThreads(1, "of-many-stores"), threading.Event()
    hanging = many.begin("s3://hangs/t", lambda: going_on.wait(10.0))
    for number in range(3 * STORES_KEPT):
        assert many.begin(f"s3://bucket-{number}/t", lambda: 1).result(10.0) == 1
    assert not many.is_free("s3://hangs/u"), "who is at work is not forgotten"

    def there() -> int:
        return sum(item.name.startswith("of-many-stores") for item in threading.enumerate())

    for _ in range(1_000):
        if there() <= STORES_KEPT + 2:
            break
        time.sleep(0.01)
    assert there() <= STORES_KEPT + 2
    going_on.set()
    assert hanging.result(10.0)


# A claim file that cannot be read


def at_its_store(gate: Gate, held: Held) -> list[Outcome]:
    """Let the time limit for a claim check pass; return the outcomes since."""
    before = len(gate.outcomes())
    gate.clock.boot += CLAIM_S - 10.0
    gate.settle()
    assert len(gate.outcomes()) == before, "it has its time"
    gate.clock.boot += 40.0
    held.held.clear()
    gate.settle()
    return gate.outcomes()[before:]


def test_a_claim_check_whose_reading_hangs_is_denied_and_those_behind_it_go_on(
    gate: Gate, held: Held
) -> None:
    gate.send(with_a_claim(gate), proposal(add("b"), read_version=1))
    gate.settle()
    first, second = at_its_store(gate, held)
    assert first.rejection is not None
    assert (first.status, first.rejection.rule) == ("denied", "claim_check")
    assert (first.rejection.advice, first.rejection.field) == ("retry", "claim_check")
    assert first.rejection.reason.count("600 s") == 1
    assert results([second]) == [(TABLE, "committed", 2)]
    assert [root for root, _ in held.given_up] == [ROOT], "another thread takes its place"
    held.answer()
    gate.settle()
    assert len(gate.entries()) == 3, "what comes after it is dropped"


def test_a_claim_check_that_fails_each_time_is_denied_and_those_behind_it_go_on(
    gate: Gate, held: Held
) -> None:
    held.held.clear()
    store = gate.stores[ROOT]
    with mock.patch.object(store, "open", side_effect=Unavailable("away")):
        gate.send(with_a_claim(gate), proposal(add("b"), read_version=1))
        gate.settle()
        first, second = at_its_store(gate, held)
    assert (first.status, rejection_of(first).rule) == ("denied", "claim_check")
    assert results([second]) == [(TABLE, "committed", 2)]
    assert held.given_up == [], "no thread is at it"


def test_ready_bytes_whose_reading_hangs_are_denied(gate: Gate, held: Held) -> None:
    path = f"_delta_log/_staged_commits/{2:020d}.{an_id()}.json"
    claim = {"path": path, "size": 1, "sha256": digest_of(b"x")}
    gate.send(proposal(kind="verbatim", claim_check=claim, read_version=1, exact_version=2))
    gate.settle()
    assert answers_of(at_its_store(gate, held)) == [("denied", "staged_file")]


def test_a_table_that_is_to_be_created_by_a_claim_check_that_hangs_is_not() -> None:
    held = Held()
    gate = Gate(SECTION, reads=held, stores={ROOT: MemoryStore(ROOT)})
    held.held.add(ROOT)
    gate.send(claiming(gate, *creation(), read_version=-1))
    gate.settle()
    assert answers_of(at_its_store(gate, held)) == [("denied", "claim_check")]
    assert results(gate.ask(create())) == [(TABLE, "committed", 0)]


@pytest.mark.parametrize(
    ("made", "rule"), [(with_a_claim, "claim_check"), (who_brings_a_vector, "vector_unreadable")]
)
def test_a_file_that_may_not_be_read_is_refused_at_once(
    gate: Gate, held: Held, made: Callable[[Gate], Proposal], rule: str
) -> None:
    held.held.clear()
    why = Unavailable("this user may not: grant the rights")
    why.__cause__ = PermissionError(13, "Permission denied")
    with mock.patch.object(gate.stores[ROOT], "open", side_effect=why):
        first, second = gate.ask(made(gate), proposal(add("b"), read_version=1))
    assert (first.status, rejection_of(first).rule) == ("rejected", rule)
    assert "grant the rights" in rejection_of(first).reason
    assert second.status == "committed"


def test_readings_that_hang_take_no_thread_from_the_other_tables_of_their_store() -> None:
    threads, going_on = StoreThreads(4, "hangs"), threading.Event()
    try:
        for _ in range(20):
            begun = threading.Event()
            hangs = threads.begin("file:///data/t", partial(hang, begun, going_on))
            behind = threads.begin("file:///data/u", lambda: "read")
            assert begun.wait(60)
            threads.give_up("file:///data/t", hangs)
            assert behind.result(60) == "read"
        assert not hangs.done()
        at_work = [item for item in threading.enumerate() if item.name.startswith("hangs")]
        assert len(at_work) <= 20 + 2 * 4
    finally:
        going_on.set()
        threads.close()


def test_no_more_threads_are_replaced_than_so_many() -> None:
    threads, going_on = StoreThreads(1, "lost"), threading.Event()
    try:
        for _ in range(LOST_MAX + 1):
            begun = threading.Event()
            hangs = threads.begin("file:///data/t", partial(hang, begun, going_on))
            assert begun.wait(60)
            threads.give_up("file:///data/t", hangs)
        waits = threads.begin("file:///data/t", lambda: "read")
        assert len([item for item in threading.enumerate() if item.name.startswith("lost")]) <= (
            LOST_MAX + 1
        )
        assert not waits.done()
        going_on.set()
        assert waits.result(60) == "read"
    finally:
        going_on.set()
        threads.close()


def hang(begun: threading.Event, going_on: threading.Event) -> None:
    begun.set()
    going_on.wait(60)

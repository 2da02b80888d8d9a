"""A table committer with a pending PUT decides ahead, and discards that if the PUT fails; how long
it waits and rests."""

from collections.abc import Callable
from typing import Any
from unittest import mock
from uuid import UUID

import pytest

from tests.builders import (
    NOW_MS,
    ROOT,
    TABLE,
    Gate,
    add,
    create,
    digest_of,
    info,
    late,
    metadata,
    proposal,
    protocol,
    remove,
    row_delete,
    rows_of,
    to_bytes,
)
from tests.checkpoints import put_classic
from tests.support.outcomes import rejection_of
from tests.support.row_deletes import IN_THE_LOG
from tests.support.stores import store_of
from tests.support.tables import creating
from tests.unit.committer.floods import version_beside_a_flood
from tests.unit.committer.held_puts import HeldPuts
from tidegate_committer.loop.pending_commits import DECISION_AGE_MAX_S
from tidegate_committer.loop.poison_records import read_note
from tidegate_committer.loop.service import LANDING_S
from tidegate_committer.loop.table_committer import (
    LINGER_GROWTH_MAX,
    QUIET_SHARE,
    STREAM_SHARE,
    AdaptiveLinger,
)
from tidegate_committer.settings import CommitterSection
from tidegate_committer.store_reads import recovery
from tidegate_delta.deletion_vectors.descriptors import inline, inline_rows
from tidegate_delta.deletion_vectors.roaring_bitmap import of_rows
from tidegate_delta.errors import Unavailable
from tidegate_delta.log.actions import DeletionVector
from tidegate_delta.log.file_names import Version, commit_name, in_log
from tidegate_messages.record_headers import TRACEPARENT, compose_traceparent
from tidegate_runtime import failpoints
from tidegate_runtime.kafka.client_protocols import TopicPartition
from tidegate_runtime.storage.log_store import Put
from tidegate_runtime.table_io.checkpoint_writer import move_hint_forward
from tidegate_runtime.table_io.open_table import open_snapshot


@pytest.fixture
def puts() -> HeldPuts:
    return HeldPuts()


@pytest.fixture
def new_gate(puts: HeldPuts) -> Gate:
    return Gate(puts=puts)


@pytest.fixture
def after_first_proposals(puts: HeldPuts) -> Callable[[Gate], None]:
    """Hold the PUTs from here on."""

    def hold(gate: Gate) -> None:
        puts.is_holding = True

    return hold


def acks(gate: Gate) -> list[tuple[UUID, int | None]]:
    return [(outcome.proposal_id, outcome.version) for outcome in gate.outcomes()[1:]]


def test_proposals_that_come_while_a_put_flies_share_the_next_entry(
    gate: Gate, puts: HeldPuts
) -> None:
    first, second, third = (proposal(add(name)) for name in "abc")
    gate.send(first)
    gate.settle()
    gate.send(second, third)
    gate.settle()
    assert len(puts.flights) == 2, "one PUT a table is on its way at most"
    assert acks(gate) == [], "no outcome is published before its PUT has landed"
    puts.land()
    gate.settle()
    puts.land()
    gate.settle()
    assert acks(gate) == [(first.proposal_id, 1), (second.proposal_id, 2), (third.proposal_id, 2)]


def test_a_full_entry_is_written_before_the_last_one_is_published(puts: HeldPuts) -> None:
    one_each = CommitterSection(roots=("memory://tables",), group_members_max=1)
    gate = Gate(one_each, puts=puts)
    gate.ask(create())
    puts.is_holding = True
    sent = [proposal(add(name)) for name in "abc"]
    gate.send(*sent)
    for _ in range(2):
        gate.loop.step()
    flights_when_told = []

    def tell(point: str, _about: object = "") -> None:
        if point == "after_outcomes":
            flights_when_told.append(len(puts.flights))

    with mock.patch.object(failpoints, "reach", tell):
        for _ in sent:
            puts.land()
            for _ in range(2):
                gate.loop.step()
    assert flights_when_told == [3, 4, 4]
    gate.settle()
    assert acks(gate) == [(one.proposal_id, place) for place, one in enumerate(sent, 1)]


@pytest.fixture
def one_each(puts: HeldPuts) -> Gate:
    """Return a committer with one-proposal entries: one is pending, one is ready behind it."""
    gate = Gate(CommitterSection(roots=("memory://tables",), group_members_max=1), puts=puts)
    gate.ask(create())
    puts.is_holding = True
    gate.send(*(proposal(add(name)) for name in "abc"))
    for _ in range(2):
        gate.loop.step()
    return gate


def versions_there(gate: Gate) -> list[int]:
    there = [gate.stores[ROOT].read(in_log(commit_name(version))) for version in range(1, 5)]
    return [version for version, content in enumerate(there, 1) if content is not None]


def settle_all(gate: Gate, puts: HeldPuts) -> None:
    for _ in range(8):
        puts.land()
        gate.settle()


def test_the_entry_behind_leaves_when_the_one_before_it_has_won(
    one_each: Gate, puts: HeldPuts
) -> None:
    assert len(puts.flights) == 3
    puts.land()
    assert versions_there(one_each) == [1]
    puts.land()
    assert versions_there(one_each) == [1, 2], "the loop had no part in it"
    assert acks(one_each) == []
    settle_all(one_each, puts)
    assert [version for _, version in acks(one_each)] == [1, 2, 3]


def another_engine_wins(gate: Gate, puts: HeldPuts) -> None:
    gate.stores[ROOT].put(in_log(commit_name(1)), to_bytes([info(), add("theirs")]))
    puts.land()
    puts.land()


def the_put_stays_in_doubt(gate: Gate, puts: HeldPuts) -> None:
    puts.lose_first()
    puts.land()


def the_decision_gets_too_old(gate: Gate, puts: HeldPuts) -> None:
    puts.land()
    gate.clock.boot += 2 * DECISION_AGE_MAX_S
    puts.land()


@pytest.mark.parametrize(
    ("meanwhile", "there", "committed"),
    [
        (another_engine_wins, [1], [2, 3, 4]),
        (the_put_stays_in_doubt, [], [1, 2, 3]),
        (the_decision_gets_too_old, [1], [1, 2, 3]),
    ],
)
def test_the_entry_behind_is_withheld_and_decided_anew(
    one_each: Gate,
    puts: HeldPuts,
    meanwhile: Callable[[Gate, HeldPuts], None],
    there: list[int],
    committed: list[int],
) -> None:
    meanwhile(one_each, puts)
    assert puts.flights[-1].result().put is Put.WITHHELD
    assert versions_there(one_each) == there
    one_each.clock.boot += 60.0
    settle_all(one_each, puts)
    assert [version for _, version in acks(one_each)] == committed


def test_nothing_is_made_ready_behind_a_put_that_outlasts_a_decision(puts: HeldPuts) -> None:
    gate = Gate(CommitterSection(roots=("memory://tables",), group_members_max=1), puts=puts)
    gate.ask(create())
    puts.is_holding = True
    gate.table_committer().linger.took_s.extend([DECISION_AGE_MAX_S] * 16)
    gate.send(*(proposal(add(name)) for name in "ab"))
    for _ in range(2):
        gate.loop.step()
    assert len(puts.flights) == 2
    settle_all(gate, puts)
    assert [version for _, version in acks(gate)] == [1, 2]


def test_a_halt_lets_land_what_was_ready_behind_what_flew(one_each: Gate, puts: HeldPuts) -> None:
    halt = proposal(kind="halt", table=TABLE, table_root=ROOT, reason="files are moved")
    one_each.send(halt)
    puts.land()
    puts.land()
    settle_all(one_each, puts)
    assert versions_there(one_each) == [1, 2]
    answers = [(outcome.status, outcome.version) for outcome in one_each.outcomes()[1:]]
    assert answers == [("committed", 1), ("committed", 2), ("denied", None), ("committed", 2)]


def test_a_clean_stop_waits_for_what_flies(gate: Gate, puts: HeldPuts) -> None:
    gate.send(proposal(add("a")))
    gate.loop.step()
    puts.lands_in_time = True
    gate.loop.finish()
    assert [version for _, version in acks(gate)] == [1]


def test_a_clean_stop_waits_a_moment_for_a_put_that_hangs(gate: Gate, puts: HeldPuts) -> None:
    gate.send(proposal(add("a")))
    gate.loop.step()
    began_s = gate.clock.boot
    with mock.patch.object(puts, "wait", gate.clock.sleep):
        gate.loop.finish()
    assert gate.clock.boot - began_s <= LANDING_S + 0.1
    assert acks(gate) == []


def test_a_clean_stop_is_one_though_a_put_stays_in_doubt(gate: Gate, puts: HeldPuts) -> None:
    gate.send(proposal(add("a")))
    gate.loop.step()
    puts.lose_first()
    gate.loop.finish()
    gate.loop.leave()
    _, note = gate.loop.consumer.noted(TopicPartition(gate.topics.proposals, 0))
    assert read_note(note).owner == "", "who goes of his own will killed nobody"


def test_a_clean_stop_is_one_though_a_table_cannot_be_created(puts: HeldPuts) -> None:
    gate = Gate(puts=puts)
    puts.is_holding = True
    gate.send(create())
    gate.loop.step()
    gate.loop.step()
    gate.stores[ROOT].put(in_log(commit_name(0)), b"torn")
    puts.lands_in_time = True
    gate.loop.finish()
    [result] = gate.outcomes()
    assert result.status == "denied"


def test_the_trace_of_a_proposal_goes_on_in_its_outcome_and_its_version(
    gate: Gate, puts: HeldPuts
) -> None:
    puts.is_holding = False
    trace = (TRACEPARENT, compose_traceparent(7, 9).encode())
    gate.send(proposal(add("a")), headers=(trace,))
    gate.settle()
    for topic in (gate.topics.outcomes, gate.topics.commits):
        assert trace in gate.records(topic)[-1].headers


def test_versions_of_several_proposals_carry_no_ones_trace(gate: Gate, puts: HeldPuts) -> None:
    puts.is_holding = False
    for number in (1, 2):
        trace = (TRACEPARENT, compose_traceparent(number, number).encode())
        gate.send(proposal(add(f"f{number}")), headers=(trace,))
    gate.settle()
    names = [name for name, _ in gate.records(gate.topics.commits)[-1].headers]
    assert TRACEPARENT not in names


def test_the_first_proposal_of_a_flood_has_its_claim_check_read() -> None:
    gate = Gate(CommitterSection(roots=("memory://tables",), group_members_max=2))
    gate.ask(create())
    one = proposal()
    content = to_bytes([add("claimed")])
    path = f"_tidegate/proposals/{one.proposal_id}.ndjson"
    gate.stores[ROOT].put(path, content)
    claim = {"path": path, "size": len(content), "sha256": digest_of(content)}
    claimed = proposal(proposal_id=one.proposal_id, claim_check=claim)
    flood = [proposal(add(f"f{number}")) for number in range(4)]
    gate.send(*flood, headers=(("producer", b"flood"),))
    gate.send(claimed, headers=(("producer", b"other"),))
    gate.settle()
    paths = [[row["add"]["path"] for row in rows if "add" in row] for rows in gate.entries()[1:]]
    assert paths[0] == ["f0", "claimed"]
    assert sorted(path for some in paths for path in some) == ["claimed", "f0", "f1", "f2", "f3"]


def test_where_nothing_is_grouped_a_flood_starves_nobody() -> None:
    gate = Gate(CommitterSection(roots=("memory://tables",), group_members_max=1))
    gate.ask(create())
    assert version_beside_a_flood(gate) in (2, 3)


def test_row_deletes_are_decided_ahead_on_the_vector_that_flies(puts: HeldPuts) -> None:
    names = ["deletionVectors"]
    feature = protocol(3, 7, readerFeatures=names, writerFeatures=names)
    gate = Gate(IN_THE_LOG, puts=puts)
    table = (feature, metadata(enableDeletionVectors="true"), add("a"))
    gate.ask(creating(*table))
    gate.ask(row_delete(rows_of("a", [0])))
    puts.is_holding = True
    base = inline(of_rows([0])).unique_id
    deletes = [row_delete(rows_of("a", [row], base=base), read_version=1) for row in (1, 2, 3)]
    gate.send(deletes[0])
    gate.settle()
    gate.send(*deletes[1:])
    gate.settle()
    in_flight = gate.table_committer().in_flight
    assert in_flight is not None
    assert in_flight.ahead is not None
    assert in_flight.ahead.planning.taken == 2
    for _ in range(2):
        puts.land()
        gate.settle()
    [vector] = [row["add"]["deletionVector"] for row in gate.entries()[3] if "add" in row]
    assert list(inline_rows(DeletionVector.model_validate(vector))) == [0, 1, 2, 3]
    assert [outcome.version for outcome in gate.outcomes()[2:]] == [2, 3, 3]


def test_row_deletes_decided_ahead_are_decided_anew_after_a_lost_race(puts: HeldPuts) -> None:
    names = ["deletionVectors"]
    feature = protocol(3, 7, readerFeatures=names, writerFeatures=names)
    gate = Gate(IN_THE_LOG, puts=puts)
    table = (feature, metadata(enableDeletionVectors="true"), add("a"))
    gate.ask(creating(*table))
    puts.is_holding = True
    gate.send(row_delete(rows_of("a", [1])))
    gate.settle()
    gate.send(row_delete(rows_of("a", [2])), row_delete(rows_of("a", [7], op="update")))
    gate.settle()
    vector = inline(of_rows([7])).model_dump(by_alias=True, exclude_none=True)
    theirs = [info("DELETE"), remove("a"), add("a", deletionVector=vector)]
    gate.stores[ROOT].put(in_log(commit_name(1)), to_bytes(theirs))
    for _ in range(4):
        puts.land()
        gate.settle()
    result = [(outcome.status, outcome.version) for outcome in gate.outcomes()[1:]]
    assert result == [("committed", 2), ("committed", 2), ("rejected", None)]
    [vector] = [row["add"]["deletionVector"] for row in gate.entries()[2] if "add" in row]
    assert list(inline_rows(DeletionVector.model_validate(vector))) == [1, 2, 7]


A_MONTH_S = 30 * 24 * 60 * 60.0


def sleep_and_clean_up(gate: Gate, head: int = 0) -> None:
    """Let a month pass, in which another engine writes versions and cleans up the log."""
    store = store_of(gate)
    gate.clock.boot += A_MONTH_S
    last = Version(head + 3)
    for version in range(head + 1, last + 1):
        store.put(in_log(commit_name(version)), to_bytes([info(), add(f"x{version}")]))
    move_hint_forward(store, put_classic(store, open_snapshot(store, last), NOW_MS))
    for version in range(last):
        store.delete(in_log(commit_name(version)))


def log_of(gate: Gate) -> list[str]:
    store = store_of(gate)
    return sorted(path.rpartition("/")[2] for path in store.files if path.endswith(".json"))


@pytest.mark.parametrize("point", ["after_decide", "before_put"])
def test_a_plan_made_before_a_long_sleep_is_not_put(gate: Gate, puts: HeldPuts, point: str) -> None:
    puts.is_holding = False
    slept: list[str] = []

    def reach(passed: str, about: object = "") -> None:
        if passed == point and not slept:
            slept.append(passed)
            sleep_and_clean_up(gate)

    with mock.patch.object(failpoints, "reach", reach):
        gate.send(proposal(add("a")))
        gate.settle(20)
    assert slept == [point]
    assert gate.stores[ROOT].read(in_log(commit_name(1))) is None, "what was cleaned up stays so"
    assert gate.outcomes()[1].status == "expired"


class SleepsOnce:
    """A call after which, once, a month passes."""

    def __init__(self, gate: Gate, call: Callable[..., Any], head: int, when: str = "") -> None:
        self.gate = gate
        self.call = call
        self.head = head
        self.when = when
        self.has_slept = False

    def __call__(self, *given: Any) -> Any:
        """Make the call, then let the month pass."""
        answer = self.call(*given)
        if not self.has_slept and self.when in (str(item) for item in ("", *given)):
            self.has_slept = True
            sleep_and_clean_up(self.gate, self.head)
        return answer


def test_a_committer_suspended_before_a_lost_answer_writes_nothing_cleaned_up(
    gate: Gate, puts: HeldPuts
) -> None:
    gate.send(proposal(add("a")))
    gate.settle()
    gate.stores[ROOT].put(in_log(commit_name(1)), to_bytes([info(), add("x1")]))
    puts.release()
    sleep_and_clean_up(gate, head=1)
    gate.settle(20)
    assert log_of(gate) == [commit_name(4)], "what was cleaned up stays so"
    assert gate.outcomes()[1].status == "expired"


def test_a_committer_suspended_before_a_won_answer_writes_nothing_cleaned_up(
    gate: Gate, puts: HeldPuts
) -> None:
    gate.send(proposal(add("a")))
    gate.settle()
    puts.release()
    sleep_and_clean_up(gate, head=1)
    gate.send(proposal(add("b"), read_version=4))
    gate.settle(20)
    assert log_of(gate) == [commit_name(4), commit_name(5)], "what was cleaned up stays so"
    assert [outcome.version for outcome in gate.outcomes()[1:]] == [1, 5]


def test_a_committer_suspended_while_polling_writes_nothing_cleaned_up(
    gate: Gate, puts: HeldPuts
) -> None:
    store = gate.stores[ROOT]
    gate.send(proposal(add("a")))
    gate.settle()
    store.put(in_log(commit_name(1)), to_bytes([info(), add("x1")]))
    puts.release()
    read = SleepsOnce(gate, store.read, 1, in_log(commit_name(2)))
    with mock.patch.object(store, "read", read):
        gate.settle(20)
    assert read.has_slept
    assert log_of(gate) == [commit_name(4)], "what was cleaned up stays so"


def test_a_committer_suspended_while_loading_writes_nothing_cleaned_up(
    gate: Gate, puts: HeldPuts
) -> None:
    puts.is_holding = False
    gate.table_committer().forget()
    load = SleepsOnce(gate, recovery.load, 0)
    with mock.patch.object(recovery, "load", load):
        gate.send(proposal(add("a")))
        gate.settle(20)
    assert load.has_slept
    assert log_of(gate) == [commit_name(3)], "what was cleaned up stays so"


def test_a_put_that_landed_long_ago_only_proves_when_it_was_sent(
    gate: Gate, puts: HeldPuts
) -> None:
    puts.is_holding = True
    gate.send(proposal(add("a")))
    gate.loop.step()
    gate.loop.step()
    puts.land()
    sleep_and_clean_up(gate, 1)
    puts.is_holding = False
    gate.send(proposal(add("b"), read_version=1))
    gate.settle(20)
    assert gate.stores[ROOT].read(in_log(commit_name(2))) is None, "what was cleaned up stays so"


# Refusals under a flood


def test_a_flood_that_goes_on_is_let_into_the_log_at_the_rate_alone() -> None:
    gate = Gate(CommitterSection(roots=("memory://tables",), refusals_burst=5, refusals_per_s=0.1))
    gate.ask(create())

    def written() -> int:
        outcomes = gate.ask(*(late(add("x")) for _ in range(20)))
        denied = [rejection_of(outcome) for outcome in outcomes if outcome.status == "denied"]
        assert {(one.rule, one.field) for one in denied} == {("too_many_refusals", "deadline_ms")}
        return [outcome.status for outcome in outcomes].count("rejected")

    assert written() == 5
    assert len(gate.entries()) == 2
    assert written() == 0, "what the entry before wrote is spent"
    gate.clock.sleep(20)
    assert written() == 2
    gate.clock.sleep(10_000)
    assert written() == 5


# A table whose store takes no commits

FULL = "cannot write '_delta_log/00000000000000000001.json': No space left on device"


def resting(seconds: float) -> Gate:
    """Return a committer whose table has tried to commit to a full disk for a while."""
    gate = Gate()
    gate.ask(create())
    gate.send(proposal(add("a")))
    full = mock.Mock(side_effect=Unavailable(FULL))
    with mock.patch.object(gate.stores[ROOT], "put_if_absent", full):
        for _ in range(round(seconds / 0.05)):
            gate.loop.step()
            gate.clock.boot += 0.05
    assert full.called
    return gate


def test_the_registry_explains_why_a_table_rests_until_it_commits_again() -> None:
    gate = resting(5.0)
    record = gate.tables()[TABLE]
    assert record.status == "open"
    assert str(record.reason).startswith(f"rests, its proposals wait: {FULL}")
    gate.clock.boot += 30.0
    gate.settle()
    assert gate.outcomes()[-1].version == 1
    assert gate.tables()[TABLE].reason is None


def test_the_registry_leaves_out_a_short_rest() -> None:
    assert resting(0.2).tables()[TABLE].reason is None


# How long a group waits for more members


def test_a_lone_writer_waits_for_nobody() -> None:
    linger = AdaptiveLinger()
    for _ in range(3):
        linger.landed(0.03, 1, 0)
    assert linger.lingers_until_s(1, 100.0, 0.5) == 0.0


def test_recently_published_outcomes_are_waited_for() -> None:
    linger = AdaptiveLinger()
    linger.landed(0.03, 32, 0)
    linger.landed(0.05, 32, 32)
    linger.published_s = 100.0
    assert linger.lingers_until_s(40, 99.0, 0.5) == pytest.approx(100.0 + QUIET_SHARE * 0.04)
    assert linger.lingers_until_s(40, 100.001, 0.5) == pytest.approx(100.001 + QUIET_SHARE * 0.04)


def test_few_who_came_early_wait_for_the_many_who_are_still_out() -> None:
    linger = AdaptiveLinger()
    linger.landed(0.04, 64, 0)
    linger.published_s = 100.0
    half = linger.lingers_until_s(32, 100.0, 0.5)
    assert half == pytest.approx(100.0 + QUIET_SHARE * 0.04)
    assert half < linger.lingers_until_s(20, 100.0, 0.5) < linger.lingers_until_s(19, 100.0, 0.5)
    assert linger.lingers_until_s(30, 100.019, 0.5) < linger.lingers_until_s(29, 100.019, 0.5)
    assert linger.lingers_until_s(1, 100.0, 0.5) == pytest.approx(100.0 + LINGER_GROWTH_MAX * 0.02)


def test_company_is_waited_for_no_longer_than_a_share_of_a_put() -> None:
    linger = AdaptiveLinger()
    linger.landed(0.04, 32, 32)
    linger.published_s = 100.0
    assert linger.lingers_until_s(40, 100.018, 0.5) == pytest.approx(100.02)
    assert linger.lingers_until_s(40, 100.0, 0.0) == pytest.approx(100.0)
    assert linger.lingers_until_s(1, 100.0, 0.0) == pytest.approx(100.0)


def test_a_stream_of_arrivals_is_let_in_a_little_longer() -> None:
    linger = AdaptiveLinger()
    linger.landed(0.04, 64, 0)
    linger.published_s = 100.0
    assert linger.lingers_until_s(40, 100.025, 0.5) == pytest.approx(100.025 + STREAM_SHARE * 0.04)
    longest = pytest.approx(100.02 + QUIET_SHARE * 0.04)
    assert linger.lingers_until_s(63, 100.041, 0.5) == longest
    assert linger.lingers_until_s(63, 100.041, 0.0) == pytest.approx(100.0)


def test_nobody_is_waited_for_once_all_are_back() -> None:
    linger = AdaptiveLinger()
    linger.landed(0.03, 32, 32)
    linger.published_s = 100.0
    assert linger.lingers_until_s(64, 100.0, 0.5) == 0.0


def test_a_table_without_a_put_so_far_keeps_nobody_waiting() -> None:
    assert AdaptiveLinger().lingers_until_s(5, 100.0, 0.5) == 0.0

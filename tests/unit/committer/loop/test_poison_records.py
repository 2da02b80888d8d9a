"""A record that kills the process: found by the deaths it causes, and no longer processed."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import TABLE, Gate, add, create, proposal
from tidegate_committer.intake.proposal_reader import read_identity, read_record
from tidegate_committer.loop import poison_records
from tidegate_committer.loop.poison_records import SuspectNote, inherited, note_text, read_note
from tidegate_delta.errors import Unavailable
from tidegate_messages.codec import encode
from tidegate_messages.proposal import Proposal
from tidegate_messages.topics import Topics
from tidegate_runtime import failpoints
from tidegate_runtime.kafka.client_protocols import TopicPartition
from tidegate_runtime.storage.log_store import Put

AT = TopicPartition("tidegate.proposals", 0)
RECORDS = range(10, 20)


class Killed(BaseException):
    """The process died."""


@pytest.fixture
def deadly() -> Iterator[dict[str, str]]:
    """Yield the failpoints at which the process dies, by proposal id or table name."""
    points: dict[str, str] = {}

    def reach(point: str, about: object = "") -> None:
        if points.get(str(about)) == point:
            raise Killed

    with mock.patch.object(failpoints, "reach", reach):
        yield points


def lives(gate: Gate, steps: int = 12) -> bool:
    """Run the committer; return whether it survives, and restart it if not."""
    try:
        gate.settle(steps)
    except Killed:
        gate.restart()
        return False
    return True


def deaths_until_all_are_answered(gate: Gate) -> int:
    deaths = 0
    while not lives(gate):
        deaths += 1
        assert deaths < 20, "it goes on dying"
    return deaths


def answers(gate: Gate, one: Proposal) -> set[tuple[str, str | None]]:
    return {
        (result.status, result.rejection.rule if result.rejection else None)
        for result in gate.outcomes()
        if result.proposal_id == one.proposal_id
    }


def test_a_record_that_kills_is_refused_in_the_log_after_three_deaths(
    gate: Gate, deadly: dict[str, str]
) -> None:
    poison, others = proposal(add("p")), [proposal(add(f"f{number}")) for number in range(6)]
    deadly[str(poison.proposal_id)] = "after_read"
    gate.send(*others[:3], poison, *others[3:])
    assert deaths_until_all_are_answered(gate) == 3
    assert answers(gate, poison) == {("rejected", "poison")}
    assert all(answers(gate, other) == {("committed", None)} for other in others)
    refused = [
        row["id"]
        for rows in gate.entries()
        for row in rows[0]["commitInfo"]["tidegate"].get("refused", ())
    ]
    assert refused == [str(poison.proposal_id)]


def test_records_behind_the_suspects_are_decided_in_groups(
    gate: Gate, deadly: dict[str, str]
) -> None:
    """Otherwise a steady stream of records would be decided one by one for ever."""
    poison, others = proposal(add("p")), [proposal(add(f"f{number}")) for number in range(6)]
    deadly[str(poison.proposal_id)] = "after_read"
    gate.send(proposal(add("a")), poison, proposal(add("b")))
    for _ in range(3):
        assert not lives(gate)
    gate.loop.step()
    gate.send(*others)
    assert lives(gate)
    versions = {outcome.version for outcome in gate.outcomes()[-len(others) :]}
    assert len(versions) == 1
    assert all(answers(gate, other) == {("committed", None)} for other in others)


def test_a_creation_that_kills_is_denied_for_what_it_did(deadly: dict[str, str]) -> None:
    gate, poison = Gate(), create()
    deadly[str(poison.proposal_id)] = "after_read"
    gate.send(poison)
    assert deaths_until_all_are_answered(gate) == 3
    assert answers(gate, poison) == {("denied", "poison")}
    assert not gate.tables()


def test_the_same_bytes_sent_again_kill_nobody_any_more(gate: Gate, deadly: dict[str, str]) -> None:
    poison = proposal(add("p"))
    deadly[str(poison.proposal_id)] = "after_read"
    gate.send(poison, poison)
    assert deaths_until_all_are_answered(gate) == 3
    gate.send(poison)
    gate.loop.finish()
    gate.loop.leave()
    gate.restart()
    assert deaths_until_all_are_answered(gate) == 0
    assert answers(gate, poison) == {("rejected", "poison")}
    assert gate.bus.committed("tidegate.committer") == {AT: 4}


def test_a_second_poison_has_three_deaths_of_its_own(gate: Gate, deadly: dict[str, str]) -> None:
    first, second = proposal(add("p")), proposal(add("q"))
    deadly |= {str(outcome.proposal_id): "after_read" for outcome in (first, second)}
    gate.send(first, second, proposal(add("a")))
    assert deaths_until_all_are_answered(gate) == 6
    assert answers(gate, first) == answers(gate, second) == {("rejected", "poison")}


@pytest.mark.parametrize("has_headers", [True, False])
def test_a_record_whose_refusal_kills_too_becomes_a_dead_letter(
    gate: Gate, *, has_headers: bool
) -> None:
    poison, later = proposal(add("p")), proposal(add("a"))
    named = (("proposal_id", str(poison.proposal_id).encode()), ("table", str(TABLE).encode()))
    headers = named if has_headers else ()
    value = encode(poison)
    gate.send(poison, headers=headers)
    gate.send(later)
    read = {
        name: mock.patch(f"tidegate_committer.loop.{name}", side_effect=_killing(value, unpatched))
        for name, unpatched in _readers().items()
    }
    with read["partition_worker.read_record"], read["poison_records.read_identity"]:
        assert deaths_until_all_are_answered(gate) == 6
    assert answers(gate, poison) == {("denied", "poison")}
    assert answers(gate, later) == {("committed", None)}
    [letter] = gate.records(gate.topics.dead_letters)
    assert letter.value == value


def _readers() -> dict[str, Any]:
    return {
        "partition_worker.read_record": read_record,
        "poison_records.read_identity": read_identity,
    }


def _killing(poison: bytes, unpatched: Any) -> Any:
    def read(value: bytes, *rest: Any) -> Any:
        if value == poison:
            raise Killed
        return unpatched(value, *rest)

    return read


def test_deaths_of_another_cause_cost_no_record_that_was_not_on_trial(
    gate: Gate, deadly: dict[str, str]
) -> None:
    everybody = [proposal(add(f"f{number}")) for number in range(5)]
    gate.send(*everybody)
    gate.restart()
    deadly["t"] = "after_load"
    for _ in range(7):
        assert not lives(gate)
    deadly.clear()
    deadly[str(everybody[2].proposal_id)] = "after_read"
    assert not lives(gate), "killed while it judges, once"
    deadly.clear()
    assert lives(gate, 20)
    assert all(answers(gate, item) == {("committed", None)} for item in everybody)


def test_deaths_as_the_process_starts_bring_nobody_to_trial(
    gate: Gate, deadly: dict[str, str]
) -> None:
    gate.send(proposal(add("a")))
    gate.restart()
    for _ in range(5):
        gate.loop.step()
        gate.restart()
    gate.loop.step()
    [worker] = gate.loop.workers.values()
    assert (worker.suspects.note.deaths, worker.suspects.note.alone) == (1, False)


def test_a_clean_stop_counts_no_death(gate: Gate) -> None:
    store = gate.stores[gate.tables()[TABLE].table_root]
    with mock.patch.object(store, "put_if_absent", return_value=Put.UNKNOWN):
        gate.send(proposal(add("a")))
        gate.settle(2)
    for _ in range(4):
        gate.loop.finish()
        offset, text = gate.loop.consumer.noted(AT)
        assert (offset, read_note(text).owner) == (1, "")
        gate.loop.leave()
        gate.loop = gate.start()
        gate.loop.step()
        [worker] = gate.loop.workers.values()
        assert worker.suspects.note.deaths == 0


@pytest.mark.parametrize("stops", [True, False])
def test_an_offset_of_a_topic_that_was_made_anew_leaves_out_no_record(
    gate: Gate, *, stops: bool
) -> None:
    gate.ask(proposal(add("a")), proposal(add("b")))
    gate.bus.create_topic(gate.topics.proposals, 1)
    if stops:
        gate.loop.finish()
    else:
        # As a member does when the group revokes its partition.
        [worker] = gate.loop.workers.values()
        recorded = worker.suspects.recorded
        gate.loop.consumer.commit({AT: recorded}, {AT: note_text(worker.suspects.note.clean())})
    gate.loop.leave()
    gate.loop = gate.start()
    result = gate.ask(*(proposal(add(path)) for path in "cdefg"))
    assert [item.version for item in result] == [2, 2, 2, 2, 2]


def test_a_member_that_leaves_with_a_fault_counts_as_dead(gate: Gate) -> None:
    gate.send(proposal(add("a")))
    gate.loop.leave()
    gate.loop = gate.start()
    gate.loop.step()
    [worker] = gate.loop.workers.values()
    assert worker.suspects.note.deaths == 1


def test_who_follows_one_who_died_begins_where_that_one_was(gate: Gate) -> None:
    gate.ask(proposal(add("a")))
    offset, _ = gate.loop.consumer.noted(AT)
    gate.restart()
    gate.loop.step()
    assert gate.loop.consumer.noted(AT)[0] == offset == 2


def test_a_rebalance_among_the_living_counts_no_death(gate: Gate) -> None:
    gate.send(proposal(add("a")))
    standby = gate.start()
    for _ in range(2):
        standby.step()
        gate.loop.step()
    assert [worker.suspects.note.deaths for worker in gate.loop.workers.values()] == [0]


def test_who_is_given_the_partition_of_one_who_lives_counts_no_death() -> None:
    gate = Gate(topics=Topics(partitions=2))
    gate.loop.step()
    other = TopicPartition(gate.topics.proposals, 1)
    gate.bus.append(other, None, encode(proposal(add("a"))))
    standby = gate.start()
    for _ in range(3):
        standby.step()
        gate.loop.step()
    assert (list(gate.loop.workers), list(standby.workers)) == ([AT], [other])
    assert standby.workers[other].suspects.note.deaths == 0


def test_a_table_whose_store_is_away_keeps_nobody_else_from_trial(
    gate: Gate, deadly: dict[str, str]
) -> None:
    poison = proposal(add("p"))
    deadly[str(poison.proposal_id)] = "after_read"
    gate.send(proposal(add("a")), poison, proposal(add("b")))
    assert not lives(gate)
    assert not lives(gate)
    store = gate.stores[gate.tables()[TABLE].table_root]
    with mock.patch.object(store, "list_from", side_effect=Unavailable("the store is away")):
        assert not lives(gate)
        assert lives(gate)
    assert lives(gate, 200)
    assert answers(gate, poison) == {("rejected", "poison")}


def test_nothing_unanswered_means_that_nobody_died_of_it() -> None:
    assert inherited(
        SuspectNote("a", 2, 50, alone=True, suspect="t"), "b", range(50, 50)
    ) == SuspectNote("b")


def test_ones_own_name_counts_no_death() -> None:
    result = SuspectNote("a", 2, 50, alone=True, suspect="t")
    assert inherited(result, "a", RECORDS) == SuspectNote("a", 2, 50, alone=True)


def test_who_goes_alive_takes_no_death_off_the_count() -> None:
    result = SuspectNote("a", 2, 50, alone=True, suspect="t", guilty={"g": False})
    assert result.clean() == SuspectNote("", 2, 50, alone=True, guilty={"g": False})
    assert inherited(result.clean(), "b", RECORDS) == replace(result, owner="b", suspect="")
    assert inherited(result.clean(), "b", range(50, 60)) == SuspectNote("b", guilty={"g": False})


def test_deaths_further_on_are_counted_anew() -> None:
    result = SuspectNote("a", 2, 10, alone=True, judging=True, against="t")
    assert inherited(result, "b", RECORDS) == SuspectNote("b", 1, 20)


def test_a_second_death_counts_where_records_were_decided() -> None:
    result = SuspectNote("a", 1, 15)
    assert inherited(result, "b", RECORDS) == SuspectNote("b", 1, 20)
    judging = replace(result, judging=True)
    assert inherited(judging, "b", RECORDS) == SuspectNote("b", 2, 20, alone=True)


def test_a_death_while_nobody_is_on_trial_is_held_against_nobody() -> None:
    result = SuspectNote("a", 2, 15, alone=True, judging=True)
    assert inherited(result, "b", RECORDS) == SuspectNote("b", 2, 20, alone=True)


def test_once_one_is_blamed_three_deaths_count_against_another_one_alone() -> None:
    note = SuspectNote("a", 0, 20, alone=True, guilty={"t": False})
    for suspect, deaths in (("u", 1), ("v", 1), ("v", 2), ("u", 1), ("u", 2)):
        note = inherited(replace(note, suspect=suspect), note.owner + "b", RECORDS)
        assert (note.deaths, note.against, [*note.guilty]) == (deaths, suspect, ["t"])
    note = inherited(replace(note, suspect="u"), "successor", RECORDS)
    assert (note.deaths, note.against, [*note.guilty]) == (0, "", ["t", "u"])


def test_the_third_death_blames_who_was_on_trial_and_starts_counting_anew() -> None:
    result = SuspectNote("a", 2, 20, alone=True, suspect="t", guilty={"u": False})
    successor = inherited(result, "b", RECORDS)
    assert successor == SuspectNote("b", 0, 20, alone=True, guilty={"u": False, "t": False})


def test_the_oldest_guilt_is_forgotten_first() -> None:
    many = {f"g{number}": False for number in range(poison_records.GUILTY_MAX)}
    result = SuspectNote("a", 2, 20, alone=True, suspect="t", guilty=many)
    kept = inherited(result, "b", RECORDS).guilty
    assert [*kept] == [*list(many)[1:], "t"]
    assert len(note_text(SuspectNote("b" * 32, 9, 2**62, alone=True, guilty=kept))) < 4096


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"until":"x"}', '{"until":null}', '{"guilty":3}', "a note of others"]
)
def test_offset_metadata_of_others_is_ignored(text: str) -> None:
    assert read_note(text) == SuspectNote()


@given(
    st.builds(
        SuspectNote,
        st.text("abc", max_size=4),
        st.integers(0, 9),
        st.integers(0, 2**62),
        st.booleans(),
        st.text("def", max_size=4),
        st.booleans(),
        st.text("def", max_size=4),
        st.dictionaries(st.text("0123", min_size=1), st.booleans(), max_size=5),
        st.text("xyz", max_size=4),
    )
)
def test_a_note_is_read_as_it_was_written(note: SuspectNote) -> None:
    assert read_note(note_text(note)) == note

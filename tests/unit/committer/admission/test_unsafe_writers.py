"""Engines that may overwrite a version: the committer warns, or halts the table."""

import logging
from dataclasses import replace
from unittest import mock

import pytest
from prometheus_client import REGISTRY

from tests import builders
from tests.builders import TABLE, Gate, add, info, metadata, proposal, to_bytes
from tests.fakes.memory_store import MemoryStore
from tests.support.decisions import state_of
from tests.support.outcomes import rules_of
from tests.support.tables import creating
from tests.unit.committer.held_puts import HeldPuts
from tests.verbatim_proposals import verbatim
from tidegate_committer.admission.tidegate_properties import is_unsafe
from tidegate_committer.settings import CommitterSection
from tidegate_committer.store_executor import InlineExecutor, StoreExecutor
from tidegate_delta.errors import Unavailable
from tidegate_delta.log.file_names import commit_name, in_log

BUCKET = "s3://bucket/t"
SPARK = "Apache-Spark/4.2.0 Delta-Lake/4.4.0"
FOLDER = "file:///tables/t"
ROOTS = ("memory://tables", "s3://bucket", "file:///tables")


def served(
    root: str,
    unsafe_writers: str = "warn",
    said: str | None = None,
    puts: StoreExecutor | None = None,
) -> Gate:
    section = CommitterSection.model_validate({"roots": ROOTS, "unsafe_writers": unsafe_writers})
    gate = Gate(section, puts=puts or InlineExecutor())
    definition = metadata()
    if said is not None:
        definition["metaData"]["configuration"]["tidegate.unsafeWriters"] = said
    rows = (builders.protocol(), definition)
    gate.ask(creating(*rows, table_root=root))
    return gate


def write_past(gate: Gate, root: str, engine: str) -> None:
    path = in_log(commit_name(len(gate.entries(root))))
    gate.stores[root].put(path, to_bytes([info(engineInfo=engine), add("foreign")]))
    gate.clock.boot += 6.0
    gate.settle()


def status(gate: Gate) -> str:
    return gate.tables()[TABLE].status


def warned(gate: Gate) -> float:
    labels = {"table": gate.tables()[TABLE].name}
    return REGISTRY.get_sample_value("tidegate_unsafe_versions_total", labels) or 0.0


@pytest.mark.parametrize("word", ["stop", "", "true"])
def test_a_word_that_means_nothing_is_refused_by_name(word: str) -> None:
    gate = served(BUCKET, said=word)
    [result] = gate.outcomes()
    assert result.rejection is not None
    assert (result.status, result.rejection.rule) == ("denied", "bad_metadata")
    assert "tidegate.unsafeWriters" in result.rejection.reason
    assert "say `warn` or `halt`" in result.rejection.reason


@pytest.mark.parametrize("root", [BUCKET, FOLDER])
def test_delta_spark_that_reads_and_then_writes_is_logged_and_published(
    root: str, caplog: pytest.LogCaptureFixture
) -> None:
    gate = served(root)
    before = warned(gate)
    write_past(gate, root, SPARK)
    assert status(gate) == "open"
    assert warned(gate) == before + 1
    assert [record.message for record in caplog.records if "unsafe_writer" in record.getMessage()]
    assert [(commit.version, commit.author) for commit in gate.commits()][-1] == (1, "external")


@pytest.mark.parametrize(("default", "said"), [("halt", None), ("warn", "halt")])
def test_a_table_with_the_property_is_halted_and_its_successor_halts_it_too(
    default: str, said: str | None
) -> None:
    gate = served(BUCKET, default, said)
    write_past(gate, BUCKET, SPARK)
    assert status(gate) == "halted"
    assert "version 1" in str(gate.tables()[TABLE].reason)
    gate.restart()
    gate.settle(12)
    assert status(gate) == "halted"
    assert rules_of(gate.ask(proposal(add("a"), table_root=BUCKET))) == ["table_halted"]
    assert [commit.version for commit in gate.commits()] == [0]


def test_it_is_healed_once_the_operator_has_resolved_it() -> None:
    gate = served(BUCKET, "halt")
    write_past(gate, BUCKET, SPARK)
    gate.settings = gate.settings.model_copy(update={"unsafe_writers": "warn"})
    gate.restart()
    gate.settle(12)
    assert status(gate) == "open"
    [result] = gate.ask(proposal(add("a"), table_root=BUCKET))
    assert (result.status, result.version) == ("committed", 2)
    assert [commit.version for commit in gate.commits()] == [0, 1, 2]


@pytest.mark.parametrize("by_hand", [False, True])
def test_who_would_reopen_it_before_that_hears_why_it_stays_halted(by_hand: bool) -> None:
    gate = served(BUCKET, "halt")
    if by_hand:
        gate.ask(proposal(kind="halt", table_root=BUCKET, reason="a look at it"))
    write_past(gate, BUCKET, SPARK)
    before = gate.tables()[TABLE]
    [result] = gate.ask(proposal(kind="reopen", table_root=BUCKET))
    assert result.rejection is not None
    assert (result.status, result.rejection.rule) == ("denied", "table_halted")
    assert "version 1" in result.rejection.reason
    assert "committer.unsafe_writers" in result.rejection.reason
    gate.clock.boot += 60
    gate.settle()
    assert gate.tables()[TABLE] == before
    gate.settings = gate.settings.model_copy(update={"unsafe_writers": "warn"})
    gate.restart()
    gate.settle(12)
    [result] = gate.ask(proposal(kind="reopen", table_root=BUCKET))
    assert (result.status, status(gate)) == ("committed", "open")
    assert [commit.version for commit in gate.commits()] == [0, 1]


def test_a_proposal_that_meets_such_a_version_is_answered_by_what_became_of_it() -> None:
    gate = served(BUCKET, "halt")
    path = in_log(commit_name(1))
    gate.stores[BUCKET].put(path, to_bytes([info(engineInfo=SPARK), add("foreign")]))
    [result] = gate.ask(proposal(add("a"), table_root=BUCKET))
    assert (result.status, result.version) == ("committed", 2)
    assert status(gate) == "halted"


@pytest.mark.parametrize(
    ("root", "engine"),
    [
        ("memory://tables/t", SPARK),
        (BUCKET, "delta-rs:py-1.6.6"),
        (BUCKET, ""),
        (FOLDER, "delta-rs:py-1.6.6"),
    ],
)
def test_who_puts_if_absent_is_a_writer_like_others(root: str, engine: str) -> None:
    gate = served(root, "halt")
    before = warned(gate)
    write_past(gate, root, engine)
    assert (status(gate), warned(gate)) == ("open", before)


def test_delta_spark_through_the_gate_is_a_writer_like_others() -> None:
    gate = served(BUCKET, "halt")
    before = warned(gate)
    [result] = gate.ask(proposal(add("a"), table_root=BUCKET, engine_info=SPARK))
    assert result.status == "committed"
    assert SPARK in gate.entries(BUCKET)[-1][0]["commitInfo"]["engineInfo"]
    assert (status(gate), warned(gate)) == ("open", before)
    state = state_of(gate)
    own = replace(state.entries[result.version or 0], by_delta_spark=True)  # as a restart reads it
    assert not is_unsafe(own, gate.tables()[TABLE])
    assert is_unsafe(replace(own, provenance=None), gate.tables()[TABLE])


@pytest.mark.parametrize("is_killed", [False, True])
def test_verbatim_versions_of_delta_spark_halt_no_table(
    is_killed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    gate = served(BUCKET, "halt")
    before = warned(gate)
    rows = (info(engineInfo=SPARK, txnId="w"), add("a"))
    one = verbatim(gate, 1, *rows, table_root=BUCKET, table_id=None)
    if is_killed:
        gate.send(one)
        dead = mock.patch.object(gate.loop.producer, "flush", side_effect=Unavailable("it dies"))
        with dead, pytest.raises(Unavailable):
            gate.settle(3)
        gate.restart()
        gate.settle(12)
    else:
        gate.ask(one)
    assert [result.status for result in gate.outcomes()[1:]][-1] == "committed"
    assert (status(gate), warned(gate)) == ("open", before)
    assert [commit.version for commit in gate.commits()] == [0, 1]
    events = {record.getMessage().split()[0] for record in caplog.records}
    assert events.isdisjoint({"external", "unsafe_writer"}), events


def test_what_a_table_went_through_before_it_came_to_the_gate_is_past() -> None:
    gate = Gate(CommitterSection.model_validate({"roots": ROOTS, "unsafe_writers": "halt"}))
    rows = [info("CREATE TABLE", engineInfo=SPARK), builders.protocol(), metadata()]
    gate.stores[BUCKET] = store = MemoryStore(BUCKET)
    store.put(in_log(commit_name(0)), to_bytes(rows))
    gate.ask(proposal(kind="register", table_root=BUCKET))
    gate.settle()
    assert status(gate) == "open"


def test_a_table_that_halts_while_an_entry_flies_heals_and_takes_the_same_bytes() -> None:
    """The proposal's read version was written by an unsafe engine, unknown to the committer."""
    puts = HeldPuts()
    gate = served(BUCKET, "halt", puts=puts)
    path = in_log(commit_name(1))
    gate.stores[BUCKET].put(path, to_bytes([info(engineInfo=SPARK), add("foreign")]))
    puts.is_holding = True
    one = proposal(add("a"), read_version=1, table_root=BUCKET)
    gate.send(one)
    gate.settle(2)
    assert status(gate) == "halted"
    puts.release()
    [result] = gate.ask(proposal(kind="halt", table_root=BUCKET, reason="a look at it"))
    assert result.status == "committed", "nothing is waited for any more"
    gate.settings = gate.settings.model_copy(update={"unsafe_writers": "warn"})
    gate.restart()
    gate.settle(12)
    assert {result.status for result in gate.ask(proposal(kind="reopen", table_root=BUCKET))} == {
        "committed"
    }
    [result] = gate.ask(one)
    assert (result.status, result.version) == ("committed", 2)
    assert status(gate) == "open"
    assert len(gate.entries(BUCKET)) == 3

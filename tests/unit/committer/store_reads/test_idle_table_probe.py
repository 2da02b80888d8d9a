"""Idle tables are probed for versions of other engines, and no step waits for a store."""

from collections.abc import Callable
from uuid import UUID

import pytest

from tests.builders import ROOT, TABLE, Gate, add, create, info, proposal, to_bytes
from tests.unit.committer.held_reads import Held
from tidegate_delta.errors import Unavailable
from tidegate_delta.log.file_names import commit_name, in_log
from tidegate_messages.proposal import Proposal

OTHER = UUID(int=0x7000_8000_0000_0000_4712)
OTHER_ROOT = "memory://tables/other"


@pytest.fixture
def slow() -> Held:
    return Held({ROOT, OTHER_ROOT})


@pytest.fixture
def new_gate(slow: Held) -> Gate:
    return Gate(background=slow)


@pytest.fixture
def first_proposals() -> list[Proposal]:
    return [create(), create(table=OTHER, table_root=OTHER_ROOT)]


@pytest.fixture
def after_first_proposals(slow: Held) -> Callable[[Gate], None]:
    """Let enough time pass for idle tables to be probed."""

    def pass_time(gate: Gate) -> None:
        slow.answer()
        gate.loop.step()
        gate.clock.boot += gate.settings.external_probe_s
        gate.loop.step()

    return pass_time


def write_version(gate: Gate, version: int) -> None:
    """Write a version as another engine."""
    gate.stores[ROOT].put(in_log(commit_name(version)), to_bytes([info(), add("foreign")]))


def test_every_idle_table_is_queried_once(gate: Gate, slow: Held) -> None:
    gate.loop.step()
    assert [root for root, _, _ in slow.asked] == [ROOT, OTHER_ROOT]


def test_a_version_that_exists_is_read_and_published(gate: Gate, slow: Held) -> None:
    write_version(gate, 1)
    slow.answer()
    gate.loop.step()
    gate.settle()
    assert gate.commits()[-1].author == "external"
    assert gate.tables()[TABLE].published_through == 1


def test_a_table_without_new_versions_was_seen_when_it_was_queried(gate: Gate, slow: Held) -> None:
    asked_s = gate.clock.boot
    gate.clock.boot += 3.0
    slow.answer()
    gate.loop.step()
    assert gate.table_committer().cache.viewed_s == asked_s


def test_an_answer_about_our_own_version_is_ignored(gate: Gate, slow: Held) -> None:
    gate.ask(proposal(add("a")))
    seen_s = gate.table_committer().cache.viewed_s
    slow.answer()
    gate.loop.step()
    assert gate.table_committer().cache.viewed_s == seen_s
    assert [commit.author for commit in gate.commits() if commit.table == TABLE] == ["tidegate"] * 2


def test_a_store_that_fails_rests_the_table_and_is_retried(gate: Gate, slow: Held) -> None:
    for _, _, answer in slow.asked:
        answer.set_exception(Unavailable("the store does not answer"))
    gate.loop.step()
    assert gate.table_committer().rests_until_s > gate.clock.boot
    [result] = gate.ask(proposal(add("a")))
    assert result.version == 1


def test_an_idle_table_that_was_not_polled_for_long_is_reloaded() -> None:
    gate = Gate()
    gate.ask(create())
    gate.clock.boot += 10 * gate.settings.view_age_max_s
    gate.stores[ROOT].put(in_log(commit_name(1)), to_bytes([info(), add("foreign")]))
    gate.settle()
    assert [commit.version for commit in gate.commits()] == [0, 1]

from typing import Any
from uuid import UUID

import pytest

from tests.builders import ROOT, TABLE, create, value_of
from tests.support.outcomes import rejection_of
from tests.support.registry import table_record
from tidegate_committer.decision.decision_types import Verdict
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.proposal_reader import read_record
from tidegate_committer.loop.registration_rules import RegisteredTables, new_record, objection
from tidegate_committer.policy import Policy


def creation(**fields: Any) -> Candidate:
    candidate = read_record(value_of(create(**fields)), 0, Policy())
    assert isinstance(candidate, Candidate)
    return candidate


def rule(answer: Verdict | None) -> str:
    assert answer is not None
    return rejection_of(answer).rule


def known(*roots: str, name: str = "taken") -> RegisteredTables:
    other = table_record(UUID(int=3), "memory://tables/there", name)
    return RegisteredTables({other.table: other}, roots)


@pytest.mark.parametrize(
    "prefix", ["memory://tables", "memory://tables/", ROOT, "memory://tables/t"]
)
def test_a_root_below_an_allowed_one_is_welcome(prefix: str) -> None:
    assert objection(creation(), known(prefix)) is None


@pytest.mark.parametrize("prefix", ["memory://tabl", "memory://tables/t/deeper", "s3://tables"])
def test_a_likeness_of_names_is_not_enough(prefix: str) -> None:
    answer = objection(creation(), known(prefix))
    assert rule(answer) == "root_not_allowed"
    assert answer is not None
    assert answer.status == "denied"


def test_no_allowed_root_refuses_all() -> None:
    assert rule(objection(creation(), known())) == "root_not_allowed"


def test_a_registered_root_is_reported_and_nothing_is_promised() -> None:
    answer = objection(creation(table_root="memory://tables/there"), known("memory://tables"))
    assert answer is not None
    assert answer.status == "denied"
    assert str(UUID(int=3)) in (answer.rejection.reason if answer.rejection else "")


def test_a_name_is_given_once_and_found_where_none_is_requested() -> None:
    assert rule(objection(creation(name="taken"), known("memory://tables"))) == "name_taken"
    record = new_record(creation(), known("memory://tables"), "topic", 2)
    assert (record.name, record.proposals_topic, record.topic_partition) == ("t", "topic", 2)
    other = new_record(creation(), known("memory://tables", name="t"), "topic", 2)
    assert other.name == f"t-{TABLE.hex[-8:]}"


def test_a_dropped_tables_name_can_be_registered_again_and_is_not_found_otherwise() -> None:
    [there] = known("memory://tables", name="t").tables.values()
    gone = RegisteredTables(
        {there.table: there.model_copy(update={"status": "dropped"})}, ["memory://tables"]
    )
    assert objection(creation(name="t"), gone) is None
    assert new_record(creation(name="t"), gone, "topic", 2).name == "t"
    assert new_record(creation(), gone, "topic", 2).name == f"t-{TABLE.hex[-8:]}"


def test_a_writer_with_a_promised_root_may_request_the_promised_name() -> None:
    [there] = known("memory://tables").tables.values()
    staged = there.model_copy(update={"table": TABLE, "table_root": ROOT, "status": "staged"})
    assert (
        objection(creation(name="taken"), RegisteredTables({TABLE: staged}, ["memory://tables"]))
        is None
    )


@pytest.mark.parametrize("name", ["t", "a table", "main.sales.orders", "bücher-2"])
def test_a_name_is_one_word_or_three_parts(name: str) -> None:
    assert objection(creation(name=name), known("memory://tables")) is None


@pytest.mark.parametrize("name", ["a.b", "a.b.c.d", "a..c", ".a.b", "a. b.c", "a/b", "a\n", "`a`"])
def test_another_name_is_refused(name: str) -> None:
    answer = objection(creation(name=name), known("memory://tables"))
    assert rule(answer) == "bad_name"

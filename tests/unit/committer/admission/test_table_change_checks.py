"""When a proposal may change the table id, and what happens to writers that read the old one."""

import pytest

from tests.builders import TABLE, Gate, Row, add, create, metadata, proposal, remove
from tests.support.outcomes import rejection_of, rule_of
from tidegate_messages.proposal import Operation, Proposal

NEW_ID = "99999999-9999-4999-8999-999999999999"


def renewed() -> Row:
    return {"metaData": {**metadata()["metaData"], "id": NEW_ID}}


@pytest.fixture
def first_proposals() -> list[Proposal]:
    return [create(), proposal(add("old"))]


@pytest.mark.parametrize("name", ["REPLACE TABLE", "CREATE OR REPLACE TABLE AS SELECT", "RESTORE"])
def test_who_replaces_a_table_may_give_it_another_id(gate: Gate, name: str) -> None:
    late = proposal(add("late"), read_version=1)
    rows = (renewed(), remove("old"), add("new"))
    [outcome] = gate.ask(proposal(*rows, read_version=1, operation=Operation(name=name)))
    assert rule_of(outcome) == "committed"
    assert gate.tables()[TABLE].table_id == NEW_ID
    assert rule_of(gate.ask(late)[-1]) == "metadata_changed"
    assert rule_of(gate.ask(proposal(add("a"), read_version=2))[-1]) == "other_table"
    assert rule_of(gate.ask(proposal(add("b"), read_version=2, table_id=NEW_ID))[-1]) == "committed"


def test_nobody_else_changes_the_id_of_a_table(gate: Gate) -> None:
    operation = Operation(name="SET TBLPROPERTIES")
    [outcome] = gate.ask(proposal(renewed(), read_version=1, operation=operation))
    assert rule_of(outcome) == "bad_metadata"
    assert rejection_of(outcome).field == "actions.metaData.id"

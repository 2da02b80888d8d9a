"""A table's properties lower the limits on sharing an entry; no setting raises them."""

from collections.abc import Mapping

import pytest

from tests.builders import Gate, add, create, info, metadata, proposal, protocol
from tests.support.tables import creating
from tests.unit.committer.floods import version_beside_a_flood
from tests.verbatim_proposals import verbatim
from tidegate_committer.admission.tidegate_properties import (
    GROUP_LIMITS,
    group_limit_problem,
    within_group_limits,
)
from tidegate_committer.policy import Policy
from tidegate_messages.proposal import Proposal

MEMBERS = "tidegate.groupMembersMax"
POLICY = Policy(group_members_max=10, group_actions_max=20, group_bytes_max=30)


def table_with(**configuration: str) -> Proposal:
    body = metadata()
    named = {f"tidegate.{name}": text for name, text in configuration.items()}
    body["metaData"]["configuration"] = named
    return creating(protocol(), body)


@pytest.mark.parametrize(
    ("configuration", "expected"),
    [
        ({}, (10, 20, 30)),
        ({MEMBERS: "3"}, (3, 20, 30)),
        ({MEMBERS: "11"}, (10, 20, 30)),
        ({name: "7" for name in GROUP_LIMITS}, (7, 7, 7)),
        ({MEMBERS: "0"}, (10, 20, 30)),
        ({MEMBERS: "three"}, (10, 20, 30)),
    ],
)
def test_a_property_lowers_its_limit(
    configuration: Mapping[str, str], expected: tuple[int, int, int]
) -> None:
    result = within_group_limits(POLICY, configuration)
    limits = (result.group_members_max, result.group_actions_max, result.group_bytes_max)
    assert limits == expected


@pytest.mark.parametrize("text", ["0", "-1", "three", "", "1.5", "\u0661", "9" * 19])
@pytest.mark.parametrize("name", GROUP_LIMITS)
def test_what_limits_nothing_is_found(name: str, text: str) -> None:
    assert group_limit_problem({name: text}) == name
    assert group_limit_problem({name: "1"}) is None


def test_a_table_that_wants_its_commits_apart_has_them_apart() -> None:
    gate = Gate()
    gate.ask(table_with(groupMembersMax="1"))
    result = gate.ask(*[proposal(add(name)) for name in "abc"])
    assert [(item.version, item.sub_index) for item in result] == [(1, 0), (2, 0), (3, 0)]


def test_at_a_table_that_wants_them_apart_a_flood_starves_nobody() -> None:
    gate = Gate()
    gate.ask(table_with(groupMembersMax="1"))
    assert version_beside_a_flood(gate) in (2, 3)


def test_ready_bytes_whose_turn_comes_before_those_ahead_of_them_are_decided_on() -> None:
    gate = Gate()
    gate.ask(table_with(groupMembersMax="1"))
    gate.send(*[proposal(add(name)) for name in "abc"], headers=(("producer", b"many"),))
    gate.send(verbatim(gate, 2, info(txnId="w"), add("d")), headers=(("producer", b"one"),))
    gate.settle()
    assert [outcome.version for outcome in gate.outcomes()[1:]] == [1, 2, 3, 4]
    assert gate.commits()[2].author == "external"


def test_other_tables_share_entries_beside_it() -> None:
    gate = Gate()
    gate.ask(create())
    result = gate.ask(*[proposal(add(name)) for name in "abc"])
    assert [item.version for item in result] == [1, 1, 1]


def test_a_limit_that_is_none_is_refused_by_name() -> None:
    [result] = Gate().ask(table_with(groupMembersMax="none"))
    assert result.status == "denied", "there is no table yet into whose log a refusal could go"
    assert result.rejection is not None
    assert result.rejection.rule == "bad_metadata"
    assert MEMBERS in result.rejection.reason
    assert "whole number" in result.rejection.reason

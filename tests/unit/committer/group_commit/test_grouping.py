"""Which proposals may share an entry, rule by rule."""

import pytest

from tests.builders import (
    Row,
    add,
    batch_of,
    metadata,
    proposal,
    protocol,
    remove,
    row_delete,
    rows_of,
)
from tests.support.decisions import flawless
from tidegate_committer.group_commit.grouping import (
    SHARING,
    Group,
    Sharing,
    change_files_for_all_or_none,
    fits,
    like_with_like,
    no_path_twice,
    one_of_each_domain,
    row_ids_move_alone,
    the_table_changes_alone,
)
from tidegate_committer.policy import Policy
from tidegate_committer.state.fetched_inputs import FetchedInputs
from tidegate_delta.log.actions import Add
from tidegate_messages.outcome import Rejection
from tidegate_messages.proposal import AppTxn, Operation, Proposal

CDC: Row = {"cdc": {"path": "c", "partitionValues": {}, "size": 1, "dataChange": False}}


def may_share(first: Proposal, second: Proposal, policy: Policy | None = None) -> bool:
    group = Group(1)
    group.take(flawless(first))
    return fits(group, flawless(second), policy or Policy())


def domain(name: str) -> Row:
    return {"domainMetadata": {"domain": name, "configuration": "", "removed": False}}


APPEND, OTHER_APPEND = proposal(add("a")), proposal(add("b"))
DELETE, REWRITE = proposal(remove("x")), proposal(remove("y"), add("z"))
BACKFILL = proposal(add("t", dataChange=False), operation=Operation(name="ROW TRACKING BACKFILL"))
COMPACTION = proposal(remove("u", dataChange=False), add("v", dataChange=False))


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (APPEND, "append"),
        (DELETE, "change"),
        (REWRITE, "change"),
        (COMPACTION, "rearrangement"),
        (proposal(), "bare"),
        (proposal(add("a"), add("b", dataChange=False)), "mixed"),
        (proposal(remove("x"), CDC), "change"),
        (proposal(CDC), "change"),
        (proposal(remove("x", dataChange=False), add("y", dataChange=False), CDC), "mixed"),
    ],
)
def test_the_kind_of_change_that_a_proposal_is(one: Proposal, expected: str) -> None:
    assert flawless(one).change_kind == expected


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (APPEND, OTHER_APPEND),
        (DELETE, REWRITE),
        (COMPACTION, proposal(remove("s", dataChange=False), add("t", dataChange=False))),
        (APPEND, batch_of("s", 1, add("c"))),
        (APPEND, proposal(domain("d"))),
        (proposal(domain("d")), DELETE),
        (proposal(domain("d")), proposal(domain("e"))),
        (proposal(remove("x"), CDC), proposal(remove("y"), {"cdc": {**CDC["cdc"], "path": "d"}})),
    ],
)
def test_what_one_entry_can_hold_shares_it(first: Proposal, second: Proposal) -> None:
    assert may_share(first, second)


@pytest.mark.parametrize(
    ("rule", "first", "second"),
    [
        (like_with_like, APPEND, DELETE),
        (like_with_like, DELETE, APPEND),
        (like_with_like, APPEND, COMPACTION),
        (like_with_like, DELETE, COMPACTION),
        (the_table_changes_alone, APPEND, proposal(metadata())),
        (the_table_changes_alone, proposal(metadata()), APPEND),
        (the_table_changes_alone, proposal(protocol()), APPEND),
        (no_path_twice, APPEND, proposal(add("a"))),
        (no_path_twice, DELETE, proposal(remove("x"))),
        (no_path_twice, DELETE, proposal(remove("w"), add("x"))),
        (one_of_each_domain, proposal(domain("d")), proposal(domain("d"))),
        (change_files_for_all_or_none, proposal(remove("x"), CDC), REWRITE),
        (change_files_for_all_or_none, REWRITE, proposal(remove("x"), CDC)),
        (like_with_like, APPEND, proposal(add("b"), add("c", dataChange=False))),
        (row_ids_move_alone, BACKFILL, COMPACTION),
        (row_ids_move_alone, COMPACTION, BACKFILL),
        (row_ids_move_alone, BACKFILL, proposal()),
        (row_ids_move_alone, proposal(), BACKFILL),
        (no_path_twice, REWRITE, row_delete(rows_of("y", [1]))),
        (no_path_twice, proposal(remove("x"), CDC), proposal(remove("y"), CDC)),
    ],
)
def test_a_rule_separates_what_one_entry_cannot_hold(
    rule: Sharing, first: Proposal, second: Proposal
) -> None:
    group = Group(1)
    group.take(flawless(first))
    assert [item for item in SHARING if not item(group, flawless(second))] == [rule]
    assert not may_share(first, second)


def test_a_file_of_which_rows_are_deleted_neither_leaves_nor_joins_in_that_entry() -> None:
    group = Group(1)
    known = FetchedInputs(files={"x": Add.model_validate(add("x")["add"])})
    group.take(flawless(row_delete(rows_of("x", [1]))), known)
    for rows in ([remove("x"), add("z")], [remove("z"), add("x")]):
        assert not fits(group, flawless(proposal(*rows)), Policy())
    assert fits(group, flawless(proposal(remove("y"), add("z"))), Policy())


def test_a_group_has_its_limits() -> None:
    assert not may_share(APPEND, OTHER_APPEND, Policy(group_members_max=1))
    assert not may_share(APPEND, OTHER_APPEND, Policy(group_actions_max=1))
    assert not may_share(APPEND, OTHER_APPEND, Policy(group_bytes_max=10))


def test_a_group_may_reach_its_limits_and_no_further() -> None:
    size = flawless(APPEND).size + flawless(OTHER_APPEND).size
    assert may_share(APPEND, OTHER_APPEND, Policy(group_members_max=2))
    assert may_share(APPEND, OTHER_APPEND, Policy(group_actions_max=2))
    assert may_share(APPEND, OTHER_APPEND, Policy(group_bytes_max=size))
    assert not may_share(APPEND, OTHER_APPEND, Policy(group_bytes_max=size - 1))


def test_files_that_lose_rows_and_applications_take_their_share_of_an_entrys_actions() -> None:
    files = {name: Add.model_validate(add(name)["add"]) for name in ("x", "y")}
    group = Group(1)
    group.take(flawless(row_delete(rows_of("x", [1]))), FetchedInputs(files=files))
    same, other = (flawless(row_delete(rows_of("x", [2]))), flawless(row_delete(rows_of("y", [2]))))
    assert fits(group, same, Policy(group_actions_max=2)), "the file stands in the entry anyway"
    assert not fits(group, other, Policy(group_actions_max=3))
    assert fits(group, other, Policy(group_actions_max=4))

    moved = APPEND.model_copy(update={"app_txn": AppTxn(app_id="job", version=1)})
    assert not may_share(OTHER_APPEND, moved, Policy(group_actions_max=2))
    assert may_share(OTHER_APPEND, moved, Policy(group_actions_max=3))


def test_refusals_take_their_share_of_an_entrys_bytes() -> None:
    group, refused = Group(1), flawless(DELETE)
    group.take(flawless(APPEND))
    before = group.size
    group.refuse(refused, refused.id, Rejection(rule="malformed", reason="r" * 100))
    assert group.size > before + 100


def test_anything_fits_into_an_empty_group() -> None:
    rows = [add(f"f{number}") for number in range(5)]
    assert fits(Group(1), flawless(proposal(*rows)), Policy(group_actions_max=1))


def test_every_sharing_rule_says_why() -> None:
    assert all(rule.__doc__ for rule in SHARING)

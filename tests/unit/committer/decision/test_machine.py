"""The order of a decision, group commit, and what must be in the log before it is published."""

import json
from dataclasses import replace

import pytest

from tests import builders
from tests.builders import (
    NOW_MS,
    ROOT,
    TABLE,
    Row,
    add,
    batch_of,
    creation,
    delete,
    info,
    metadata,
    proposal,
    protocol,
)
from tests.support.decisions import ORIGIN, encoded_of, landed, planned, rules, table
from tests.support.outcomes import rejection_of
from tidegate_committer.conflicts.conflict_rules import RULES_VERSION
from tidegate_committer.decision.machine import BatchPlan, DecisionTerms, VersionLanded, evolve
from tidegate_committer.group_commit.entry_encoding import Attempt, encode
from tidegate_committer.state.log_entry import entry_of
from tidegate_committer.state.table_state import TableState
from tidegate_delta.log.commit import Commit
from tidegate_messages.proposal import ReadSet


def needs(decided: BatchPlan) -> list[str]:
    return [verdict.needs for verdict in decided.verdicts]


def test_appends_share_an_entry_in_their_order() -> None:
    decided = planned(table(creation()), proposal(add("a")), proposal(add("b")))
    assert [(verdict.status, verdict.version, verdict.place) for verdict in decided.verdicts] == [
        ("committed", 1, 0),
        ("committed", 1, 1),
    ]


def test_a_batch_is_cut_where_the_next_needs_another_entry() -> None:
    state = table(creation(["p"]), [add("p=1/old")])
    gone = delete("p=1/old", read_version=1)
    decided = planned(state, proposal(add("p=2/a")), gone, proposal(add("p=2/b")))
    assert len(decided.verdicts) == 1


def test_on_an_unpartitioned_table_an_append_before_a_delete_rules_it_out() -> None:
    state = table(creation(), [add("old")])
    reads = ReadSet(files=("old",), predicates=({"op": "true"},))
    decided = planned(state, proposal(add("a")), delete("old", read_version=1, reads=reads))
    assert rules(decided) == ["committed", "concurrent_append"]


def test_a_change_of_the_isolation_level_is_decided_under_the_old_level() -> None:
    """Otherwise the entry would state an isolation level at which it was not checked."""
    state = table(creation(isolationLevel="SnapshotIsolation"), [info(), add("a")])
    reads = ReadSet(predicates=({"op": "true"},))
    strict = proposal(metadata(isolationLevel="Serializable"), read_version=0, reads=reads)
    assert rules(planned(state, strict)) == ["concurrent_append"]
    # A proposal without metaData uses the table's level.
    assert rules(planned(state, proposal(add("b"), read_version=0, reads=reads))) == ["committed"]


def test_an_append_does_not_rule_out_who_read_files_by_their_paths_alone() -> None:
    state = table(creation(), [add("old")], [info(), add("a")])
    assert rules(planned(state, delete("old", read_version=1))) == ["committed"]


def test_a_proposal_after_the_creation_is_decided_as_later_ones() -> None:
    txn = {"txn": {"appId": "app", "version": 3}}
    state = table([*creation(), add("a"), txn])
    decided = planned(state, delete("a"), delete("a"), delete("nobody"))
    assert rules(decided) == ["committed", "concurrent_delete_read", "removed_file_not_live"]
    seen = proposal(add("b"), app_txn={"app_id": "app", "version": 3})
    assert rules(planned(state, seen)) == ["app_txn_seen"]


def test_the_id_is_found_after_the_reason_to_refuse_came() -> None:
    one = proposal(add("a"), deadline_ms=NOW_MS + 5_000)
    state = landed(table(creation()), one)
    assert rules(planned(state, one, terms=DecisionTerms(NOW_MS + 10_000, 100))) == ["committed"]


def test_a_refusal_stands_after_its_reason_is_gone() -> None:
    one = proposal(add("a"), deadline_ms=NOW_MS + 5_000)
    state = table(creation())
    late = DecisionTerms(NOW_MS + 10_000, 100)
    decided = planned(state, one, terms=late)
    assert needs(decided) == ["refusal"]
    entry = encode(state, decided.group, ORIGIN, Attempt(TABLE, NOW_MS)).entry
    state = evolve(state, VersionLanded(entry))
    again = planned(state, one)
    assert rules(again) == ["deadline_passed"]
    assert needs(again) == ["nothing"]


def test_the_same_id_in_one_batch_is_answered_once_for_all() -> None:
    one = proposal(add("a"))
    other = one.model_copy(update={"user_metadata": "other bytes"})
    decided = planned(table(creation()), one, one, other)
    assert rules(decided) == ["committed", "committed", "id_reused"]
    assert [verdict.repeat for verdict in decided.verdicts] == [False, True, False]
    assert len(decided.group.members) == 1


def test_a_conflict_names_the_proposal_whose_file_it_is_about() -> None:
    state = table(creation(), [add("a"), add("b"), add("c")])
    first = proposal(builders.remove("a"), add("a2"), read_version=1, reads=ReadSet(files=("a",)))
    second, whole = delete("b", read_version=1), ReadSet(whole_table=True)
    for winners in ((first,), (first, second), (second, first)):
        after = landed(state, *winners)
        entry = after.entries[2]
        result = Commit.decode(2, encoded_of(state, *winners).content)
        assert entry_of(result, entry.sha256, entry.size) == entry
        for late in (delete("a", read_version=1), proposal(add("x"), read_version=1, reads=whole)):
            [verdict] = planned(after, late).verdicts
            assert rejection_of(verdict).winner_version == 2
            assert rejection_of(verdict).winner_proposal_id == str(first.proposal_id)


def test_a_conflict_names_the_proposal_that_moved_the_application_or_wrote_the_domain() -> None:
    features = protocol(1, 7, writerFeatures=["domainMetadata"])
    state = table([info(), features, metadata()], [add("old")])
    moved = batch_of("stream", 5, add("b"), read_version=1)
    domain: Row = {"domainMetadata": {"domain": "d", "configuration": "", "removed": False}}
    wrote = proposal(domain, read_version=1)
    winners = proposal(add("a"), read_version=1), moved, wrote, batch_of("other", 1, add("c"))
    after = landed(state, *winners)
    result = Commit.decode(2, encoded_of(state, *winners).content)
    assert entry_of(result, after.entries[2].sha256, after.entries[2].size) == after.entries[2]
    for reads, first in ((ReadSet(app_ids=("stream",)), moved), (ReadSet(domains=("d",)), wrote)):
        [verdict] = planned(after, proposal(add("x"), read_version=1, reads=reads)).verdicts
        assert verdict.rejection is not None
        assert verdict.rejection.winner_proposal_id == str(first.proposal_id)
        named = (verdict.rejection.app_id, verdict.rejection.domain)
        assert named == ((*reads.app_ids, None)[0], (*reads.domains, None)[0])


@pytest.mark.parametrize(
    ("added", "removed"), [((), ()), ((), (0, 0)), ((), (0, 0, 1)), ((), (9,))]
)
def test_the_winner_of_an_entry_without_the_field_is_not_guessed(
    added: tuple[int, ...], removed: tuple[int, ...]
) -> None:
    before = table(creation(), [add("a"), add("b")])
    winners = delete("a", read_version=1), delete("b", read_version=1)
    entry = encoded_of(before, *winners).entry
    assert entry.provenance is not None
    result = entry.provenance.model_copy(update={"files_added": added, "files_removed": removed})
    state = evolve(before, VersionLanded(replace(entry, provenance=result)))
    [verdict] = planned(state, delete("b", read_version=1)).verdicts
    assert (rejection_of(verdict).winner_version, rejection_of(verdict).winner_proposal_id) == (
        2,
        None,
    )


def test_a_conflict_is_a_fact_of_the_log_and_needs_no_writing() -> None:
    state = table(creation(), [add("old")], [info(), builders.remove("old")])
    decided = planned(state, delete("old", read_version=1))
    assert rules(decided) == ["concurrent_delete_read"]
    assert needs(decided) == ["nothing"]


def test_under_other_rules_every_negative_is_written() -> None:
    state = table(creation(), [add("old")], [info(), builders.remove("old")])
    for known in (None, RULES_VERSION + 1):
        assert needs(planned(replace(state, rules=known), delete("old", read_version=1))) == [
            "refusal"
        ]


def test_an_application_that_was_seen_is_not_committed_again() -> None:
    state = landed(table(creation()), batch_of("s", 5, add("a")))
    assert rules(planned(state, batch_of("s", 5, add("b")))) == ["app_txn_seen"]
    assert rules(planned(state, batch_of("s", 4, add("b")))) == ["app_txn_seen"]
    assert rules(planned(state, batch_of("s", 6, add("b")))) == ["committed"]


def test_who_hears_that_an_application_was_seen_hears_in_which_version_and_by_whom() -> None:
    first = batch_of("s", 5, add("a"))
    state = landed(landed(table(creation()), first, proposal(add("c"))), proposal(add("d")))
    [verdict] = planned(state, batch_of("s", 5, add("b"))).verdicts
    result = verdict.rejection
    assert result is not None
    assert (result.winner_version, result.app_id) == (1, "s")
    assert result.winner_proposal_id == str(first.proposal_id)
    [verdict] = planned(
        replace(state, window_start=2), batch_of("s", 5, add("b"), read_version=2)
    ).verdicts
    assert rejection_of(verdict).winner_version is None, "it was too long ago"


def test_a_table_that_forgets_applications_writes_that_refusal_down() -> None:
    made = creation(setTransactionRetentionDuration="interval 1 day")
    state = landed(table(made), batch_of("s", 5, add("a")))
    assert needs(planned(state, batch_of("s", 5, add("b")))) == ["refusal"]


def test_a_cancel_refuses_what_comes_later() -> None:
    one = proposal(add("a"))
    cancel = proposal(kind="cancel", cancels=one.proposal_id)
    state = table(creation())
    decided = planned(state, cancel, one)
    assert rules(decided) == ["cancelled", "cancelled"]
    assert needs(decided) == ["refusal", "nothing"]
    state = evolve(
        state, VersionLanded(encode(state, decided.group, ORIGIN, Attempt(TABLE, NOW_MS)).entry)
    )
    assert rules(planned(state, one)) == ["cancelled"]
    assert rules(planned(state, cancel)) == ["cancelled"]


def test_too_old_to_know_is_no_rejection() -> None:
    state = replace(table(creation(), [add("a")], [add("b")]), oldest=2, window_start=2)
    [verdict] = planned(state, proposal(add("c"), read_version=0)).verdicts
    assert verdict.status == "expired"
    assert rules(planned(state, proposal(add("c"), read_version=1))) == ["committed"]


def test_no_more_refusals_means_no_promise() -> None:
    decided = planned(table(creation()), builders.late(add("x")), terms=DecisionTerms(NOW_MS, 0))
    assert decided.verdicts[0].status == "denied"
    assert needs(decided) == ["nothing"]


def test_nothing_is_promised_where_there_is_no_log() -> None:
    empty = TableState(TABLE, ROOT, 1_000)
    row = metadata()
    row["metaData"]["partitionColumns"] = ["missing"]
    [verdict] = planned(empty, proposal(builders.protocol(), row, read_version=-1)).verdicts
    assert verdict.status == "denied"
    [verdict] = planned(empty, proposal(add("a"), read_version=-1)).verdicts
    assert verdict.status == "denied"


def test_the_window_forgets_what_is_old_and_no_more() -> None:
    state = replace(table(creation()), window=3)
    proposals = [proposal(add(f"f{number}"), read_version=number) for number in range(6)]
    for item in proposals:
        state = landed(state, item)
    assert state.window_start == 4
    assert sorted(state.entries) == [4, 5, 6]
    assert {proposal.proposal_id for proposal in proposals[3:]} == set(state.decisions)
    assert state.table_definition_at(3).metadata.id == builders.TABLE_ID


def test_what_an_operator_could_allow_is_refused_in_the_log() -> None:
    state = table(creation())
    wide = proposal(add("a", stats=json.dumps({"numRecords": 1, "x": "x" * 2_000_000})))
    decided = planned(state, wide)
    assert rules(decided) == ["too_large"]
    assert needs(decided) == ["refusal"]

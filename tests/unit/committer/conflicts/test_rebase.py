"""Effects of a rebase onto a winner on the proposal, effect by effect."""

from dataclasses import replace
from typing import Any

from tests.builders import Row, add, commit, info, metadata, proposal, remove
from tests.support.conflicts import rebase_state
from tests.support.decisions import planned, rules, table
from tests.support.feature_rows import BACKFILL, TRACKED, VECTOR, listed, named
from tidegate_committer.conflicts.conflict_rules import follow
from tidegate_committer.conflicts.rebase import RebaseState, wanted_in_full
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.state.log_entry import Entry, entry_of
from tidegate_messages.proposal import Operation, Proposal, ReadSet

TABLE: tuple[Row, Row] = (listed(*TRACKED), metadata())
SUSPENDED: tuple[Row, Row] = (listed(*TRACKED), metadata(rowTrackingSuspended="true"))


def winner(version: int, *rows: Row) -> Entry:
    """Return a version with all adds of its commit loaded."""
    read = commit(version, *rows)
    made = entry_of(read, "0" * 64, 1)
    return Entry(**{**vars(made), "adds": tuple(read.adds)})


def after(one: Proposal, *winners: Entry, of: tuple[Row, ...] = TABLE) -> Candidate:
    met = follow(rebase_state(one, *of), winners)
    assert isinstance(met, RebaseState), met
    return met.candidate


def ids(candidate: Candidate) -> dict[str, tuple[int | None, int | None]]:
    return {
        file.path: (file.base_row_id, file.default_row_commit_version)
        for file in (*candidate.content.adds, *candidate.content.removes)
    }


def test_a_proposal_that_nothing_changes_stays_the_same_object() -> None:
    one = rebase_state(proposal(add("a"), reads=ReadSet(files=("z",))), *TABLE)
    met = follow(one, [winner(1, info("DELETE"), remove("b"))])
    assert isinstance(met, RebaseState)
    assert met.candidate is one.candidate


def test_row_tracking_that_a_winner_turned_on_is_not_preserved() -> None:
    on = winner(1, metadata(enableRowTracking="true"))
    assert after(proposal(add("a")), on).tags == {"delta.rowTracking.preserved": "false"}
    known = (listed(*TRACKED), metadata(enableRowTracking="true"))
    more = metadata(enableRowTracking="true", enableDeletionVectors="true")
    vectors = (listed(*TRACKED, reader=("deletionVectors",)), known[1])
    assert after(proposal(add("a")), winner(1, more), of=vectors).tags is None


def test_ids_from_before_the_table_tracked_rows_are_none() -> None:
    begins = winner(1, listed(*TRACKED))
    plain = (listed("domainMetadata"), metadata())
    brought = proposal(add("a", baseRowId=4, defaultRowCommitVersion=0))
    assert ids(after(brought, begins, of=plain)) == {"a": (None, 0)}


def test_a_backfill_leaves_out_what_winners_touched() -> None:
    gives = named("ROW TRACKING BACKFILL", *(add(name, dataChange=False) for name in "abc"))
    later = after(gives, winner(1, remove("a")), winner(2, add("b", baseRowId=0)))
    assert [item.path for item in later.content.adds] == ["c"]
    assert [path for path, _ in later.content.added] == ["c"]
    assert len(later.content.lines) == 1


def given(**fields: Any) -> Entry:
    return winner(1, BACKFILL, add("a", dataChange=False, baseRowId=7, **fields))


def test_files_have_the_ids_that_a_backfill_gave_them() -> None:
    changes = proposal(
        remove("a"),
        add("a", stats='{"numRecords":10,"tightBounds":false}', deletionVector=VECTOR),
        add("b"),
        reads=ReadSet(files=("a",)),
    )
    later = after(changes, given(defaultRowCommitVersion=1))
    assert ids(later) == {"a": (7, 1), "b": (None, None)}
    assert [(item.base_row_id, item.default_row_commit_version) for item in later.content.adds] == [
        (7, 1),
        (None, None),
    ]
    [body] = [line for line in later.content.lines if not isinstance(line, bytes)]
    assert (body["baseRowId"], body["defaultRowCommitVersion"]) == (7, 1)


def test_removing_ids_removes_them_from_winners_files_too() -> None:
    takes = named("ROW TRACKING UNBACKFILL", add("a", dataChange=False), add("b", dataChange=False))
    later = after(
        takes,
        winner(1, add("c", baseRowId=3), add("d"), remove("a")),
        winner(2, remove("c"), add("e", defaultRowCommitVersion=2)),
        of=SUSPENDED,
    )
    assert ids(later) == {"b": (None, None), "e": (None, None)}
    assert not any(item.data_change for item in later.content.adds)


def test_a_dropped_row_tracking_takes_ids_off_without_that_name() -> None:
    drops = named("DROP FEATURE", listed("domainMetadata"))
    later = after(drops, winner(1, add("c", baseRowId=3)), of=SUSPENDED)
    assert ids(later) == {"c": (None, None)}


def cluster(version: int, *columns: str) -> Entry:
    body = {"domain": "delta.clustering", "configuration": f'{{"clusteringColumns":{[*columns]}}}'}
    return winner(version, {"domainMetadata": {**body, "removed": False}})


def test_a_replaced_table_is_not_clustered_by_a_winner() -> None:
    clustered = (listed("clustering", "domainMetadata"), metadata())
    rows = (metadata(), remove("a"), add("b"))
    later = after(named("REPLACE TABLE", *rows), cluster(1), of=clustered)
    [domain] = later.content.domains
    assert (domain.domain, domain.removed) == ("delta.clustering", True)
    assert len(later.content.lines) == 3
    assert after(named("WRITE", *rows[1:]), cluster(1), of=clustered).content.domains == ()
    own: Row = {"domainMetadata": {"domain": "mine", "configuration": "", "removed": False}}
    foreign = winner(1, own)
    assert after(named("REPLACE TABLE", *rows), foreign, of=clustered).content.domains == ()


def test_what_a_winner_makes_it_bury_keeps_its_level() -> None:
    clustered = (listed("clustering", "domainMetadata"), metadata())
    moves = named("REPLACE TABLE", remove("a", dataChange=False), add("b", dataChange=False))
    later = after(moves, cluster(1), of=clustered)
    assert later.content.domains
    assert later.level("Serializable") == "SnapshotIsolation"
    assert after(moves, winner(1, info()), of=clustered).level("Serializable") == later.level(
        "Serializable"
    )


def test_no_row_gets_another_id_where_the_given_ones_are_unknown() -> None:
    given = {"baseRowId": 4, "defaultRowCommitVersion": 1}
    before = [info(), add("x", **given)], [info("DELETE"), remove("x")]
    cleaned_up = replace(table([info(), *TABLE], *before), mark_before=None)
    restores = proposal(add("x", **given), read_version=2, operation=Operation(name="RESTORE"))
    assert rules(planned(cleaned_up, restores, proposal(add("y"), read_version=2))) == [
        "expired",
        "committed",
    ]


def test_only_who_repeats_winners_files_wants_them_in_full() -> None:
    winners = [
        entry_of(commit(1, BACKFILL, add("a", dataChange=False, baseRowId=0)), "0" * 64, 1),
        entry_of(commit(2, info(), add("b")), "0" * 64, 1),
        entry_of(commit(3, info(), remove("b")), "0" * 64, 1),
    ]

    def wanted(one: Proposal) -> list[int]:
        return wanted_in_full(rebase_state(one, *TABLE).candidate, winners)

    assert wanted(proposal(add("c"))) == []
    assert wanted(proposal(remove("b"))) == []
    assert wanted(proposal(remove("a"))) == [1]
    assert wanted(proposal(remove("a"), read_version=1)) == []
    assert wanted(named("ROW TRACKING UNBACKFILL", add("z", dataChange=False))) == [1, 2]
    assert wanted(named("DROP FEATURE", listed("domainMetadata"))) == [1, 2]

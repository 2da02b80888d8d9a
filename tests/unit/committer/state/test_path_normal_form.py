"""Removes and re-adds use the log's exact path text, because engines compare it byte by byte."""

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import builders
from tests.builders import Gate, add, creation, delete, info, proposal, remove
from tests.support.decisions import ORIGIN, landed, planned, rules, state_of, table
from tests.support.outcomes import rejection_of
from tests.support.stores import store_of
from tests.support.tables import creating
from tests.verbatim_proposals import verbatim
from tidegate_committer.group_commit.entry_encoding import Attempt, encode
from tidegate_committer.state.log_entry import entry_of
from tidegate_committer.store_reads import recovery
from tidegate_delta.deletion_vectors.descriptors import inline
from tidegate_delta.deletion_vectors.roaring_bitmap import of_rows
from tidegate_delta.log.commit import Commit, sha256
from tidegate_delta.log.file_names import commit_name, in_log
from tidegate_delta.log.file_paths import canonical_path, canonical_paths, unusual_in, unusual_paths
from tidegate_messages.proposal import Operation, Proposal

SPELLINGS = (
    ("a%20b", "%61%20b"),
    ("p%3A1", "p%3a1"),
    ("x/y", "x%2Fy"),
    ("x%2Fy", "x/y"),
    ("é", "%C3%A9"),
    ("%C3%A9", "é"),
    ("plain", "%70lain"),
    ("%70lain", "plain"),
)
ODD = ("./a", "x/../a", "x//a", "_x/a", "x%20//a")
PIECES = ("a", "/", "%20", "%2F", "%2f", "%25", "é", "%C3%A9", " ", ".", "=", ":", "~", "s3://")
REPEATS = {"dataChange": False}
COMPUTED = Operation(name="COMPUTE STATS")


@pytest.mark.parametrize(("path", "other"), SPELLINGS)
def test_a_file_leaves_under_the_spelling_that_it_came_under(path: str, other: str) -> None:
    assert canonical_path(path) == canonical_path(other)
    by_others = table([*creation(), add(path)])
    by_us = landed(table(creation()), proposal(add(path)))
    for state in (by_others, by_us):
        at = state.version
        assert rules(planned(state, delete(other, read_version=at))) == ["removed_file_not_live"]
        assert rules(planned(state, delete(path, read_version=at))) == ["committed"]
        again = proposal(add(other, **REPEATS), read_version=at, operation=COMPUTED)
        assert rules(planned(state, again)) == ["added_file_live"]
        again = proposal(add(path, **REPEATS), read_version=at, operation=COMPUTED)
        assert rules(planned(state, again)) == ["committed"]


def with_a_file_by_others(path: str) -> Gate:
    """Return a committer of a table with deletion vectors, with a file of another engine."""
    gate = Gate()
    names = ["deletionVectors"]
    listed = builders.protocol(3, 7, readerFeatures=names, writerFeatures=names)
    on = builders.metadata(enableDeletionVectors="true")
    gate.ask(creating(listed, on))
    store_of(gate).files[in_log(commit_name(1))] = builders.to_bytes([info(), add(path)])
    return gate


@pytest.mark.parametrize("path", ODD)
def test_files_with_unnormalised_names_are_removed_and_lose_rows(path: str) -> None:
    gate = with_a_file_by_others(path)
    less = builders.row_delete(builders.rows_of(path, [1]), read_version=1)
    assert [outcome.status for outcome in gate.ask(less)] == ["committed"]
    rows = {name: row for line in gate.entries()[2] for name, row in line.items()}
    assert (rows["remove"]["path"], rows["add"]["path"]) == (path, path)
    gone = remove(path, deletionVector=rows["add"]["deletionVector"])
    assert [outcome.status for outcome in gate.ask(proposal(gone, read_version=2))] == ["committed"]


@pytest.mark.parametrize("path", ODD)
def test_files_with_unnormalised_names_return_as_the_log_spells_them(path: str) -> None:
    result = (proposal(add(path, tags={"a": "b"}, **REPEATS), read_version=1), lesser(path, path))
    statuses = [with_a_file_by_others(path).ask(item)[-1].status for item in result]
    assert statuses == ["committed", "committed"]


@pytest.mark.parametrize("path", [*ODD, "s3://other/table/a"])
def test_no_file_joins_under_an_odd_name(path: str) -> None:
    # A new file with a URI lies in no allowed place; one that says it was there has a bad path.
    rules_of_path = ["bad_path"] if path in ODD else ["bad_path", "place_not_allowed"]
    usual, joins = canonical_path(path), proposal(add(path, **REPEATS), read_version=1)
    with_vector = proposal(less_a_row(path), read_version=1)
    table_of_it = (builders.protocol(), builders.metadata(), add(path, **REPEATS))
    created = creating(*table_of_it)
    for gate, one in (
        (with_a_file_by_others("b"), joins),
        (with_a_file_by_others("b"), with_vector),
        (with_a_file_by_others("b"), lesser("b", path)),
        (with_a_file_by_others(f"{usual}b"), joins),
        *([(with_a_file_by_others(usual), lesser(usual, path))] if usual != path else []),
        (Gate(), created),
    ):
        [outcome] = gate.ask(one)
        assert rejection_of(outcome).rule in rules_of_path, "nothing joins"
        assert rejection_of(outcome).path == path


def less_a_row(path: str) -> builders.Row:
    """Return the file re-added under a path, with one row deleted."""
    vector = inline(of_rows([1])).model_dump(by_alias=True, exclude_none=True)
    return add(path, deletionVector=vector, stats='{"numRecords":10,"tightBounds":false}')


def lesser(before: str, after: str) -> Proposal:
    return proposal(remove(before), less_a_row(after), read_version=1)


def test_the_refusal_has_the_spelling_of_the_log() -> None:
    state = table([*creation(), add("p%3A1")])
    [verdict] = planned(state, delete("p%3a1")).verdicts
    assert rejection_of(verdict).field == "actions.remove.path"
    assert "'p%3A1'" in rejection_of(verdict).reason


def test_a_file_that_left_may_come_again_under_any_spelling() -> None:
    state = table([*creation(), add("é")], [info(), remove("é")])
    state = landed(state, proposal(add("%C3%A9"), read_version=1))
    assert rules(planned(state, delete("é", read_version=2))) == ["removed_file_not_live"]
    assert rules(planned(state, delete("%C3%A9", read_version=2))) == ["committed"]


@pytest.mark.parametrize(("path", "other"), SPELLINGS)
def test_ready_bytes_spell_files_as_the_log_does(path: str, other: str) -> None:
    gate = Gate()
    gate.ask(builders.create(), proposal(add(path)))
    wrong = gate.ask(verbatim(gate, 2, info(txnId="w"), remove(other)))[-1]
    assert (wrong.status, rejection_of(wrong).rule) == ("denied", "removed_file_not_live")
    assert gate.ask(verbatim(gate, 2, info(txnId="w"), remove(path)))[-1].status == "committed"


def test_cached_spellings_are_those_of_the_log() -> None:
    gate = Gate()
    paths = ["plain", *dict(SPELLINGS)]
    # Of two forms of one path only one can be added.
    once = list({canonical_path(path): path for path in paths}.values())
    gate.ask(builders.create(), *map(proposal, map(add, once)))
    gate.ask(delete("plain", "a%20b", read_version=len(gate.entries()) - 1))
    kept = state_of(gate)
    read = recovery.load(gate.stores[builders.ROOT], builders.TABLE, 10)
    assert dict(read.spelt) == dict(kept.spelt)
    assert kept.spelt


@given(st.lists(st.lists(st.sampled_from(PIECES), min_size=1, max_size=5).map("".join), max_size=5))
def test_many_paths_are_checked_as_one_is(paths: list[str]) -> None:
    column = pa.chunked_array([pa.array(paths, pa.string())])
    one_by_one = unusual_paths((path, canonical_path(path)) for path in paths)
    assert list(unusual_in(column, canonical_paths(column))) == list(one_by_one)


def test_an_entry_remembers_the_spellings_that_its_file_holds() -> None:
    state = table(creation())
    odd = proposal(add("é"), add("a/b"), add("%70lain", tags={"a": json.dumps("b")}))
    plan = planned(state, odd, proposal(add("c")))
    encoded = encode(state, plan.group, ORIGIN, Attempt(builders.an_id(), builders.NOW_MS))
    again = Commit.decode(1, encoded.content)
    assert encoded.entry == entry_of(again, sha256(encoded.content), len(encoded.content))
    assert encoded.entry.spelt == {"é": "é", "plain": "%70lain"}

"""Paths that leave the table, hide from readers or are ambiguous: all are refused."""

import posixpath
from random import Random
from urllib.parse import unquote

import pytest

from tests import builders
from tests.builders import Gate, Row, add, info, metadata, proposal, protocol, remove, rows_of
from tests.support.feature_rows import WIDE
from tests.support.outcomes import rejection_of, rule_of, rules_of
from tests.support.tables import creating
from tests.unit.committer.hostile_paths import CONTROLS, PATHS, SLASHES, STAYS, UPS
from tidegate_committer.intake.path_checks import (
    data_path_problem,
    existing_path_problem,
    foreign_uri_problem,
)
from tidegate_committer.settings import CommitterSection
from tidegate_delta.deletion_vectors.descriptors import inline
from tidegate_delta.deletion_vectors.roaring_bitmap import of_rows
from tidegate_messages.proposal import Operation, Proposal

AT_ONCE = 200
NAMES = ["deletionVectors"]
TABLE = (
    protocol(3, 7, readerFeatures=NAMES, writerFeatures=NAMES),
    metadata(enableDeletionVectors="true"),
)
WALKS = 20_000
PIECES = (*UPS, *SLASHES, *STAYS, "a", "p=1", "%25", "%32%65", "é", "x.parquet", " ", ":", "file:")


def changed(row: Row, path: str) -> Row:
    [(name, body)] = row.items()
    return {name: {**body, "path": path}}


def adds(path: str) -> Proposal:
    return proposal(changed(add("a"), path))


def removes(path: str) -> Proposal:
    return proposal(changed(remove("old"), path))


def vectors(path: str) -> Proposal:
    intent = rows_of("old", [1]).model_copy(update={"path": path})
    return proposal(dv_intents=[intent])


def vector(which: list[int]) -> Row:
    return inline(of_rows(which)).model_dump(by_alias=True, exclude_none=True)


def refused_as(propose: object, path: str) -> list[tuple[str, str]]:
    """Return the expected refusal. Odd and outside paths may be removed where the log has them."""
    rules = ["bad_path"]
    if propose is adds and foreign_uri_problem(path) is None:
        rules = ["place_not_allowed"]
    elif propose is not adds and existing_path_problem(path) is None:
        rules = ["removed_file_not_live", "file_not_live"]
    return [("rejected", rule) for rule in rules]


def test_the_corpus_is_large() -> None:
    assert len(PATHS) >= 300
    assert len(CONTROLS) == 33


@pytest.mark.parametrize("propose", [adds, removes, vectors])
def test_no_path_of_the_corpus_is_taken_wherever_it_stands(propose: object) -> None:
    assert callable(propose)
    section = CommitterSection(roots=("memory://tables",), refusals_burst=10_000)
    gate = Gate(section)
    gate.ask(creating(*TABLE), proposal(add("old")))
    for start in range(0, len(PATHS), AT_ONCE):
        paths = PATHS[start : start + AT_ONCE]
        sent = [propose(path) for path in paths]
        result = {item.proposal_id: item for item in gate.ask(*sent)}
        for one, path in zip(sent, paths, strict=True):
            outcome = result[one.proposal_id]
            assert (outcome.status, rejection_of(outcome).rule) in refused_as(propose, path), path
    rows = [row for entry in gate.entries()[2:] for row in entry]
    assert not any({"add", "remove"} & row.keys() for row in rows)


CLONE = "s3://other/table/a.parquet"


def of_a_clone(*proposals: Proposal) -> list[str]:
    """Return the results on a table that has a file outside its root and takes deletion vectors."""
    gate = Gate()
    gate.stores[builders.ROOT] = builders.table_in_memory([info("CLONE"), *TABLE, add(CLONE)])
    gate.ask(proposal(kind="register", read_version=-1))
    result = [gate.ask(item)[-1] for item in proposals]
    return rules_of(result)


def test_a_file_that_lies_elsewhere_already_may_leave_and_lose_rows() -> None:
    lesser = builders.row_delete(rows_of(CLONE, [1]), read_version=0)
    bare = proposal(remove(CLONE), add(CLONE, deletionVector=vector([1]), stats=WIDE))
    again = proposal(add(CLONE, dataChange=False))
    for item in (builders.delete(CLONE), lesser, bare, again):
        assert of_a_clone(item) == ["committed"], item


def test_no_file_joins_elsewhere() -> None:
    other = "s3://other/table/b.parquet"
    moved = proposal(remove(CLONE, dataChange=False), add(other, dataChange=False))
    fresh = proposal(add(other, deletionVector=vector([1]), stats=WIDE))
    again = proposal(add(other, dataChange=False))
    assert of_a_clone(moved, again) == ["bad_path"] * 2
    assert of_a_clone(fresh, adds(other)) == ["place_not_allowed"] * 2
    assert of_a_clone(builders.delete(other)) == ["removed_file_not_live"]
    assert of_a_clone(removes(f"{CLONE}?")) == ["removed_file_not_live"]


ALLOWED = "memory://tables/source"
SHALLOW = Operation(name="CLONE")


def created(*rows: Row) -> str:
    """Return the result of creating a table with some rows, where tables may lie below ALLOWED."""
    gate = Gate()
    result = gate.ask(proposal(*TABLE, *rows, read_version=-1, operation=SHALLOW))[-1]
    return rule_of(result)


def vector_at(path: str) -> Row:
    return {**vector([1]), "storageType": "p", "pathOrInlineDv": path, "offset": 1}


def test_files_of_a_clone_lie_below_the_roots_that_are_allowed() -> None:
    assert created(add(f"{ALLOWED}/_x/a%20b.parquet")) == "committed"
    path = f"{ALLOWED}/a.parquet"
    assert created(add(path, deletionVector=vector([1]), stats=WIDE)) == "committed"


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("s3://other/table/a.parquet", "place_not_allowed"),
        ("memory://tablesx/a.parquet", "place_not_allowed"),
        (f"{ALLOWED}/../../other/a.parquet", "bad_path"),
        (f"{ALLOWED}/%2e%2e/%2e%2e/other/a.parquet", "bad_path"),
        (f"{ALLOWED}/a b.parquet", "bad_path"),
        (f"{ALLOWED}/a%zz.parquet", "bad_path"),
        (f"{ALLOWED}//a.parquet", "bad_path"),
        ("MEMORY://tables/source/a.parquet", "bad_path"),
        ("/tables/source/a.parquet", "bad_path"),
    ],
)
def test_files_of_a_clone_lie_nowhere_else(path: str, rule: str) -> None:
    assert created(add(path)) == rule
    away = add(f"{ALLOWED}/a.parquet", deletionVector=vector_at(path), stats=WIDE)
    assert created(away) == rule


def test_a_file_below_the_root_has_one_path() -> None:
    path = f"{builders.ROOT}/a.parquet"
    assert created(add(path)) == "bad_path"
    assert of_a_clone(adds(path)) == ["bad_path"]


def test_change_files_lie_nowhere_else_either() -> None:
    taken = [path for path in PATHS if data_path_problem(path, is_change_file=True) is None]
    assert taken == ["_change_data/x", "%5Fchange_data/x"]


def test_whatever_is_put_together_stays_below_the_root_however_often_it_is_decoded() -> None:
    dice = Random(20_260)
    taken = 0
    for _ in range(WALKS):
        path = "".join(dice.choices(PIECES, k=dice.randint(1, 8)))
        if data_path_problem(path) is not None:
            continue
        taken += 1
        for key in (path, unquote(path), unquote(unquote(path))):
            # Some stores take a backslash for a separator.
            place = posixpath.normpath(posixpath.join("/tables/t", key.replace("\\", "/")))
            assert f"{place}/".startswith("/tables/t/"), path
    assert taken > WALKS // 100, "hardly a path was taken: nothing was asked"

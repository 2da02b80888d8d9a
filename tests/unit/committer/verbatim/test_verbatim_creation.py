"""Version 0 as a verbatim entry: it creates and registers a table, or is refused."""

from uuid import UUID

import pytest

from tests import builders
from tests.builders import ROOT, TABLE, TABLE_ID, Gate, Row, add, info, proposal, to_bytes
from tests.fakes.memory_store import MemoryStore
from tests.support.outcomes import answers_of, rule_of, rules_of
from tests.verbatim_proposals import verbatim
from tidegate_committer.settings import CommitterSection
from tidegate_delta.log.file_names import commit_name, in_log

OTHER = UUID("00000000-0000-7000-8000-00000000000b")
ROWS = [info("CREATE TABLE", txnId="w"), builders.protocol(), builders.metadata()]
LOG_0 = in_log(commit_name(0))


@pytest.fixture
def gate() -> Gate:
    return Gate()


def bytes_of(gate: Gate) -> bytes | None:
    return gate.stores[ROOT].read(LOG_0)


def with_id(table_id: str) -> list[Row]:
    definition = builders.metadata()
    definition["metaData"]["id"] = table_id
    return [info("CREATE TABLE", txnId=table_id), builders.protocol(), definition]


def test_the_bytes_become_version_0_of_a_registered_table(gate: Gate) -> None:
    one = verbatim(gate, 0, *ROWS, add("a"))
    [outcome] = gate.ask(one)
    assert (outcome.status, outcome.version, outcome.table) == ("committed", 0, TABLE)
    assert bytes_of(gate) == to_bytes([*ROWS, add("a")])
    record = gate.tables()[TABLE]
    assert (record.name, record.table_id, record.status) == ("t", TABLE_ID, "open")
    [event] = gate.commits()
    assert (event.version, event.table_root) == (0, ROOT)
    [again] = gate.ask(one)
    assert (again.status, again.version, again.repeat) == ("committed", 0, True)
    [appended] = gate.ask(proposal(add("b")))
    assert (appended.status, appended.version) == ("committed", 1)


def test_of_two_creators_one_is_served(gate: Gate) -> None:
    mine = verbatim(gate, 0, *ROWS)
    theirs = verbatim(gate, 0, *with_id("another"), table=OTHER)
    late = verbatim(gate, 0, *with_id("a third"))
    gate.send(mine, theirs, late)
    gate.settle(12)
    answers = {outcome.proposal_id: rule_of(outcome) for outcome in gate.outcomes()}
    assert answers[mine.proposal_id] == "committed"
    assert answers[theirs.proposal_id] == "being_created"
    assert answers[late.proposal_id] == "version_taken"
    assert rules_of(gate.ask(theirs)) == ["table_exists"]
    assert bytes_of(gate) == to_bytes(ROWS)
    assert list(gate.tables()) == [TABLE]


WRONG: dict[str, tuple[str, list[Row]]] = {
    "no protocol": ("malformed", [info(), builders.metadata()]),
    "no metaData": ("malformed", [info(), builders.protocol(), add("a")]),
    "removes a file": ("removed_file_not_live", [*ROWS, builders.remove("a")]),
    "an unknown feature": (
        "unknown_feature",
        [
            info(),
            builders.protocol(3, 7, readerFeatures=["zz"], writerFeatures=["zz"]),
            builders.metadata(),
        ],
    ),
    "a timestamp that is missing": (
        "no_timestamp",
        [
            info(),
            builders.protocol(1, 7, writerFeatures=["inCommitTimestamp"]),
            builders.metadata(enableInCommitTimestamps="true"),
        ],
    ),
    "row ids that are missing": (
        "no_row_ids",
        [
            info(),
            builders.protocol(1, 7, writerFeatures=["rowTracking", "domainMetadata"]),
            builders.metadata(
                **{
                    "enableRowTracking": "true",
                    "rowTracking.materializedRowIdColumnName": "_ids",
                    "rowTracking.materializedRowCommitVersionColumnName": "_versions",
                }
            ),
            add("a"),
        ],
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_version_0_that_no_table_can_begin_with_is_denied(gate: Gate, name: str) -> None:
    rule, rows = WRONG[name]
    assert answers_of(gate.ask(verbatim(gate, 0, *rows))) == [("denied", rule)]
    assert (bytes_of(gate), gate.tables()) == (None, {})
    assert rules_of(gate.ask(verbatim(gate, 0, *ROWS))) == ["committed"]


def test_an_unknown_table_that_is_there_is_not_replaced(gate: Gate) -> None:
    before = to_bytes(with_id("theirs"))
    store = gate.stores.setdefault(ROOT, MemoryStore(ROOT))
    store.put(LOG_0, before)
    assert answers_of(gate.ask(verbatim(gate, 0, *ROWS))) == [("rejected", "version_taken")]
    assert (bytes_of(gate), gate.tables()) == (before, {})


def test_where_verbatim_bytes_are_not_allowed_they_create_nothing() -> None:
    gate = Gate(CommitterSection(roots=("memory://tables",), verbatim=False))
    assert rules_of(gate.ask(verbatim(gate, 0, *ROWS))) == ["verbatim_not_allowed"]
    assert (bytes_of(gate), gate.tables()) == (None, {})


def test_a_root_that_is_not_allowed_gets_no_table(gate: Gate) -> None:
    root = "memory://elsewhere/t"
    assert rules_of(gate.ask(verbatim(gate, 0, *ROWS, table_root=root))) == ["root_not_allowed"]
    assert gate.stores[root].read(LOG_0) is None


def test_a_dropped_table_makes_room_for_another_one(gate: Gate) -> None:
    gate.ask(verbatim(gate, 0, *ROWS))
    gate.ask(proposal(kind="drop"))
    same = verbatim(gate, 0, *ROWS, table=OTHER)
    assert rules_of(gate.ask(same)) == ["table_dropped"], "it is there, and stays dropped"
    gate.stores[ROOT].delete(LOG_0)
    [outcome] = gate.ask(verbatim(gate, 0, *with_id("new"), table=OTHER))
    assert (outcome.status, outcome.table) == ("committed", OTHER)
    record = gate.tables()[OTHER]
    assert (record.name, record.table_id, record.status) == ("t-0000000b", "new", "open")
    assert rules_of(gate.ask(proposal(add("a")))) == ["table_dropped"]


def cloned(path: str, **changed: object) -> list[Row]:
    return [
        info("CLONE", txnId="c"),
        builders.protocol(),
        builders.metadata(),
        add(path, **changed),
    ]


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("file:/lake/source/a%20b.parquet", "committed"),
        ("file:///lake/source/a.parquet", "committed"),
        ("s3a://bucket/source/a.parquet", "committed"),
        ("file:/elsewhere/a.parquet", "place_not_allowed"),
        ("s3://other/a.parquet", "place_not_allowed"),
        ("memory://tables/t/a.parquet", "place_not_allowed"),
        ("file:/lake/../etc/a.parquet", "bad_path"),
        ("file:/lake/source/a b.parquet", "bad_path"),
        ("file:/lake/source/a%", "bad_path"),
    ],
)
def test_a_shallow_clone_names_files_under_the_roots_of_the_operator(path: str, rule: str) -> None:
    gate = Gate(CommitterSection(roots=("memory://tables", "file:///lake", "s3://bucket")))
    assert rules_of(gate.ask(verbatim(gate, 0, *cloned(path)))) == [rule]


@pytest.mark.parametrize(
    ("place", "rule"),
    [("file:///lake/source/v.bin", "committed"), ("file:///etc/v.bin", "place_not_allowed")],
)
def test_so_do_the_deletion_vectors_of_a_clone(place: str, rule: str) -> None:
    gate = Gate(CommitterSection(roots=("memory://tables", "file:///lake")))
    vector = {
        "storageType": "p",
        "pathOrInlineDv": place,
        "offset": 1,
        "sizeInBytes": 36,
        "cardinality": 2,
    }
    features = ["deletionVectors"]
    rows = cloned("file:/lake/source/a.parquet", deletionVector=vector)
    rows[1] = builders.protocol(3, 7, readerFeatures=features, writerFeatures=features)
    assert rules_of(gate.ask(verbatim(gate, 0, *rows))) == [rule]

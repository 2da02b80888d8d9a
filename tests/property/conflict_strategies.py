"""Strategies for conflict tests: proposals and winning versions that touch the same few files."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from tests import builders
from tests.builders import ROOT, TABLE, Row, commit, info, to_bytes, value_of
from tests.fakes.memory_store import MemoryStore
from tidegate_committer.decision.machine import VersionLanded, evolve
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.proposal_reader import read_record
from tidegate_committer.intake.row_intents import Relocation
from tidegate_committer.policy import Level, Policy
from tidegate_committer.state.log_entry import Entry, entry_of
from tidegate_committer.state.table_state import TableState
from tidegate_delta.deletion_vectors.descriptors import inline
from tidegate_delta.deletion_vectors.roaring_bitmap import of_rows
from tidegate_delta.log.actions import Add
from tidegate_delta.log.file_names import commit_name, in_log
from tidegate_messages.proposal import Operation, Predicate, Proposal, ReadSet

POLICY = Policy(weakest_isolation="SnapshotIsolation")
PLAIN = builders.protocol()
TRACKED = builders.protocol(
    3, 7, readerFeatures=[], writerFeatures=["rowTracking", "domainMetadata"]
)
WITH_VECTORS = builders.protocol(
    3, 7, readerFeatures=["deletionVectors"], writerFeatures=["deletionVectors", "domainMetadata"]
)
LIVE = ("p=1/a", "p=1/b", "p=2/a", "p=2/b", "p=3/a")
NAMES = st.sampled_from([f"p={p}/{name}" for p in (1, 2, 3) for name in "abcd"])
LEVELS: st.SearchStrategy[Level] = st.sampled_from(
    ["Serializable", "WriteSerializable", "SnapshotIsolation"]
)
LEAVES: st.SearchStrategy[Predicate] = st.one_of(
    st.builds(
        lambda op, value: {"op": op, "column": ["p"], "value": value, "type": "integer"},
        st.sampled_from(["=", "<", "!="]),
        st.integers(1, 3),
    ),
    st.builds(
        lambda op, value: {"op": op, "column": "x", "value": value, "type": "long"},
        st.sampled_from(["=", ">=", "<"]),
        st.integers(0, 9),
    ),
    st.just({"op": "opaque", "columns": ["x"], "text": "f(x)"}),
)
PREDICATES = st.one_of(
    LEAVES,
    st.builds(
        lambda op, args: {"op": op, "args": args},
        st.sampled_from(["and", "or"]),
        st.lists(LEAVES, min_size=1, max_size=3),
    ),
)
OPERATIONS = st.sampled_from(
    ["WRITE", "DELETE", "OPTIMIZE", "REPLACE TABLE", "ROW TRACKING BACKFILL"]
)
APPS = st.sampled_from(["s", "t"])
DOMAINS = st.sampled_from(["d", "delta.clustering"])
FLAGS = st.sampled_from([{}, {}, {}, {"dataChange": False}])
"""`dataChange` of the files: mostly true."""
CHANGES: st.SearchStrategy[Row] = st.sampled_from(
    [
        {"op": "set_property", "key": "mine", "value": "1"},
        {"op": "comment_on", "path": ["x"], "comment": "so"},
    ]
)


def domain(name: str) -> Row:
    return {"domainMetadata": {"domain": name, "configuration": "{}", "removed": False}}


def vector(*rows: int) -> Row:
    return inline(of_rows(rows)).model_dump(by_alias=True, exclude_none=True)


@st.composite
def files(draw: st.DrawFn) -> list[Row]:
    """Draw added files with or without bounds, removed files, and files that lose rows."""
    result: list[Row] = []
    changed = draw(FLAGS)
    for path in draw(st.lists(NAMES, unique=True, max_size=4)):
        kind = draw(st.sampled_from(["join", "join", "leave", "leave", "lose"]))
        if kind == "leave":
            result.append(builders.remove(path, **changed))
            continue
        low = draw(st.integers(0, 9))
        bounds = {"minValues": {"x": low}, "maxValues": {"x": low + 1}, "nullCount": {"x": 0}}
        stats: dict[str, Any] = {"numRecords": 10, **(bounds if draw(st.booleans()) else {})}
        ids: Row = draw(st.sampled_from([{}, {}, {"baseRowId": 7, "defaultRowCommitVersion": 1}]))
        if kind == "lose":
            stats["tightBounds"] = False
            result.append(builders.remove(path))
            ids = {"deletionVector": vector(0)}
        result.append(builders.add(path, stats=json.dumps(stats), **{**changed, **ids}))
    return result


@st.composite
def read_sets(draw: st.DrawFn) -> ReadSet:
    """Draw a read set, often empty."""
    result = ReadSet(
        whole_table=draw(st.sampled_from([False, False, True])),
        predicates=tuple(draw(st.lists(PREDICATES, max_size=2))),
        files=tuple(draw(st.lists(NAMES, max_size=2))),
        app_ids=tuple(draw(st.lists(APPS, max_size=1))),
        domains=tuple(draw(st.lists(DOMAINS, max_size=1))),
        delete_insensitive=draw(st.booleans()),
    )
    return draw(st.sampled_from([result, result, ReadSet()]))


@st.composite
def writes(draw: st.DrawFn) -> Proposal:
    """Draw a proposal of files and domains."""
    more: list[Row] = [domain(name) for name in draw(st.lists(DOMAINS, unique=True, max_size=1))]
    own: dict[str, Any] = {}
    if draw(st.sampled_from([False, False, True])):
        own["app_txn"] = {"app_id": draw(APPS), "version": draw(st.integers(0, 9))}
    return builders.proposal(
        *draw(files()),
        *(more if draw(st.booleans()) else []),
        reads=draw(read_sets()),
        operation=Operation(name=draw(OPERATIONS)),
        isolation=draw(LEVELS),
        **own,
    )


@st.composite
def row_deletes(draw: st.DrawFn) -> Proposal:
    """Draw a proposal to delete or update rows of files that stay."""
    op = draw(st.sampled_from(["delete", "delete", "update"]))
    intents = [
        builders.rows_of(path, draw(st.sets(st.integers(0, 9), min_size=1, max_size=2)), op=op)
        for path in draw(st.lists(st.sampled_from(LIVE), unique=True, min_size=1, max_size=2))
    ]
    images = [builders.add(f"p=1/i{draw(st.integers(0, 9))}")] if op == "update" else []
    reads = ReadSet(
        files=tuple(intent.path for intent in intents) if draw(st.booleans()) else (),
        delete_insensitive=draw(st.booleans()),
        predicates=tuple(draw(st.lists(PREDICATES, max_size=1))),
    )
    operation = Operation(name="UPDATE" if images else "DELETE")
    result: Row = {"reads": reads, "operation": operation, "dv_intents": tuple(intents)}
    return builders.proposal(*images, isolation=draw(LEVELS), **result)


@st.composite
def compactions(draw: st.DrawFn) -> Proposal:
    """Draw a compaction that states where rows went."""
    paths = draw(st.lists(st.sampled_from(LIVE), unique=True, min_size=1, max_size=3))
    target = f"p=1/g{draw(st.integers(0, 9))}"
    reads: Row = {} if draw(st.booleans()) else {"reads": draw(read_sets())}
    return builders.compact(dict.fromkeys(paths, 10), target, isolation=draw(LEVELS), **reads)


@st.composite
def patches(draw: st.DrawFn) -> Proposal:
    """Draw a proposal that patches the table's metadata, whatever it is by then."""
    result: Row = {"metadata_patch": {"changes": [draw(CHANGES)]}, "reads": draw(read_sets())}
    return builders.proposal(operation=Operation(name="ALTER TABLE"), **result)


PROPOSALS = st.one_of(writes(), writes(), row_deletes(), compactions(), patches())


@st.composite
def winners(draw: st.DrawFn) -> tuple[Entry, Sequence[Add] | None]:
    """Draw a version, and its added files if they have been read."""
    extra: list[Row] = draw(
        st.sampled_from(
            [
                *([], [], []),
                [{"txn": {"appId": "s", "version": 1}}],
                [domain("delta.clustering")],
                [builders.metadata(["p"], note="x")],
                [TRACKED],
            ]
        )
    )
    result = info(draw(OPERATIONS), isBlindAppend=draw(st.booleans()))
    made = commit(1, result, *draw(files()), *extra)
    entry = entry_of(made, "0" * 64, 1)
    moved = draw(st.sampled_from([(), sorted(entry.removed)]))
    if moved:
        entry = replace(
            entry, moved={path: Relocation("p=1/g", 0, 10, 10, None, None) for path in moved}
        )
    return entry, draw(st.sampled_from([None, tuple(made.adds)]))


def candidate_of(one: Proposal, offset: int = 0) -> Candidate:
    result = read_record(value_of(one), offset, POLICY)
    assert isinstance(result, Candidate)
    return result


def begun(protocol: Row, properties: Mapping[str, str]) -> tuple[MemoryStore, TableState]:
    """Return a table with the live files, and its store."""
    rows = [
        info("CREATE TABLE"),
        protocol,
        builders.metadata(["p"], **properties),
        *map(builders.add, LIVE),
    ]
    store = MemoryStore(ROOT)
    store.put(in_log(commit_name(0)), to_bytes(rows))
    entry = entry_of(commit(0, *rows), "0" * 64, 1)
    return store, evolve(TableState(TABLE, ROOT, 1_000), VersionLanded(entry))

"""All admission steps would accept, unchanged, a proposal that takes the fast path."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from tests import builders
from tests.builders import NOW_MS, TABLE, Row
from tests.fakes.memory_store import MemoryStore
from tests.property.conflict_strategies import (
    LIVE,
    PLAIN,
    TRACKED,
    WITH_VECTORS,
    begun,
    domain,
    vector,
)
from tests.property.test_machine import ORIGIN
from tidegate_committer.decision.decision_types import Consider, DecisionInput, Verdict
from tidegate_committer.decision.fast_path import FastPath
from tidegate_committer.decision.machine import (
    BatchPlanner,
    DecisionTerms,
    VersionLanded,
    decide,
    evolve,
)
from tidegate_committer.group_commit.entry_encoding import Attempt, encode
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.proposal_reader import read_record
from tidegate_committer.policy import Policy
from tidegate_committer.state.table_state import TableState
from tidegate_committer.store_reads.read_cache import ReadCache
from tidegate_delta.log.file_names import commit_name, in_log
from tidegate_messages.proposal import Operation, Proposal
from tidegate_messages.read_set import ReadSet

POLICY = Policy(group_members_max=3, group_actions_max=6, group_bytes_max=4_000)
SEEN = UUID(int=0x7000_8000_0000_0000_0000)
"""A proposal id that may be in the log already."""

FEED = builders.protocol(1, 4)
COUNTED = {"numRecords": 10, "tightBounds": False}
AN_IDENTITY: Final = [{"column": "x", "count": 1}]
A_USAGE: Final = [{"column": "x", "low": 1, "high": 2}]

Fields = Mapping[str, Any]
EQUAL: Final[Row] = {"op": "=", "column": "p", "value": 2, "type": "integer"}


def read(**fields: Any) -> Fields:
    return {"reads": ReadSet(**fields)}


ODD_FIELDS: Final[Sequence[Fields]] = [
    {"table_root": "memory://tables/another"},
    {"table_id": "22222222-2222-4222-8222-222222222222"},
    {"isolation": "SnapshotIsolation"},
    {"isolation": "WriteSerializable"},
    {"deadline_ms": NOW_MS - 1},
    {"files_since_ms": 0},
    {"operation": Operation(name="W" * 200)},
    {"operation": Operation(name="ROW TRACKING BACKFILL")},
    {"kind": "cancel", "cancels": SEEN},
    {"app_txn": {"app_id": "s", "version": 3}},
    {"identity_leases": AN_IDENTITY},
    {"identity_usage": A_USAGE},
    {"cdc_mode": "none"},
    {"proposal_id": SEEN},
    {"read_version": -1, "table_id": None},
    {"read_version": 9},
    {"reads": None},
    read(predicates=({"op": "?"},)),
    read(predicates=(EQUAL,)),
    read(predicates=(EQUAL,), files=(LIVE[0],), delete_insensitive=True),
    read(whole_table=True),
    read(files=(LIVE[2],)),
    read(app_ids=("s",)),
    read(domains=("d",)),
]
CHANGE_FILE: Final[Row] = {
    "cdc": {"path": "_change_data/z", "partitionValues": {"p": "1"}, "size": 1, "dataChange": False}
}
ODD_ROWS: Final[Sequence[Row]] = [
    builders.add("q=1/z"),
    builders.add("p=one/z"),
    builders.add(LIVE[3]),
    builders.add("p=1/z", dataChange=False),
    builders.add("p=1/z", stats=json.dumps(COUNTED), deletionVector=vector(0)),
    builders.add("p=1/z", stats=None),
    builders.add("p=1/z", baseRowId=7, defaultRowCommitVersion=1),
    builders.add("../z"),
    builders.remove("p=1/nowhere"),
    builders.remove(LIVE[4], deletionVector=vector(1)),
    builders.remove(LIVE[4], dataChange=False),
    CHANGE_FILE,
    {"txn": {"appId": "s", "version": 3}},
    domain("d"),
    domain("delta.rowTracking"),
    builders.metadata(["p"], note="x"),
    builders.protocol(1, 3),
    builders.protocol(3, 7, readerFeatures=["?"], writerFeatures=["?"]),
]
TABLES: Final = [
    (PLAIN, {}),
    (PLAIN, {}),
    (PLAIN, {"appendOnly": "true"}),
    (WITH_VECTORS, {"enableDeletionVectors": "true"}),
    (TRACKED, {"enableRowTracking": "true"}),
    (FEED, {"enableChangeDataFeed": "true"}),
    (builders.protocol(1, 3), {"constraints.c": "x > 0"}),
]


def append(*more: Row, name: str = "n", **fields: Any) -> Proposal:
    return builders.proposal(builders.add(f"p=1/{name}"), *more, **fields)


def change(*more: Row, path: str = LIVE[0], **fields: Any) -> Proposal:
    new = builders.add(f"{path}-again")
    result = {"operation": Operation(name="DELETE"), **read(files=(path,)), **fields}
    return builders.proposal(builders.remove(path), new, *more, **result)


def revision(path: str) -> Proposal:
    """Return a change with a deletion vector that the writer made."""
    new = builders.add(path, stats=json.dumps(COUNTED), deletionVector=vector(0))
    result = {"operation": Operation(name="DELETE"), **read(files=(path,))}
    return builders.proposal(builders.remove(path), new, **result)


OTHERS: Final[Sequence[Callable[[], Proposal]]] = [
    lambda: append(name="m"),
    lambda: append(name="n"),
    lambda: append(name="m", proposal_id=SEEN),
    lambda: append(name="m", app_txn={"app_id": "s", "version": 3}),
    lambda: builders.proposal(domain("d")),
    lambda: builders.proposal(builders.add("p=2/m")),
    lambda: change(path=LIVE[1]),
    lambda: change(path=LIVE[0]),
    lambda: change(CHANGE_FILE, path=LIVE[1]),
    lambda: revision(LIVE[0]),
    lambda: revision(LIVE[1]),
    lambda: builders.proposal(builders.metadata(["p"], note="y")),
    lambda: append(builders.metadata(["p"], note="y"), name="m"),
    lambda: builders.row_delete(builders.rows_of(LIVE[0], [1])),
    lambda: builders.row_delete(builders.rows_of(LIVE[1], [1])),
    lambda: builders.compact({LIVE[0]: 10, LIVE[1]: 10}, "p=1/g"),
    lambda: builders.proposal(builders.remove(LIVE[1]), operation=Operation(name="DELETE")),
    lambda: append(operation=Operation(name="ROW TRACKING BACKFILL")),
]


@st.composite
def proposals(draw: st.DrawFn) -> Proposal:
    """Draw an append or a change with at most one oddity, or another kind of proposal."""
    kind = draw(st.sampled_from(["plain", "plain", "fields", "fields", "rows", "rows", "other"]))
    if kind == "other":
        return draw(st.sampled_from(OTHERS))()
    rows = [draw(st.sampled_from(ODD_ROWS))] if kind == "rows" else []
    odd = draw(st.sampled_from(ODD_FIELDS)) if kind == "fields" else {}
    made = draw(st.sampled_from([append, change]))
    fields = {"read_version": draw(st.integers(0, 3)), **odd}
    result: Proposal = made(*rows, **fields)
    return result


def candidate_of(one: Proposal, offset: int) -> Candidate | None:
    result = read_record(builders.value_of(one), offset, POLICY)
    return result if isinstance(result, Candidate) else None


def later(
    store: MemoryStore, state: TableState, history: Sequence[Proposal], policy: Policy
) -> TableState:
    """Return the state after some proposals, each in an entry of its own."""
    for item in history:
        candidate = candidate_of(item, 0)
        assert candidate is not None
        known = ReadCache(store).learn(state, [candidate], policy)
        planning = BatchPlanner(state, policy)
        planning.extend([candidate], DecisionTerms(NOW_MS, 100), known)
        if not planning.group.is_empty:
            encoded = encode(state, planning.group, ORIGIN, Attempt(TABLE, NOW_MS))
            state = evolve(state, VersionLanded(encoded.entry))
            store.put(in_log(commit_name(state.version)), encoded.content)
    return state


@given(
    proposals(),
    st.lists(st.sampled_from(OTHERS), max_size=2),
    st.lists(st.sampled_from(OTHERS), max_size=2),
    st.sampled_from(TABLES),
    st.sampled_from([0, 0, 0, 2]),
)
@settings(max_examples=400, deadline=None)
def test_no_step_has_anything_to_say_of_who_takes_the_fast_path(
    one: Proposal,
    before: Sequence[Callable[[], Proposal]],
    members: Sequence[Callable[[], Proposal]],
    table: tuple[Row, dict[str, str]],
    oldest: int,
) -> None:
    store, state = begun(*table)
    state = later(store, state, [make() for make in before], POLICY)
    state = replace(state, oldest=min(oldest, state.version))
    candidate = candidate_of(one, 9)
    if candidate is None:
        return
    joined = [candidate_of(make(), offset) for offset, make in enumerate(members)]
    batch = [
        result for result in joined if result is not None and result.read_version >= oldest - 1
    ]
    known = ReadCache(store).learn(state, [*batch, candidate], POLICY)
    planning = BatchPlanner(state, POLICY)
    planning.extend(batch, DecisionTerms(NOW_MS, 100), known)
    view, command = DecisionInput(state, planning.group, POLICY, known), Consider(candidate, NOW_MS)
    if FastPath(state, POLICY).is_clear(view, command):
        place = len(planning.group.members)
        verdict = decide(view, command)
        assert verdict == Verdict(candidate, "committed", "membership", state.version + 1, place)

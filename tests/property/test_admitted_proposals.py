"""Whatever admission accepts can be read back and written to checkpoints, checksums and streams."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import orjson
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests import builders
from tests.builders import NOW_MS, add, metadata, protocol, remove, schema, to_bytes
from tests.fakes.memory_store import MemoryStore
from tests.fuzz.mutations import ODD
from tests.fuzz.tables import KINDS, allowed, summarise
from tests.fuzz.targets import LITERALS
from tidegate_cdc_publisher.commit_origin import provenance
from tidegate_committer.intake.action_reader import dated
from tidegate_committer.intake.proposal_actions import read_content
from tidegate_committer.intake.refusals import InvalidProposal
from tidegate_committer.policy import Policy
from tidegate_committer.verbatim.verbatim_validation import line_problem, parse_verbatim
from tidegate_delta.change_feed import plan
from tidegate_delta.checkpoints import log_compaction, version_checksum
from tidegate_delta.log.commit import Commit
from tidegate_delta.log.file_names import commit_name, in_log
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_messages.codec import parse_json
from tidegate_messages.outcome import Rejection
from tidegate_runtime.table_io.open_table import open_snapshot

MARK = "(odd)"
COLUMNS = {kind.partition("(")[0]: kind for kind in KINDS}
BEGUN = to_bytes(
    [
        protocol(3, 7, readerFeatures=["deletionVectors", "v2Checkpoint"], writerFeatures=[
            "deletionVectors", "v2Checkpoint", "domainMetadata", "timestampNtz",
        ]),
        {"metaData": {**metadata()["metaData"], "schemaString": schema(**COLUMNS)}},
        add("old"),
    ]
)  # fmt: skip
VECTOR = {"storageType": "u", "pathOrInlineDv": "0" * 20, "sizeInBytes": 34, "offset": 1}
BODIES: dict[str, dict[str, Any]] = {
    "add": add("a", tags={}, deletionVector={**VECTOR, "cardinality": 1}, baseRowId=1)["add"],
    "remove": remove("old", deletionTimestamp=NOW_MS, tags={})["remove"],
    "cdc": {"path": "_change_data/c", "partitionValues": {}, "size": 1, "dataChange": False},
    "txn": {"appId": "app", "version": 1, "lastUpdated": NOW_MS},
    "domainMetadata": {"domain": "d", "configuration": "", "removed": False},
    "commitInfo": {
        "timestamp": NOW_MS,
        "inCommitTimestamp": NOW_MS,
        "operation": "WRITE",
        "operationParameters": {},
        "tidegate": {},
    },
}
STATED = {
    "numRecords": 3,
    "minValues": LITERALS,
    "maxValues": LITERALS,
    "nullCount": dict.fromkeys(LITERALS, 0),
}

numbers = st.integers(-(2**70), 2**70).map(str) | st.sampled_from(
    [str(2**power + step) for power in (31, 53, 63, 64) for step in (-1, 0, 1)]
)
odd = st.sampled_from(ODD) | numbers | st.floats().map(json.dumps)


@st.composite
def statistics(draw: st.DrawFn) -> str:
    """Draw statistics with an odd value."""
    group = draw(st.sampled_from([*STATED, "tightBounds"]))
    result: Any = STATED.get(group)
    if isinstance(result, dict) and draw(st.booleans()):
        result = {**result, draw(st.sampled_from(sorted(LITERALS))): MARK}
    else:
        result = MARK
    text = json.dumps({**STATED, group: result}).replace(json.dumps(MARK), draw(odd))
    return json.dumps(text)


@st.composite
def lines(draw: st.DrawFn) -> bytes:
    """Draw a line of the log with an odd field; most others are right."""
    name = draw(st.sampled_from(sorted(BODIES)))
    body = {field: value for field, value in BODIES[name].items() if draw(st.booleans())}
    body = {**BODIES[name], **body} if draw(st.booleans()) else body
    field = draw(st.sampled_from([*BODIES[name], "stats", "unheardOf"]))
    value = draw(statistics() if field == "stats" else odd)
    inner = BODIES[name].get(field)
    if isinstance(inner, dict) and draw(st.booleans()):
        result: Any = {**inner, draw(st.sampled_from([*inner, "unheardOf"])): MARK}
    else:
        result = MARK
    text = json.dumps({name: {**body, field: result}}).replace(json.dumps(MARK), value)
    return text.encode("utf-8", "surrogatepass")


def proposed(line: bytes) -> Iterator[bytes]:
    """Yield the log lines of a native proposal of one line, if it is accepted."""
    record = allowed(parse_json, b'{"actions":[' + line + b"]}")
    if record is None:
        return
    try:
        content = read_content(record["actions"], Policy())
    except InvalidProposal:
        return
    yield from (dated(line, NOW_MS) for line in content.lines)
    yield from (orjson.dumps(txn.to_row()) + b"\n" for txn in content.txns)


def ready(line: bytes) -> Iterator[bytes]:
    """Yield a line of a verbatim entry, if it is accepted."""
    read = parse_verbatim(1, line + b"\n")
    if not isinstance(read, Rejection) and line_problem(line, {"old"}.__contains__, bool) is None:
        yield line + b"\n"


def use(line: bytes) -> None:
    """Read a table that has a line, and write everything that services write about a table."""
    store = MemoryStore(builders.ROOT)
    store.files[in_log(commit_name(0))] = BEGUN
    before = open_snapshot(store)
    store.files[in_log(commit_name(1))] = line
    head = open_snapshot(store)
    commit = Commit.decode(1, line)
    assert Commit.decode(1, commit.encode()) == commit
    summarise(store, head)
    followed(before, head, commit)
    allowed(plan, commit, 0)
    json.dumps(provenance(commit, head.metadata)).encode()
    compacted = log_compaction.compact([Commit.decode(0, BEGUN), commit])
    store.files["_delta_log/00000000000000000000.00000000000000000001.compacted.json"] = compacted
    assert open_snapshot(store).files.num_rows == head.files.num_rows


def followed(before: Snapshot, head: Snapshot, commit: Commit) -> None:
    """Update a table's totals by a commit: they equal those computed again, or are unknown."""
    after = version_checksum.evolve(version_checksum.of(before), commit)
    if after is not None:
        result = version_checksum.decode(version_checksum.encode(after))
        assert not version_checksum.differences(
            replace(result, in_commit_timestamp=None), version_checksum.of(head)
        )


@given(lines())
@example(b'{"add":%s}' % json.dumps({**BODIES["add"], "size": 2**63 - 1}).encode())
@settings(max_examples=300)
def test_what_is_proposed_and_taken_can_be_read_and_summed_up(line: bytes) -> None:
    for taken in proposed(line):
        use(taken)


@given(lines())
@settings(max_examples=300)
def test_ready_bytes_that_are_taken_can_be_read_and_summed_up(line: bytes) -> None:
    for taken in ready(line):
        use(taken)

"""Sizes that our own readers could not read are refused in proposals, else ignored or halted."""

import json
from typing import Any

import pytest

from tests.builders import (
    NOW_MS,
    ROOT,
    TABLE,
    Gate,
    Row,
    add,
    info,
    metadata,
    proposal,
    protocol,
    remove,
)
from tests.support.outcomes import rejection_of, rules_of
from tests.support.tables import creating
from tests.verbatim_proposals import stage, verbatim
from tidegate_delta.log.commit import Commit
from tidegate_delta.log.file_names import commit_name, in_log
from tidegate_delta.value_limits import AHEAD_MAX_MS, DEPTH_MAX, TIMESTAMP_MAX

PAST_A_LONG = 2**64
TIMED = (
    protocol(1, 7, writerFeatures=["inCommitTimestamp", "appendOnly", "invariants"]),
    metadata(enableInCommitTimestamps="true"),
)


def deep(levels: int) -> str:
    return "[" * levels + "1" + "]" * levels


def stats(**fields: Any) -> str:
    return json.dumps({"numRecords": 1, **fields})


def begun(*rows: Row) -> Gate:
    gate = Gate()
    made = rows or (protocol(), metadata())
    [outcome] = gate.ask(creating(*made, add("old")))
    assert outcome.status == "committed", outcome
    return gate


def foreign(gate: Gate, *lines: str | Row) -> None:
    """Write the next version as another engine."""
    version = len(gate.entries())
    text = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
    gate.stores[ROOT].put(in_log(commit_name(version)), text.encode())


def last(gate: Gate) -> Commit:
    version = len(gate.entries()) - 1
    content = gate.stores[ROOT].read(in_log(commit_name(version)))
    return Commit.decode(version, content or b"")


REFUSED: tuple[tuple[str, Row], ...] = (
    ("numRecords", add("a", stats=stats(numRecords=PAST_A_LONG))),
    ("nullCount of column 'x'", add("a", stats=stats(nullCount={"x": PAST_A_LONG}))),
    ("nullCount of column 'x'", add("a", stats=stats(nullCount={"x": -PAST_A_LONG}))),
    ("nullCount of column 's.y'", add("a", stats=stats(nullCount={"s": {"y": 2**63}}))),
    ("stats", add("a", stats='{"numRecords":1,"minValues":{"s":"\\ud800"}}')),
    ("modificationTime", add("a", modificationTime=TIMESTAMP_MAX + 1)),
    ("size", add("a", size=2**63)),
    ("baseRowId", add("a", baseRowId=2**63)),
    ("deletionTimestamp", remove("old", deletionTimestamp=TIMESTAMP_MAX + 1)),
    ("lastUpdated", {"txn": {"appId": "a", "version": 1, "lastUpdated": TIMESTAMP_MAX + 1}}),
    ("version", {"txn": {"appId": "a", "version": 2**63}}),
    ("createdTime", {"metaData": {**metadata()["metaData"], "createdTime": TIMESTAMP_MAX + 1}}),
)


@pytest.mark.parametrize(("field", "row"), REFUSED, ids=[field for field, _ in REFUSED])
@pytest.mark.parametrize("way", ["native", "verbatim"])
def test_what_nobody_could_read_back_is_refused_by_its_name(way: str, field: str, row: Row) -> None:
    gate = begun()
    one = proposal(row) if way == "native" else verbatim(gate, 1, info(txnId="w"), row)
    [outcome] = gate.ask(one)
    assert rejection_of(outcome).rule == "malformed", outcome
    assert field in rejection_of(outcome).reason
    assert rules_of(gate.ask(proposal(add("good")))) == ["committed"]


@pytest.mark.parametrize("levels", [DEPTH_MAX, 254, 255, 256, 1_000])
@pytest.mark.parametrize(
    "line",
    [
        '{{"someFutureAction":{}}}',
        '{{"add":{{"path":"a","partitionValues":{{}},"size":1,"modificationTime":1,'
        '"dataChange":true,"new":{}}}}}',
        '{{"commitInfo":{}}}',
        '{{"commitInfo":{{"tags":{{"t":{}}}}}}}',
    ],
)
def test_ready_bytes_that_are_nested_deeply_are_refused_by_their_line(
    line: str, levels: int
) -> None:
    gate = begun()
    claim = stage(gate.stores[ROOT], 1, line.format(deep(levels)).encode() + b"\n")
    one = verbatim(gate, 1, info(txnId="w")).model_copy(update={"claim_check": claim})
    [outcome] = gate.ask(one)
    assert outcome.rejection is not None
    assert (outcome.status, outcome.rejection.rule) == ("denied", "malformed")
    assert outcome.rejection.field == "claim_check"
    assert "nested deeper than 64" in outcome.rejection.reason


@pytest.mark.parametrize("levels", [100, 254, 255, 256, 1_000])
@pytest.mark.parametrize(
    "line",
    [
        '{{"someFutureAction":{}}}',
        '{{"commitInfo":{}}}',
        '{{"commitInfo":{{"tags":{{"t":{}}}}}}}',
        '{{"commitInfo":{{"tidegate":{}}}}}',
        '{{"commitInfo":{{"tidegate":{{"accepted":{}}}}}}}',
        '{{"commitInfo":{{"operationParameters":{{"t":{}}},"new":{}}}}}',
    ],
)
def test_what_is_ignored_may_be_nested_deeply_in_a_foreign_version(line: str, levels: int) -> None:
    gate = begun()
    nested = deep(levels)
    foreign(gate, line.format(nested, nested), add("theirs"))
    [outcome] = gate.ask(proposal(add("ours"), read_version=1))
    assert (outcome.status, outcome.version) == ("committed", 2)
    gate.restart()
    [outcome] = gate.ask(proposal(add("more"), read_version=2))
    assert (outcome.status, outcome.version) == ("committed", 3)


@pytest.mark.parametrize(
    "row",
    [
        add("a", size=PAST_A_LONG),
        add("a", baseRowId=PAST_A_LONG),
        {"txn": {"appId": "a", "version": PAST_A_LONG}},
        {"add": {"path": "a\ud800", **{k: v for k, v in add("a")["add"].items() if k != "path"}}},
        '{"domainMetadata":{"domain":"d","configuration":' + deep(1_100) + ',"removed":false}}',
    ],
    ids=["size", "baseRowId", "version", "surrogate", "depth"],
)
def test_an_unreadable_foreign_version_halts_its_table_alone(row: str | Row) -> None:
    gate = begun()
    foreign(gate, row)
    [outcome] = gate.ask(proposal(add("ours"), read_version=1))
    assert (outcome.status, rejection_of(outcome).rule) == ("denied", "table_halted")
    assert gate.tables()[TABLE].status == "halted"


@pytest.mark.parametrize("name", ["inCommitTimestamp", "timestamp"])
@pytest.mark.parametrize(
    "at_ms", [NOW_MS + 2 * AHEAD_MAX_MS, TIMESTAMP_MAX, TIMESTAMP_MAX + 1, 2**70]
)
def test_ready_bytes_that_are_dated_far_ahead_are_refused(name: str, at_ms: int) -> None:
    gate = begun(*TIMED)
    near = gate.clock.now_ms() + AHEAD_MAX_MS // 2
    result: Row = {"inCommitTimestamp": near, "timestamp": near}
    far = verbatim(gate, 1, info(txnId="w", **{**result, name: at_ms}), add("a"))
    [outcome] = gate.ask(far)
    assert rejection_of(outcome).rule in ("timestamp_ahead", "malformed")
    assert f"commitInfo.{name}" in rejection_of(outcome).reason
    [outcome] = gate.ask(verbatim(gate, 1, info(txnId="w", **result), add("a")))
    assert outcome.status == "committed"


@pytest.mark.parametrize("at_ms", [NOW_MS + 10**12, TIMESTAMP_MAX - 10])
def test_a_foreign_in_commit_timestamp_is_followed_over_restarts(at_ms: int) -> None:
    gate = begun(*TIMED)
    foreign(gate, info(inCommitTimestamp=at_ms), add("theirs"))
    for version in (2, 3, 4):
        [outcome] = gate.ask(proposal(add(f"a{version}"), read_version=version - 1))
        assert outcome.status == "committed"
        written = last(gate).info
        assert written is not None
        assert written.in_commit_timestamp == outcome.in_commit_timestamp == at_ms + version - 1
        gate.restart()
    near = verbatim(gate, 5, info(txnId="w", inCommitTimestamp=at_ms + 4), add("v"))
    assert rules_of(gate.ask(near)) == ["committed"]
    [outcome] = gate.ask(proposal(add("end"), read_version=5))
    assert outcome.in_commit_timestamp == at_ms + 5


@pytest.mark.parametrize("at_ms", [TIMESTAMP_MAX, TIMESTAMP_MAX + 1, 2**62, 2**63, 2**64, 10**30])
def test_after_the_latest_in_commit_timestamp_that_there_is_the_table_halts(at_ms: int) -> None:
    gate = begun(*TIMED)
    foreign(gate, info(inCommitTimestamp=at_ms), add("theirs"))
    for _ in range(2):
        [outcome] = gate.ask(proposal(add("ours"), read_version=1))
        assert (outcome.status, len(gate.entries())) == ("denied", 2)
        reason = gate.tables()[TABLE].reason
        assert reason is not None
        assert "in-commit timestamp" in reason
        gate.restart()


def test_the_last_version_that_has_a_time_left_can_be_read() -> None:
    gate = begun(*TIMED)
    foreign(gate, info(inCommitTimestamp=TIMESTAMP_MAX - 1), add("theirs"))
    [outcome] = gate.ask(proposal(add("ours"), read_version=1))
    assert outcome.in_commit_timestamp == TIMESTAMP_MAX
    written = last(gate).info
    assert written is not None
    assert written.in_commit_timestamp == TIMESTAMP_MAX


@pytest.mark.parametrize("at_ms", [NOW_MS + 10**12, TIMESTAMP_MAX, 2**63, 10**30])
def test_the_timestamp_of_a_foreign_version_is_ignored_without_in_commit_timestamps(
    at_ms: int,
) -> None:
    gate = begun()
    foreign(gate, info(timestamp=at_ms), add("theirs"))
    dated = []
    for version in (2, 3):
        [outcome] = gate.ask(proposal(remove("old") if version == 2 else add("b"), read_version=1))
        assert outcome.status == "committed"
        written = last(gate).info
        assert written is not None
        dated.append(written.timestamp or 0)
        gate.restart()
    assert NOW_MS <= dated[0] < dated[1] < NOW_MS + AHEAD_MAX_MS

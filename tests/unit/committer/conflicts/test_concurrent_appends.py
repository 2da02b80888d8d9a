"""Appends that provably hold no row that was read cause no conflict; all others do."""

import json
from typing import Any

import pytest

from tests.builders import (
    ROOT,
    Gate,
    Row,
    add,
    create,
    info,
    metadata,
    proposal,
    protocol,
    remove,
    schema,
    to_bytes,
)
from tests.fakes.memory_store import MemoryStore
from tests.support.outcomes import rejection_of, rule_of
from tests.support.tables import creating
from tidegate_committer.conflicts import concurrent_appends, conflict_rules
from tidegate_committer.conflicts import conflict_rules as conflicts
from tidegate_delta.log.actions import Metadata
from tidegate_delta.log.file_names import commit_name, in_log
from tidegate_messages.proposal import Operation, Predicate, Proposal, ReadSet


def is_(op: str, value: Any, column: str = "x", kind: str = "long") -> Predicate:
    return {"op": op, "column": [column], "value": value, "type": kind}


def between(low: int, high: int) -> dict[str, str]:
    bounds = {"minValues": {"x": low}, "maxValues": {"x": high}, "nullCount": {"x": 0}}
    return {"stats": json.dumps({"numRecords": 10, **bounds})}


def delete(*predicates: Predicate, **fields: Any) -> Proposal:
    """Return a delete of the existing file by a writer that read version 1."""
    reads = ReadSet(files=("old",), predicates=predicates)
    result = {"reads": reads, "operation": Operation(name="DELETE"), "read_version": 1, **fields}
    return proposal(remove("old"), **result)


@pytest.fixture
def first_proposals() -> list[Proposal]:
    """A table of one file, at version 1."""
    return [create(), proposal(add("old"))]


def test_the_predicate_is_named_that_a_new_file_may_match(gate: Gate) -> None:
    gate.ask(proposal(add("new", **between(6, 9)), read_version=1))
    [result] = gate.ask(delete(is_("=", 5), is_("=", 7)))
    assert result.rejection is not None
    assert (result.rejection.path, result.rejection.predicate) == ("new", 1)
    assert result.rejection.reason.endswith("added 'new', which may match reads.predicates[1]")


def rule(gate: Gate, one: Proposal) -> str:
    [outcome] = gate.ask(one)
    return rule_of(outcome)


@pytest.mark.parametrize(
    ("predicate", "stats", "verdict"),
    [
        (is_("=", 5), between(6, 9), "committed"),
        (is_("=", 6), between(6, 9), "concurrent_append"),
        (is_("<", 6), between(6, 9), "committed"),
        (is_(">", 9), between(6, 9), "committed"),
        (is_(">=", 9), between(6, 9), "concurrent_append"),
        ({"op": "not", "arg": is_(">", 5)}, between(6, 9), "committed"),
        ({"op": "or", "args": [is_("=", 1), is_("=", 7)]}, between(6, 9), "concurrent_append"),
        ({"op": "and", "args": [is_("=", 1), is_("=", 7)]}, between(6, 9), "committed"),
        ({"op": "is_null", "column": ["x"]}, between(6, 9), "committed"),
        ({"op": "is_null", "column": ["s"]}, between(6, 9), "concurrent_append"),
        ({"op": "opaque", "columns": [["x"]], "text": "f(x)"}, between(6, 9), "concurrent_append"),
        ({"op": "true"}, between(6, 9), "concurrent_append"),
        *(
            (is_(op, 5), {"stats": '{"numRecords":10}'}, "concurrent_append")
            for op in ("=", "!=", "<", "<=", ">", ">=")
        ),
        (is_("=", 5), {"stats": None}, "concurrent_append"),
        (is_("=", 5, "nowhere"), between(6, 9), "concurrent_append"),
    ],
)
def test_an_append_counts_where_its_statistics_do_not_rule_it_out(
    gate: Gate, predicate: Predicate, stats: dict[str, Any], verdict: str
) -> None:
    assert rule(gate, proposal(add("new", **stats), read_version=1)) == "committed"
    assert rule(gate, delete(predicate)) == verdict


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("2024-01-01 00:00:00", "concurrent_append"),
        ("2024-01-01T00:00:00.000000Z", "committed"),
        ("2024-01-02 00:00:00", "committed"),
    ],
)
def test_a_partition_whose_moment_names_no_zone_is_met_by_any_zone(text: str, verdict: str) -> None:
    body = metadata(["at"])
    body["metaData"]["schemaString"] = schema(x="long", at="timestamp")
    gate, moment = Gate(), {"at": "2024-01-01T05:30:00.000000Z"}
    gate.ask(creating(protocol(), body))
    gate.ask(proposal(add("old", partitionValues=moment), read_version=0))
    gate.ask(proposal(add("new", partitionValues={"at": text}), read_version=1))
    assert rule(gate, delete(is_("=", "2024-01-01 05:30:00", "at", "timestamp"))) == verdict


@pytest.mark.parametrize("reads", [ReadSet(whole_table=True), ReadSet(predicates=(is_("=", 7),))])
def test_files_that_only_got_statistics_hold_no_new_rows(gate: Gate, reads: ReadSet) -> None:
    def again(path: str, operation: str) -> Proposal:
        repeated = add(path, dataChange=False, **between(6, 9))
        operated = Operation(name=operation)
        return proposal(repeated, operation=operated, reads=ReadSet(), read_version=2)

    def merge(path: str, version: int) -> Proposal:
        return proposal(add(path), read_version=version, reads=reads)

    gate.ask(proposal(add("older"), read_version=1))
    counted = gate.ask(again("old", "COMPUTE STATS"), again("older", "COMPUTE STATS"))
    assert [(one.status, one.version) for one in counted] == [("committed", 3)] * 2
    gate.restart()
    assert rule(gate, merge("a", 2)) == "committed"
    assert rule(gate, merge("b", 2)) == "concurrent_append", "of `a`"
    assert rule(gate, again("old", "WRITE")) == "committed"
    assert rule(gate, merge("c", 4)) == "concurrent_append", "only by that operation"


def test_each_scan_is_checked_against_each_file(gate: Gate) -> None:
    gate.ask(proposal(add("new", **between(6, 9)), add("far", **between(60, 90)), read_version=1))
    assert rule(gate, delete(is_("=", 5), is_("=", 70))) == "concurrent_append"
    assert rule(gate, delete(is_("=", 5), is_("=", 50))) == "committed"


def test_versions_long_after_the_read_one_are_checked_by_partitions_alone(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(concurrent_appends, "VERSIONS_MAX", 2)
    for version in range(3):
        gate.ask(proposal(add(f"new{version}", **between(6, 9)), read_version=1))
    assert rule(gate, delete(is_("=", 5))) == "concurrent_append"
    assert rule(gate, delete(is_("=", 5), read_version=2)) == "committed"


@pytest.mark.usefixtures("no_audit")
def test_statistics_are_read_once_and_our_own_never_again() -> None:
    store = _Counting(ROOT)
    gate = Gate(stores={ROOT: store})
    gate.ask(create(), proposal(*(add(f"old{at}") for at in range(9))))
    gate.ask(proposal(add("new", **between(6, 9)), read_version=1))

    def rule_at(at: int, version: int) -> str:
        reads = ReadSet(files=(f"old{at}",), predicates=(is_("=", 5),))
        return rule(gate, proposal(remove(f"old{at}"), read_version=version, reads=reads))

    assert rule_at(0, 1) == "committed"
    gate.ask(proposal(add("newer", **between(6, 9)), read_version=1))
    store.reads.clear()
    assert [rule_at(at, 1) for at in range(1, 5)] == ["committed"] * 4
    assert store.reads == []
    version = len(gate.entries())
    path = in_log(commit_name(version))
    foreign = [info("WRITE", isBlindAppend=True), add("foreign", **between(6, 9))]
    store.files[path] = to_bytes(foreign)
    gate.clock.boot += 10
    gate.settle()
    store.reads.clear()
    assert [rule_at(at, version - 1) for at in range(5, 8)] == ["committed"] * 3
    assert store.reads.count(path) == 1


class _Counting(MemoryStore):
    """Records which files are read."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.reads: list[str] = []

    def read(self, path: str) -> bytes | None:
        self.reads.append(path)
        return super().read(path)


def mapped(name: str, physical: str, number: int = 1) -> Row:
    about = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical}
    return {"name": name, "type": "long", "nullable": True, "metadata": about}


def renamed(*fields: Row) -> Metadata:
    body = metadata()["metaData"]
    schema = json.dumps({"type": "struct", "fields": list(fields)})
    mode = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"}
    return Metadata.model_validate({**body, "schemaString": schema, "configuration": mode})


def test_a_column_goes_by_its_physical_name_or_its_logical_one() -> None:
    table = renamed(mapped("x", "c1"), mapped("y", "c2"))
    assert concurrent_appends.meant_by(is_("=", 5), table) == [is_("=", 5)]
    assert concurrent_appends.meant_by(is_("=", 5, "c1"), table) == [is_("=", 5)]
    swapped = renamed(mapped("x", "y"), mapped("y", "x"))
    assert concurrent_appends.meant_by(is_("=", 5), swapped) == [is_("=", 5), is_("=", 5, "y")]
    both = {"op": "and", "args": [is_("=", 5, "c1"), {"op": "not", "arg": is_("=", 6, "c2")}]}
    named = {"op": "and", "args": [is_("=", 5), {"op": "not", "arg": is_("=", 6, "y")}]}
    assert concurrent_appends.meant_by(both, table) == [named]
    assert concurrent_appends.meant_by(is_("=", 5, "nowhere"), table) == [is_("=", 5, "nowhere")]


@pytest.mark.parametrize(("column", "value"), [("p", 5), ("p", 1), ("v", 5), ("v", 1)])
def test_partitions_are_matched_by_both_names_where_a_partition_column_was_renamed(
    column: str, value: int
) -> None:
    """Two columns have swapped their names: the one displayed as `p`, which partitions the table,
    is `v` in the log. Whichever name the predicate means, the new file matches one reading.
    """
    gate = Gate()
    swapped = renamed(mapped("p", "v"), mapped("v", "p", 2)).with_(partition_columns=("p",))
    [begun] = gate.ask(creating(protocol(2, 5), swapped.to_row()))
    assert begun.status == "committed"
    bounds = {"minValues": {"p": 5}, "maxValues": {"p": 5}, "nullCount": {"p": 0}}
    file = {"partitionValues": {"v": "1"}, "stats": json.dumps({"numRecords": 10, **bounds})}
    gate.ask(proposal(add("old", **file)))
    assert rule(gate, proposal(add("new", **file), read_version=1)) == "committed"
    gone = remove("old", partitionValues={"v": "1"})
    for read in (1, 2):
        reads = ReadSet(files=("old",), predicates=(is_("=", value, column),))
        verdict = rule(gate, proposal(gone, read_version=read, reads=reads))
        assert verdict == ("concurrent_append" if read == 1 else "committed")


def test_files_of_a_conflict_check_are_bounded(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Past that limit files of a version or of the entry's group count as read."""
    heavy: dict[str, Any] = {"op": "and", "args": [is_("<", at) for at in range(6)]}
    listed: dict[str, Any] = {"op": "or", "args": [is_("=", at) for at in range(6)]}
    monkeypatch.setattr(concurrent_appends, "LOOKS_MAX", 6)
    gate.ask(proposal(add("one", **between(6, 9)), read_version=1))
    assert rule(gate, delete(heavy)) == "committed"
    gate.ask(proposal(add("old"), read_version=3))
    gate.ask(proposal(add("more", **between(6, 9)), add("most", **between(6, 9)), read_version=4))
    assert rule(gate, delete(heavy, read_version=4)) == "concurrent_append"
    assert rule(gate, delete(listed, read_version=4)) == "committed", "a list is one question"


def test_an_expensive_proposal_waits_for_the_next_group(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(concurrent_appends, "LOOKS_MAX", 6)
    gate.ask(proposal(add("other"), add("another"), read_version=1))
    heavy: dict[str, Any] = {"op": "and", "args": [is_("<", at) for at in range(6)]}
    images = [
        proposal(
            *(remove(path), add(f"image of {path}".replace(" ", "-"), **between(6, 9))),
            read_version=2,
            reads=ReadSet(files=(path,)),
        )
        for path in ("other", "another")
    ]
    result = gate.ask(*images, delete(heavy, read_version=2))
    assert [item.version for item in result[:2]] == [3, 3]
    last = result[2]
    assert (rejection_of(last).rule, rejection_of(last).winner_version) == ("concurrent_append", 3)


def test_partitions_of_a_conflict_check_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past that limit files count as read. Statistics do not help here, and each value of a list
    counts as one check.
    """
    gate = Gate()
    gate.ask(create(["p"]), proposal(add("p=9/old")))
    monkeypatch.setattr(conflicts, "LOOKS_MAX", 6)
    monkeypatch.setattr(conflict_rules, "LOOKS_MAX", 6)
    one_of = [{"op": "=", "column": "p", "value": at, "type": "integer"} for at in range(5)]
    listed: dict[str, Any] = {"op": "or", "args": one_of}
    gone = {"reads": ReadSet(files=("p=9/old",), predicates=(listed,))}

    def rule_at(read_version: int) -> str:
        return rule(gate, proposal(remove("p=9/old"), read_version=read_version, **gone))

    gate.ask(proposal(add("p=7/a"), add("p=8/b"), read_version=1))
    assert rule_at(1) == "committed", "statistics have ruled them out"
    monkeypatch.setattr(concurrent_appends, "LOOKS_MAX", 1)
    gate.ask(proposal(add("p=9/old"), add("p=7/c"), add("p=7/d"), read_version=3))
    gate.ask(proposal(add("p=7/e"), add("p=7/f"), read_version=4))
    assert rule_at(4) == "committed", "two files of one partition are asked about once"
    gate.ask(proposal(add("p=9/old"), read_version=6))
    gate.ask(proposal(add("p=7/g"), add("p=8/h"), read_version=7))
    assert rule_at(7) == "concurrent_append"

"""Valid proposals with a few fields made wrong: each is answered, and the log stays valid.

Unlike a proposal with flipped bytes, most of these can be parsed. They name other writers' files,
relocated rows, foreign deletion vectors, or contradict themselves. Whatever is committed names each
file once, names only existing files, and is readable by every reader.
"""

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from tests import builders
from tests.builders import (
    ROOT,
    Gate,
    Row,
    add,
    an_id,
    compact,
    metadata,
    proposal,
    protocol,
    remove,
    row_delete,
    rows_of,
    value_of,
)
from tests.checkpoints import put_classic
from tidegate_committer.settings import CommitterSection
from tidegate_delta.deletion_vectors.descriptors import inline
from tidegate_delta.deletion_vectors.roaring_bitmap import of_rows
from tidegate_messages.proposal import Operation, Proposal, ReadSet
from tidegate_runtime.table_io.open_table import open_snapshot

RECORDS = 8
FEATURES: Final = ["deletionVectors", "domainMetadata", "rowTracking", "changeDataFeed"]
PROPERTIES: Final = {
    "enableDeletionVectors": "true",
    "rowTracking.materializedRowIdColumnName": "_ids",
    "rowTracking.materializedRowCommitVersionColumnName": "_versions",
}
TABLES: Final[Sequence[Mapping[str, str]]] = (
    {},
    {"enableRowTracking": "true"},
    {"enableChangeDataFeed": "true"},
)
ODD: Final[Sequence[Any]] = (
    *(None, True, False, -1, 0, 1, 2**31, 2**63, 1.5, "", "x", "1 ", "../x", "%41", [], {}, [None]),
    *("p=1/a", "p=1/g", "_change_data/c", "i", "u", "p", "update", "delta.rowTracking", "mine"),
    *('{"numRecords":10}', '{"numRecords":-1}', "SnapshotIsolation", "implicit", "none"),
    *("DELETE", "MERGE", "RESTORE", "OPTIMIZE", "REPLACE TABLE", "DROP FEATURE"),
    *("ROW TRACKING BACKFILL", "ROW TRACKING UNBACKFILL"),
)
"""Values that are valid in one place and invalid in another."""
KEPT: Final = frozenset({"proposal_id", "table", "table_root", "table_id"})
"""Without these a proposal belongs to no table, which other tests cover."""

Path = tuple[str | int, ...]


def vector(*rows: int) -> Row:
    return inline(of_rows(rows)).model_dump(by_alias=True, exclude_none=True)


def bare_protocol(names: Sequence[str]) -> Row:
    readers = [name for name in names if name == "deletionVectors"]
    return protocol(3, 7, readerFeatures=readers, writerFeatures=names)


def samples() -> list[Proposal]:
    """Return valid proposals of every kind, for the table at version 1."""
    counted = '{"numRecords":10,"tightBounds":false}'
    exchange = add("p=1/a", stats=counted, deletionVector=vector(2))
    result: Row = {"read_version": 1}
    update = row_delete(rows_of("p=1/a", [3], op="update"), rows_of("p=2/a", [3]), **result)
    change = {"path": "_change_data/c", "partitionValues": {"p": "1"}, "size": 1}
    patches: list[Row] = [
        {"op": "add_column", "column": {"name": "y", "type": "long"}},
        {"op": "set_property", "key": "delta.enableDeletionVectors", "value": "false"},
    ]
    domain = {"domain": "mine", "configuration": "{}", "removed": False}
    return [
        proposal(add("p=1/n"), add("p=2/n"), **result),
        row_delete(rows_of("p=1/a", [1]), rows_of("p=1/b", [1, 2]), **result),
        update.model_copy(
            update={"actions": (add("p=1/i"), {"cdc": {**change, "dataChange": False}})}
        ),
        proposal(remove("p=1/a"), exchange, reads=ReadSet(files=("p=1/a",)), **result),
        builders.delete("p=1/b", read_version=1),
        builders.delete("p=1/g", read_version=1),
        compact({"p=1/a": 10, "p=1/b": 10}, "p=1/g", read_version=1),
        compact({"p=2/a": 10}, "p=2/g", read_version=1),
        builders.batch_of("app", 1, add("p=1/m"), read_version=1),
        proposal({"domainMetadata": domain}, reads=ReadSet(domains=("mine",)), **result),
        proposal(metadata_patch={"changes": patches[:1]}, **result),
        proposal(metadata_patch={"changes": patches[1:]}, **result),
        proposal(metadata(["p"], **PROPERTIES, note="x"), **result),
        proposal(
            *(bare_protocol(FEATURES[1:]), metadata(["p"])),
            operation=Operation(name="DROP FEATURE"),
            **result,
        ),
    ]


def places(node: Any, here: Path = ()) -> Iterator[Path]:
    """Yield the path to each part of a body."""
    if here:
        yield here
    if isinstance(node, dict):
        inside: list[tuple[str | int, Any]] = list(node.items())
    else:
        inside = list(enumerate(node)) if isinstance(node, list) else []
    for key, child in inside:
        yield from places(child, (*here, key))


def part(node: Any, path: Path) -> Any:
    for step in path:
        node = node[step]
    return node


def altered(dice: Random, body: Row, others: Sequence[Row]) -> Row:
    """Return a body of which one to three parts are removed, duplicated or from another."""
    body = copy.deepcopy(body)
    for _ in range(dice.choice((1, 1, 2, 3))):
        path = dice.choice([place for place in places(body) if place[0] not in KEPT])
        above: Any = part(body, path[:-1])
        key: Any = path[-1]
        alike = [part(other, at) for other in others for at in places(other) if at[-1] == key]
        kind = dice.choice(("drop", "odd", "another's", "another's", "double", "more"))
        if kind == "drop":
            del above[key]
        elif kind == "odd" or not alike:
            above[key] = dice.choice(ODD)
        elif kind == "another's":
            above[key] = copy.deepcopy(dice.choice(alike))
        elif isinstance(above, list):
            above.insert(0, copy.deepcopy(dice.choice(alike) if kind == "more" else above[key]))
        else:
            name = dice.choice(("dv_intents", "actions", "row_mapping", "operation", "reads"))
            body[name] = copy.deepcopy(dice.choice(others).get(name, []))
    return body


def begun(dice: Random) -> Gate:
    """Return a gate with a table of three files, at version 1."""
    gate = Gate(CommitterSection(roots=("memory://tables",), refusals_burst=10_000))
    table = metadata(["p"], **PROPERTIES, **dice.choice(TABLES))
    create = Operation(name="CREATE TABLE")
    result = gate.ask(
        proposal(bare_protocol(FEATURES), table, read_version=-1, operation=create),
        proposal(add("p=1/a"), add("p=1/b"), add("p=2/a")),
    )
    assert [outcome.status for outcome in result] == ["committed", "committed"]
    return gate


def check_log(gate: Gate) -> None:
    """Check that no version has duplicates, and that each names existing files with their state."""
    live: dict[str, Any] = {}
    features: Sequence[str] = ()
    for rows in gate.entries():
        named: dict[str, list[Any]] = {}
        for row in rows:
            for kind, body in row.items():
                named.setdefault(kind, []).append(body)
        for kind, key in (
            ("add", "path"),
            ("remove", "path"),
            ("domainMetadata", "domain"),
            ("txn", "appId"),
        ):
            result = [body[key] for body in named.get(kind, ())]
            assert len(set(result)) == len(result), f"{kind} twice: {result}"
        for body in named.get("remove", ()):
            assert body["path"] in live
            assert body.get("deletionVector") == live.pop(body["path"])
        for body in named.get("protocol", ()):
            features = body["writerFeatures"]
        for body in named.get("add", ()):
            assert live.setdefault(body["path"], body.get("deletionVector")) == body.get(
                "deletionVector"
            )
        if "deletionVectors" not in features:
            assert not any(live.values()), "a vector in a table that knows of none"


@settings(deadline=None)
@given(st.integers(0, 2**32))
def test_an_odd_proposal_is_answered_and_leaves_a_log_that_all_can_read(seed: int) -> None:
    dice = Random(seed)
    gate = begun(dice)
    right = [json.loads(value_of(sample)) for sample in samples()]
    sent = []
    for _ in range(RECORDS):
        body = dice.choice(right)
        body = altered(dice, body, right) if dice.random() < 0.8 else body
        sent.append(json.dumps({**body, "proposal_id": str(an_id())}).encode())
    before = len(gate.outcomes())
    gate.send(*sent)
    gate.settle(4 + 2 * RECORDS)
    answered = {outcome.proposal_id for outcome in gate.outcomes()[before:]}
    assert len(answered) + len(gate.letters()) >= RECORDS, sent
    check_log(gate)
    put_classic(gate.stores[ROOT], open_snapshot(gate.stores[ROOT]), 0)
    good = {"txn": {"appId": "good", "version": 1}}
    [last] = gate.ask(proposal(good, read_version=len(gate.entries()) - 1))
    assert last.status == "committed", last

"""Changes of columns and properties, proposed as patches and not as whole definitions."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.builders import ROOT, Gate, create
from tests.fakes.memory_clients import MemoryProducer
from tidegate_delta.errors import InvalidRequest, UnsupportedFeature
from tidegate_delta.schema.types import LONG, StructField
from tidegate_messages.metadata_patch import PatchChange
from tidegate_messages.proposal import Proposal
from tidegate_producers.options import TableLocation
from tidegate_producers.writing import alter_table
from tidegate_producers.writing.alter_table import (
    alter,
    change,
    column_from,
    columns_from,
    new_column,
    operation_of,
    pair_from,
    path_from,
    replace,
    type_from,
)
from tidegate_producers.writing.table_write import WriteRequest
from tidegate_runtime.client.client import Client, Rejected
from tidegate_runtime.table_io.open_table import open_keys

PLACE = TableLocation(ROOT)
SAYING = WriteRequest(5.0)


class Prompt(MemoryProducer):
    """A producer that runs the committer after each flush of proposals."""

    def __init__(self, gate: Gate) -> None:
        super().__init__(gate.bus)
        self._gate = gate

    def flush(self, timeout_s: float) -> None:
        is_asking = any(at.topic.endswith(("proposals", "admin")) for at, *_ in self.queued)
        super().flush(timeout_s)
        if is_asking:
            self._gate.settle()


@pytest.fixture
def first_proposals() -> list[Proposal]:
    return [create(name="shop")]


@pytest.fixture
def after_first_proposals(monkeypatch: pytest.MonkeyPatch) -> Callable[[Gate], None]:
    """Let producers reach this committer and its stores."""

    def patch(gate: Gate) -> None:
        monkeypatch.setattr(gate.bus, "producer", lambda: Prompt(gate))
        monkeypatch.setattr(alter_table, "store_for", lambda place: gate.stores[place.root])
        monkeypatch.setattr("tidegate_runtime.table_registry.recorded_root", str)

    return patch


def client(gate: Gate) -> Client:
    return Client(gate.bus, gate.topics)


def metadata_of(gate: Gate) -> dict[str, Any]:
    rows = [row["metaData"] for entry in gate.entries() for row in entry if "metaData" in row]
    result: dict[str, Any] = rows[-1]
    return result


def test_two_writers_that_change_other_things_are_both_committed(gate: Gate) -> None:
    first = alter(client(gate), PLACE, [column_from("price double")], SAYING)
    second = alter(client(gate), PLACE, [change(op="set_property", key="a", value="1")], SAYING)
    assert (first.version, second.version) == (1, 2)
    names = [item["name"] for item in json.loads(metadata_of(gate)["schemaString"])["fields"]]
    assert names == ["x", "s", "price"]
    assert metadata_of(gate)["configuration"] == {"a": "1"}


def test_who_saw_the_table_before_the_other_changed_it_is_committed_too(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    early = open_keys(gate.stores[ROOT])
    alter(client(gate), PLACE, [column_from("price double")], SAYING)
    monkeypatch.setattr(alter_table, "open_keys", lambda _: early)
    late = alter(client(gate), PLACE, [column_from("note string")], SAYING)
    assert late.version == 2
    names = [item["name"] for item in json.loads(metadata_of(gate)["schemaString"])["fields"]]
    assert names == ["x", "s", "price", "note"]
    with pytest.raises(Rejected) as caught:
        alter(client(gate), PLACE, [column_from("note long")], SAYING)
    assert caught.value.rule == "metadata_changed"


@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        (type_from("x decimal(20,0)"), "delta.enableTypeWidening to true first"),
        (change(op="drop_column", path=("s",)), "columnMapping.mode to name first"),
        (change(op="set_property", key="delta.appendOnly", value="perhaps"), "appendOnly"),
        (change(op="set_property", key="delta.appendOnyl", value="true"), "'delta.appendOnly'"),
        (column_from("x int"), "rename all but one"),
    ],
)
def test_a_change_that_the_table_does_not_allow_leaves_no_version(
    gate: Gate, refused: PatchChange, reason: str
) -> None:
    with pytest.raises(InvalidRequest, match=f"{reason}.*nothing was proposed"):
        alter(client(gate), PLACE, [refused], SAYING)
    assert len(gate.entries()) == 1


def test_the_columns_are_listed_again_in_another_order_with_a_new_one(gate: Gate) -> None:
    outcome = replace(client(gate), PLACE, columns_from(["s string", "n int", "x bigint"]), SAYING)
    assert outcome is not None
    assert outcome.version == 1
    names = [item["name"] for item in json.loads(metadata_of(gate)["schemaString"])["fields"]]
    assert names == ["s", "n", "x"]
    info = gate.entries()[1][0]["commitInfo"]
    assert info["operation"] == "REPLACE COLUMNS"
    listed = json.loads(info["operationParameters"]["columns"])
    assert [(one["name"], one["type"]) for one in listed] == [
        ("s", "string"),
        ("n", "integer"),
        ("x", "long"),
    ]


def test_columns_that_the_table_has_already_are_not_proposed(gate: Gate) -> None:
    assert replace(client(gate), PLACE, columns_from(["x bigint", "s string"]), SAYING) is None
    assert len(gate.entries()) == 1


def test_a_column_is_not_left_out_without_column_mapping(gate: Gate) -> None:
    with pytest.raises(InvalidRequest, match="without column mapping"):
        replace(client(gate), PLACE, columns_from(["x bigint"]), SAYING)
    assert len(gate.entries()) == 1


def test_columns_that_others_changed_meanwhile_are_not_replaced(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    early = open_keys(gate.stores[ROOT])
    alter(client(gate), PLACE, [column_from("price double")], SAYING)
    monkeypatch.setattr(alter_table, "open_keys", lambda _: early)
    with pytest.raises(Rejected) as caught:
        replace(client(gate), PLACE, columns_from(["s string", "x bigint"]), SAYING)
    assert caught.value.rule == "metadata_changed"


def test_a_field_of_a_struct_is_no_column_to_list() -> None:
    with pytest.raises(InvalidRequest, match="whole type"):
        columns_from(["st.a int"])


@pytest.mark.parametrize("count", [0, 101])
def test_a_patch_has_from_one_to_a_hundred_changes(gate: Gate, count: int) -> None:
    changes = [change(op="unset_property", key=f"k{number}") for number in range(count)]
    with pytest.raises(InvalidRequest, match="from 1 to 100"):
        alter(client(gate), PLACE, changes, SAYING)


def test_the_commit_is_called_as_delta_calls_it(gate: Gate) -> None:
    alter(client(gate), PLACE, [change(op="set_property", key="a", value="1")], SAYING)
    result = gate.entries()[1][0]["commitInfo"]
    assert result["operation"] == "SET TBLPROPERTIES"
    several = [column_from("a int"), change(op="allow_nulls", path=("x",))]
    assert operation_of(several) == "ALTER TABLE"
    assert operation_of(several[1:]) == "CHANGE COLUMN"


def plain(one: PatchChange) -> dict[str, Any]:
    return one.model_dump(mode="json", exclude_defaults=True)


@pytest.mark.parametrize(
    ("text", "name", "kind"),
    [
        ("price double", "price", "double"),
        ("`a b` BIGINT", "a b", "long"),
        ("p  decimal(10, 2) ", "p", "decimal(10,2)"),
        ("p int", "p", "integer"),
        (
            'p {"type":"array","elementType":"long","containsNull":true}',
            "p",
            {"type": "array", "elementType": "long", "containsNull": True},
        ),
    ],
)
def test_a_column_is_a_name_and_a_type(text: str, name: str, kind: object) -> None:
    column = {"name": name, "type": kind, "nullable": True, "metadata": {}}
    assert plain(column_from(text)) == {"op": "add_column", "column": column}
    assert plain(type_from(text)) == {"op": "change_type", "path": [name], "type": kind}


def test_a_field_of_a_struct_is_named_by_its_path() -> None:
    made = column_from("st.`a.b` int")
    assert plain(made)["parent"] == ["st"]
    assert plain(made)["column"]["name"] == "a.b"
    assert plain(new_column(StructField("n", LONG), ("st",)))["parent"] == ["st"]
    assert path_from("st.`a.b`") == ("st", "a.b")


@pytest.mark.parametrize("text", ["", "price", "a,b int", "p decimal(99,2)", "p {"])
def test_a_missing_column_is_reported(text: str) -> None:
    with pytest.raises(InvalidRequest, match="nothing was proposed"):
        column_from(text)


def test_an_unknown_type_is_reported_by_name() -> None:
    with pytest.raises(UnsupportedFeature, match="nonsense"):
        column_from("p nonsense")


def test_pairs_have_two_sides() -> None:
    assert pair_from("k=a=b") == ("k", "a=b")
    assert pair_from("k=") == ("k", "")
    for wrong in ("k", "=v"):
        with pytest.raises(InvalidRequest, match="two sides"):
            pair_from(wrong)


def test_a_change_of_an_unknown_kind_is_an_error() -> None:
    with pytest.raises(InvalidRequest, match="nothing was proposed"):
        change(op="paint", path=("x",))


def test_what_is_proposed_holds_nothing_but_the_patch(gate: Gate) -> None:
    alter(client(gate), PLACE, [column_from("price double")], SAYING)
    [_, record] = gate.records(gate.topics.proposals)
    assert record.value is not None
    sent = Proposal.model_validate_json(record.value)
    assert (sent.actions, sent.read_version) == ((), 0)
    assert sent.metadata_patch is not None
    assert sent.reads is not None
    assert sent.reads.is_empty

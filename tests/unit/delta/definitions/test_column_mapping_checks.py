from collections.abc import Mapping
from typing import Any

import pytest

from tests.definitions import a_field, metadata, versions
from tidegate_delta.definitions.column_mapping_checks import mapping_change_flaws, mapping_flaws
from tidegate_delta.definitions.definition import Definition
from tidegate_delta.log.actions import Metadata

PROTOCOL = versions(2, 5)
NAMED = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "9"}
MAX = "delta.columnMapping.maxColumnId"


def mapped(name: str, number: Any, physical: Any, kind: Any = "long") -> dict[str, Any]:
    """Return a column with a column mapping id and a physical name, each left out if None."""
    about = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical}
    return a_field(name, kind, **{key: value for key, value in about.items() if value is not None})


def rules(about: Metadata) -> list[str]:
    """Return the rules that a table's column mapping breaks."""
    return [flaw.rule for flaw in mapping_flaws(Definition(about, PROTOCOL))]


def changed(before: Metadata, after: Metadata) -> list[tuple[str, str | None]]:
    """Return the rules that a change of the column mapping breaks."""
    result = mapping_change_flaws(Definition(before, PROTOCOL), Definition(after, PROTOCOL))
    return [(flaw.rule, flaw.error_class) for flaw in result]


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def test_columns_that_are_mapped_as_they_must_be_pass() -> None:
    inner = struct(mapped("x", 3, "p"), mapped("y", 4, "q"))
    table = metadata(mapped("a", 1, "p"), mapped("s", 2, "q", inner), **NAMED)
    assert rules(table) == []


def test_columns_that_are_not_mapped_have_no_requirements() -> None:
    assert rules(metadata(mapped("a", 1, "p"), mapped("b", 1, "p"))) == []


@pytest.mark.parametrize(
    ("field", "rule"),
    [
        (mapped("b", None, "q"), "column_without_id"),
        (mapped("b", True, "q"), "column_without_id"),
        (mapped("b", 2, None), "column_without_physical_name"),
        (mapped("b", 1, "q"), "column_id_twice"),
        (mapped("b", 2, "p"), "physical_name_twice"),
        (mapped("b", 10, "q"), "max_column_id_low"),
        (mapped("b", 2, "q", struct(mapped("x", 2, "q"))), "column_id_twice"),
        (mapped("b", 2, "q", struct(mapped("x", None, "q"))), "column_without_id"),
    ],
)
def test_a_column_that_is_mapped_wrongly_is_found(field: dict[str, Any], rule: str) -> None:
    assert rules(metadata(mapped("a", 1, "p"), field, **NAMED)) == [rule]


def test_the_ids_inside_lists_are_ids_too() -> None:
    listed = {"type": "array", "elementType": "long", "containsNull": True}
    field = mapped("b", 2, "q", listed)
    field["metadata"]["delta.columnMapping.nested.ids"] = {"q.element": 1}
    assert rules(metadata(mapped("a", 1, "p"), field, **NAMED)) == ["column_id_twice"]
    field["metadata"]["delta.columnMapping.nested.ids"] = {"q.element": 12}
    assert rules(metadata(mapped("a", 1, "p"), field, **NAMED)) == ["max_column_id_low"]


def test_the_highest_id_must_be_given() -> None:
    about = metadata(mapped("a", 1, "p"), **{"delta.columnMapping.mode": "id"})
    assert rules(about) == ["max_column_id_missing"]


@pytest.mark.parametrize(
    ("old", "new", "allowed"),
    [
        ("none", "name", True),
        ("none", "id", False),
        ("name", "id", False),
        ("id", "name", False),
        ("name", "none", True),
        ("id", "none", True),
        ("name", "NAME", True),
    ],
)
def test_the_mode_changes_in_few_ways(old: str, new: str, allowed: bool) -> None:
    def table(mode: str) -> Metadata:
        text: Mapping[str, str] = {"delta.columnMapping.mode": mode, MAX: "1"}
        return metadata(a_field("a") if old == "none" else mapped("a", 1, "p"), **text)

    refused = [("mapping_mode_change", "DELTA_UNSUPPORTED_COLUMN_MAPPING_MODE_CHANGE")]
    assert changed(table(old), table(new)) == ([] if allowed else refused)


def test_columns_that_look_mapped_already_are_not_mapped() -> None:
    result = changed(metadata(mapped("a", 1, "p")), metadata(mapped("a", 1, "p"), **NAMED))
    assert [rule for rule, _ in result] == ["mapped_before"]


def test_the_highest_id_never_falls() -> None:
    before = metadata(mapped("a", 1, "p"), **NAMED)
    after = metadata(mapped("a", 1, "p"), **{**NAMED, MAX: "8"})
    assert changed(before, after) == [("max_column_id_falls", None)]
    assert changed(after, before) == []

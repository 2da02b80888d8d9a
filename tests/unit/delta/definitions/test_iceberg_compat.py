from typing import Any

import pytest

from tests.definitions import a_field, listing, metadata
from tidegate_delta.definitions.definition import Definition
from tidegate_delta.definitions.iceberg_compat import (
    iceberg_change_flaws,
    iceberg_flaws,
    universal_flaws,
)
from tidegate_delta.log.actions import Metadata

VIOLATION = "DELTA_ICEBERG_COMPAT_VIOLATION."
UNIVERSAL = "DELTA_UNIVERSAL_FORMAT_VIOLATION."
LIST = {"type": "array", "elementType": "long", "containsNull": True}
PROTOCOL = listing("typeWidening", readers=("typeWidening",))


def compat(version: str, **text: str) -> dict[str, str]:
    """Return the properties of an Iceberg-compatible table, with some added or replaced."""
    third = {"delta.enableRowTracking": "true"} if version == "V3" else {}
    named = {"delta.columnMapping.mode": "name"}
    return {f"delta.enableIcebergCompat{version}": "true", **named, **third, **text}


def classes(about: Metadata) -> list[str]:
    """Return the error classes of what prevents reading the table as Iceberg."""
    flaws = iceberg_flaws(Definition(about, PROTOCOL))
    return [(flaw.error_class or "").removeprefix(VIOLATION) for flaw in flaws]


@pytest.mark.parametrize("version", ["V1", "V2", "V3"])
def test_a_plain_mapped_table_is_compatible(version: str) -> None:
    assert classes(metadata(**compat(version))) == []


def test_a_table_without_iceberg_compatibility_has_no_requirements() -> None:
    about = metadata(a_field("a", "void"), **{"delta.enableIcebergCompatV1": "false"})
    assert classes(about) == []


@pytest.mark.parametrize(
    ("version", "text", "error_class"),
    [
        ("V1", {"delta.columnMapping.mode": "none"}, "WRONG_REQUIRED_TABLE_PROPERTY"),
        ("V2", {"delta.enableDeletionVectors": "true"}, "DELETION_VECTORS_SHOULD_BE_DISABLED"),
        ("V3", {"delta.enableRowTracking": "false"}, "WRONG_REQUIRED_TABLE_PROPERTY"),
        ("V1", {"delta.enableIcebergCompatV2": "true"}, "VERSION_MUTUAL_EXCLUSIVE"),
    ],
)
def test_properties_keep_a_table_from_being_compatible(
    version: str, text: dict[str, str], error_class: str
) -> None:
    assert classes(metadata(**compat(version, **text))) == [error_class]


def test_the_third_version_allows_deletion_vectors() -> None:
    assert classes(metadata(**compat("V3", **{"delta.enableDeletionVectors": "true"}))) == []


@pytest.mark.parametrize(
    ("version", "kind", "fits"),
    [
        ("V1", LIST, False),
        ("V1", "void", False),
        ("V1", "variant", True),
        ("V1", "geometry", False),
        ("V2", LIST, True),
        ("V2", "void", False),
        ("V2", "variant", False),
        ("V2", "decimal(10,2)", True),
        ("V3", "variant", True),
        ("V3", "geography", True),
        ("V3", "void", False),
        ("V3", {"type": "struct", "fields": [a_field("x", "void")]}, False),
    ],
)
def test_each_version_has_its_types(version: str, kind: Any, fits: bool) -> None:
    result = classes(metadata(a_field("a", kind), **compat(version)))
    assert result == ([] if fits else ["UNSUPPORTED_DATA_TYPE"])


def test_a_compatible_table_is_partitioned_by_plain_columns() -> None:
    about = metadata(a_field("a"), a_field("v", "variant"), **compat("V3"))
    partitioned = about.with_(partition_columns=("v",))
    assert classes(partitioned) == ["UNSUPPORTED_PARTITION_DATA_TYPE"]


@pytest.mark.parametrize(
    ("before", "after", "fits"),
    [
        ("integer", "long", True),
        ("float", "double", True),
        ("decimal(5,2)", "decimal(9,2)", True),
        ("decimal(5,2)", "decimal(9,3)", False),
        ("integer", "double", False),
        ("date", "timestamp_ntz", False),
        ("what", "ever", False),
    ],
)
def test_iceberg_knows_some_widenings(before: str, after: str, fits: bool) -> None:
    changes = [{"fromType": before, "toType": after}]
    about = metadata(a_field("a", **{"delta.typeChanges": changes}), **compat("V2"))
    assert classes(about) == ([] if fits else ["UNSUPPORTED_TYPE_WIDENING"])
    unsupported = Definition(about, listing())
    assert list(iceberg_flaws(unsupported)) == []


@pytest.mark.parametrize(
    ("about", "error_classes"),
    [
        (metadata(), []),
        (
            metadata(**{"delta.universalFormat.enabledFormats": "iceberg"}),
            ["ICEBERG_COMPAT_REQUIRED"],
        ),
        (metadata(**compat("V2", **{"delta.universalFormat.enabledFormats": "iceberg,hudi"})), []),
        (
            metadata(
                a_field(
                    "a",
                    {
                        "type": "map",
                        "keyType": "short",
                        "valueType": "long",
                        "valueContainsNull": True,
                    },
                ),
                **{
                    "delta.universalFormat.enabledFormats": "hudi",
                    "delta.enableDeletionVectors": "true",
                },
            ),
            ["HUDI_DELETE_VECTORS_NOT_SUPPORTED", "HUDI_UNSUPPORTED_DATA_TYPE"],
        ),
    ],
)
def test_other_formats_have_demands(about: Metadata, error_classes: list[str]) -> None:
    flaws = universal_flaws(Definition(about, PROTOCOL))
    assert [flaw.error_class for flaw in flaws] == [
        UNIVERSAL + error_class for error_class in error_classes
    ]


def test_a_compatible_table_keeps_the_names_of_its_partition_columns() -> None:
    about = metadata(a_field("a"), a_field("b"), a_field("c"), **compat("V2"))
    before = Definition(about.with_(partition_columns=("a",)), PROTOCOL)
    after = Definition(about.with_(partition_columns=("b",)), PROTOCOL)
    assert [flaw.rule for flaw in iceberg_change_flaws(before, after)] == [
        "iceberg_partition_columns"
    ]
    assert list(iceberg_change_flaws(Definition(about, PROTOCOL), after)) == []


def test_the_third_version_stays() -> None:
    before = Definition(metadata(**compat("V3")), PROTOCOL)
    after = Definition(metadata(), PROTOCOL)
    assert [flaw.rule for flaw in iceberg_change_flaws(before, after)] == ["iceberg_v3_disabled"]
    assert list(iceberg_change_flaws(after, before)) == []

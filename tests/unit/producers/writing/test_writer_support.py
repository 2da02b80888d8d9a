"""Tables that our own writers refuse although the committer would take the commit."""

import json

import pytest

from tidegate_delta.constraints.column_defaults import column_defaults
from tidegate_delta.errors import UnsupportedFeature
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_producers.writing import writer_support
from tidegate_producers.writing.constraint_attestation import in_table_already

PLAIN = Protocol(min_reader_version=1, min_writer_version=2)


def about(own: dict[str, object] | None = None, **properties: str) -> Metadata:
    field = {"name": "a", "type": "long", "nullable": True, "metadata": own or {}}
    return Metadata(
        id="m",
        schema_string=json.dumps({"type": "struct", "fields": [field]}),
        configuration={f"delta.{key}": value for key, value in properties.items()},
    )


NUMBERED = about({"delta.identity.start": 1})
MAPPED = about({"delta.columnMapping.physicalName": "c"}, **{"columnMapping.mode": "name"})


def listing(*features: str) -> Protocol:
    return Protocol(min_reader_version=1, min_writer_version=7, writer_features=features)


@pytest.mark.parametrize(
    ("protocol", "metadata", "feature"),
    [
        (PLAIN, NUMBERED, "identityColumns"),
        (PLAIN, MAPPED, "columnMapping"),
        (listing("clustering"), about(), "clustering"),
    ],
)
def test_rows_that_take_more_are_left_to_others(
    protocol: Protocol, metadata: Metadata, feature: str
) -> None:
    with pytest.raises(UnsupportedFeature, match=feature) as refused:
        writer_support.check_rows(protocol, metadata, "here")
    assert refused.value.feature == feature


def test_rows_that_the_gate_completes_are_written() -> None:
    metadata = about(enableRowTracking="true", enableInCommitTimestamps="true")
    writer_support.check_rows(listing("rowTracking", "inCommitTimestamp"), metadata, "here")


@pytest.mark.parametrize(
    "metadata",
    [NUMBERED, MAPPED, about(enableRowTracking="true"), about(checkpointPolicy="v2")],
)
def test_tables_that_take_more_are_begun_by_others(metadata: Metadata) -> None:
    with pytest.raises(UnsupportedFeature):
        writer_support.check_new(metadata, "here")


def test_a_table_with_timestamps_of_its_own_is_begun() -> None:
    writer_support.check_new(about(enableInCommitTimestamps="true"), "here")


CHECKED = about(None, **{"constraints.c": "a > 0"})
DEFAULTED = about({"CURRENT_DEFAULT": "1"})
FED = about(enableChangeDataFeed="true")
TRACKED = about(enableRowTracking="true")


def test_new_rows_are_held_to_what_we_do_not_evaluate_by_somebody_else() -> None:
    protocol = listing("checkConstraints", "allowColumnDefaults")
    with pytest.raises(UnsupportedFeature, match=r"CHECK c \(a > 0\)"):
        writer_support.check_new_rows(protocol, CHECKED, "here", ["0" * 64])
    held = in_table_already(CHECKED, protocol)
    writer_support.check_new_rows(protocol, CHECKED, "here", held)
    writer_support.check_new_rows(listing(), CHECKED, "here")
    with pytest.raises(UnsupportedFeature, match="allowColumnDefaults"):
        writer_support.check_new_rows(protocol, DEFAULTED, "here", held)
    column = column_defaults(DEFAULTED, protocol)[0].column
    with pytest.raises(UnsupportedFeature, match=rf"{column!r}.*Table\.append"):
        writer_support.check_new_rows(protocol, DEFAULTED, "here", held, ["other"])
    writer_support.check_new_rows(protocol, DEFAULTED, "here", held, [column.upper()])


@pytest.mark.parametrize(
    ("metadata", "feature"), [(FED, "changeDataFeed"), (TRACKED, "rowTracking")]
)
def test_rows_are_not_copied_where_a_copy_would_be_another_row(
    metadata: Metadata, feature: str
) -> None:
    with pytest.raises(UnsupportedFeature, match=feature):
        writer_support.check_copies(listing(feature), metadata, "here")
    writer_support.check_copies(listing(feature), about(), "here")
    writer_support.check_copies(listing(), metadata, "here")

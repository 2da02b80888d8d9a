"""Tables that our own writers refuse although the committer would take the commit."""

import json

import pytest

from tidegate_delta.constraints.column_defaults import column_defaults
from tidegate_delta.errors import UnsupportedFeature
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_producers.writing import column_checks
from tidegate_producers.writing.column_checks import in_table_already


def about(own: dict[str, object] | None = None, **properties: str) -> Metadata:
    field = {"name": "a", "type": "long", "nullable": True, "metadata": own or {}}
    return Metadata(
        id="m",
        schema_string=json.dumps({"type": "struct", "fields": [field]}),
        configuration={f"delta.{key}": value for key, value in properties.items()},
    )


def listing(*features: str) -> Protocol:
    return Protocol(min_reader_version=1, min_writer_version=7, writer_features=features)


CHECKED = about(None, **{"constraints.c": "a > 0"})
DEFAULTED = about({"CURRENT_DEFAULT": "1"})
FED = about(enableChangeDataFeed="true")
TRACKED = about(enableRowTracking="true")


def test_new_rows_are_held_to_what_we_do_not_evaluate_by_somebody_else() -> None:
    protocol = listing("checkConstraints", "allowColumnDefaults")
    with pytest.raises(UnsupportedFeature, match=r"CHECK c \(a > 0\)"):
        column_checks.check_new_rows(protocol, CHECKED, "here", ["0" * 64])
    held = in_table_already(CHECKED, protocol)
    column_checks.check_new_rows(protocol, CHECKED, "here", held)
    column_checks.check_new_rows(listing(), CHECKED, "here")
    with pytest.raises(UnsupportedFeature, match="allowColumnDefaults"):
        column_checks.check_new_rows(protocol, DEFAULTED, "here", held)
    column = column_defaults(DEFAULTED, protocol)[0].column
    with pytest.raises(UnsupportedFeature, match=rf"{column!r}.*Table\.append"):
        column_checks.check_new_rows(protocol, DEFAULTED, "here", held, ["other"])
    column_checks.check_new_rows(protocol, DEFAULTED, "here", held, [column.upper()])


def test_rows_are_not_copied_where_a_copy_would_be_another_row() -> None:
    with pytest.raises(UnsupportedFeature, match="change feed"):
        column_checks.check_copies(FED, "here")
    column_checks.check_copies(about(), "here")
    column_checks.check_copies(TRACKED, "here")


def test_identity_values_are_given_out_by_table_append_alone() -> None:
    def numbered(explicit: bool) -> Metadata:
        step = {"delta.identity.start": 1, "delta.identity.step": 1}
        return about({**step, "delta.identity.allowExplicitInsert": explicit})

    protocol = listing("identityColumns")
    for metadata, given in ((numbered(False), ["A"]), (numbered(True), [])):
        with pytest.raises(UnsupportedFeature, match=r"'a'.*Table\.append"):
            column_checks.check_new_rows(protocol, metadata, "here", (), given)
    column_checks.check_new_rows(protocol, numbered(True), "here", (), ["A"])

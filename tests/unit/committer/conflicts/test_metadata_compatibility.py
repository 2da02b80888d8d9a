import json

import pytest

from tests import builders
from tests.builders import Row, commit, metadata
from tidegate_committer.conflicts.metadata_compatibility import conflict_free
from tidegate_delta.log.actions import Metadata


def made(row: Row) -> Metadata:
    result = commit(1, row).metadata
    assert result is not None
    return result


def changed(features: frozenset[str] = frozenset(), **properties: str) -> str | None:
    return conflict_free(made(metadata()), made(metadata(**properties)), features)


def test_nothing_changed_is_no_conflict() -> None:
    assert changed() is None


def test_features_may_be_turned_on_where_the_table_supports_them() -> None:
    assert changed(frozenset({"deletionVectors"}), enableDeletionVectors="true") is None
    assert changed(enableDeletionVectors="true") == "the property 'delta.enableDeletionVectors'"
    assert changed(frozenset({"deletionVectors"}), enableDeletionVectors="false")


def test_other_properties_are_not_tolerated() -> None:
    assert changed(appendOnly="true")
    assert changed(checkpointInterval="5")


def test_a_property_taken_away_is_not_tolerated() -> None:
    before = made(metadata(enableDeletionVectors="true"))
    assert conflict_free(before, made(metadata()), frozenset({"deletionVectors"}))


@pytest.mark.parametrize("field", ["id", "name", "description", "createdTime", "partitionColumns"])
def test_every_other_field_counts(field: str) -> None:
    row = metadata()
    row["metaData"][field] = {"createdTime": 5, "partitionColumns": ["x"]}.get(field, "other")
    assert conflict_free(made(metadata()), made(row), frozenset())


@pytest.mark.parametrize(("said", "what"), [("so", None), ("otherwise", "the schema")])
def test_columns_may_be_mapped_by_name_where_nothing_else_changes(
    said: str, what: str | None
) -> None:
    def of(comment: str, **mapping: str | int) -> Row:
        about = {
            "comment": comment,
            **{f"delta.columnMapping.{key}": mapping[key] for key in mapping},
        }
        field = {"name": "x", "type": "long", "nullable": True, "metadata": about}
        row = metadata(**({"columnMapping.mode": "name"} if mapping else {}))
        row["metaData"]["schemaString"] = json.dumps({"type": "struct", "fields": [field]})
        return row

    before, after = made(of("so")), made(of(said, id=1, physicalName="x"))
    assert conflict_free(before, after, frozenset({"columnMapping"})) == what


def test_the_schema_is_compared_as_text() -> None:
    row = metadata()
    row["metaData"]["schemaString"] = " " + builders.schema(x="long", s="string")
    assert conflict_free(made(metadata()), made(row), frozenset()) == "the schema"


def test_the_mode_of_column_mapping_is_read_in_any_case() -> None:
    features = frozenset({"columnMapping"})
    assert changed(features, **{"columnMapping.mode": "NAME"}) is None
    assert changed(features, **{"columnMapping.mode": "ID"})

import pytest

from tidegate_delta.definitions.feature_directives import (
    FeatureDirectives,
    canonical_keys,
    is_directive,
    read_directives,
    without_instructions,
)


def test_properties_are_spelt_as_delta_spark_keeps_them() -> None:
    assert canonical_keys(
        {
            "delta.APPENDONLY": "true",
            "DELTA.enablechangedatacapture": "true",
            "Delta.Feature.RowTracking": "supported",
            "delta.universalFormat.config.iceberg.Catalog": "x",
            "delta.Constraints.Positive": "a > 0",
            "delta.whoKnows": "1",
            "AppendOnly": "mine",
        }
    ) == {
        "delta.appendOnly": "true",
        "delta.enableChangeDataCapture": "true",
        "delta.feature.rowtracking": "supported",
        "delta.universalformat.config.iceberg.catalog": "x",
        "delta.Constraints.Positive": "a > 0",
        "delta.whoKnows": "1",
        "AppendOnly": "mine",
    }


@pytest.mark.parametrize(
    "key",
    [
        "delta.feature.x",
        "DELTA.FEATURE.X",
        "delta.minreaderversion",
        "delta.minWriterVersion",
        "delta.ignoreProtocolDefaults",
    ],
)
def test_instructions_are_known_however_they_are_spelt(key: str) -> None:
    assert is_directive(key)
    assert without_instructions({key: "1", "delta.appendOnly": "true", "feature.x": "y"}) == {
        "delta.appendOnly": "true",
        "feature.x": "y",
    }


def test_instructions_set_features_and_versions() -> None:
    result, flaws = read_directives(
        {
            "delta.feature.RowTracking": "ENABLED",
            "delta.minreaderversion": "2",
            "delta.minWriterVersion": "+5",
            "delta.ignoreProtocolDefaults": "True",
            "delta.appendOnly": "true",
        }
    )
    assert flaws == ()
    assert result == FeatureDirectives(frozenset({"rowTracking"}), 2, 5, ignores_defaults=True)


@pytest.mark.parametrize("text", ["0", "4", "x", "", "2.0", " 2"])
def test_a_version_that_there_is_not_is_no_instruction(text: str) -> None:
    result, flaws = read_directives({"delta.minReaderVersion": text})
    assert result == FeatureDirectives()
    assert [flaw.field for flaw in flaws] == ["metaData.configuration.delta.minReaderVersion"]


def test_every_problem_of_a_feature_is_listed() -> None:
    _, flaws = read_directives({"delta.feature.fromMars": "perhaps"})
    assert [flaw.rule for flaw in flaws] == ["feature_status", "unknown_feature"]
    assert all("delta.feature.fromMars" in str(flaw) for flaw in flaws)

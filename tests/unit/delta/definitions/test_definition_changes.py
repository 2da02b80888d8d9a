import pytest

from tests.definitions import a_field, listing, metadata, versions
from tidegate_delta.definitions.definition import Definition
from tidegate_delta.definitions.definition_changes import check_change
from tidegate_delta.features.supported_features import with_features
from tidegate_delta.log.actions import Metadata, Protocol

DOWNGRADE = "DELTA_INVALID_PROTOCOL_DOWNGRADE"
PLAIN = Definition(metadata(), versions(1, 2))
ROW_ID = "delta.rowTracking.materializedRowIdColumnName"
BOUND = "delta.requireCheckpointProtectionBeforeVersion"


def found(before: Definition | None, after: Definition) -> list[tuple[str, str | None]]:
    """Return the rules that a change breaks, each with delta-spark's error class."""
    return [(flaw.rule, flaw.error_class) for flaw in check_change(before, after)]


def under(protocol: Protocol, *fields: dict[str, object], **text: str) -> Definition:
    return Definition(metadata(*fields, **text), protocol)


def test_a_table_that_is_created_is_decided_alone() -> None:
    assert found(None, PLAIN) == []
    assert found(None, under(versions(1, 1), **{"delta.appendOnly": "true"})) == [
        ("feature_not_listed", "DELTA_FEATURES_PROTOCOL_METADATA_MISMATCH")
    ]


@pytest.mark.parametrize(
    "after",
    [
        versions(1, 2),
        versions(1, 4),
        listing("appendOnly", "invariants"),
        listing("appendOnly", "invariants", "fromMars"),
        with_features(versions(1, 2), ("icebergCompatV3", "deletionVectors")),
    ],
)
def test_a_protocol_may_support_more_in_any_form(after: Protocol) -> None:
    assert found(PLAIN, Definition(PLAIN.metadata, after)) == []


@pytest.mark.parametrize("after", [versions(1, 1), listing("appendOnly"), listing("fromMars")])
def test_a_protocol_keeps_every_feature(after: Protocol) -> None:
    assert (found(PLAIN, Definition(PLAIN.metadata, after)))[0] == ("feature_dropped", DOWNGRADE)


def test_an_existing_violation_blocks_no_other_change() -> None:
    odd = under(
        versions(1, 2), **{"delta.enableDeletionVectors": "true", "delta.logRetentionDuration": "x"}
    )
    assert found(odd, odd) == []
    more = odd.metadata.with_(configuration={**odd.metadata.configuration, "mine": "1"})
    assert found(odd, Definition(more, odd.protocol)) == []
    worse = odd.metadata.with_(
        configuration={**odd.metadata.configuration, "delta.enableRowTracking": "true"}
    )
    assert {rule for rule, _ in found(odd, Definition(worse, odd.protocol))} == {
        "feature_not_listed",
        "row_tracking_column_missing",
    }


def test_a_value_that_was_invalid_before_may_become_valid_or_invalid_otherwise() -> None:
    odd = under(versions(1, 2), **{"delta.logRetentionDuration": "x"})
    assert found(odd, under(versions(1, 2), **{"delta.logRetentionDuration": "1 day"})) == []
    wrong = under(versions(1, 2), **{"delta.logRetentionDuration": "y"})
    assert found(odd, wrong) == [("wrong_value", "InvalidTableProperty")]


def test_a_schema_that_could_not_be_read_may_be_replaced() -> None:
    broken = Definition(metadata().with_(schema_string="[]"), versions(1, 2))
    assert found(broken, PLAIN) == []
    assert found(PLAIN, broken) == [("unreadable_schema", None)]


def test_a_mapping_changes_by_the_rules_of_mappings() -> None:
    before = under(versions(2, 5))
    after = under(versions(2, 5), **{"delta.columnMapping.mode": "id"})
    rules = [rule for rule, _ in found(before, after)]
    assert rules == [
        "column_without_id",
        "column_without_physical_name",
        "max_column_id_missing",
        "mapping_mode_change",
    ]


@pytest.mark.parametrize(
    ("name", "error_class"),
    [
        ("catalogManaged", None),
        ("adaptiveMetadata-preview", "DELTA_ADAPTIVE_METADATA_UPGRADE_NOT_SUPPORTED"),
    ],
)
def test_some_features_are_there_from_the_start_or_never(
    name: str, error_class: str | None
) -> None:
    after = Definition(PLAIN.metadata, with_features(PLAIN.protocol, (name,)))
    assert ("feature_for_new_tables", error_class) in found(PLAIN, after)
    assert "feature_for_new_tables" not in dict(found(None, after))


def test_the_columns_of_row_tracking_keep_their_names() -> None:
    tracked = with_features(versions(1, 2), ("rowTracking",))
    before, after = under(tracked, **{ROW_ID: "x"}), under(tracked, **{ROW_ID: "y"})
    assert found(before, after) == [("row_tracking_column_renamed", None)]
    assert found(under(tracked), after) == []
    assert found(before, under(tracked)) == [("row_tracking_column_renamed", None)]


def test_a_protection_is_not_lowered() -> None:
    protected = listing("appendOnly", "checkpointProtection", "invariants")
    high, low = under(protected, **{BOUND: "7"}), under(protected, **{BOUND: "6"})
    assert found(high, low) == [("protection_lowered", None)]
    assert found(low, high) == []
    assert found(high, under(protected)) == []


VECTORS = listing("appendOnly", "deletionVectors", "invariants", readers=("deletionVectors",))


@pytest.mark.parametrize(
    ("after", "rules"),
    [
        (versions(1, 2), []),
        (listing("appendOnly", "invariants", "checkpointProtection"), []),
        (VECTORS, ["not_a_drop"]),
        (versions(1, 3), ["not_a_drop"]),
        (versions(1, 1), ["feature_dropped"]),
    ],
)
def test_a_drop_drops_one_feature_and_may_protect_history(
    after: Protocol, rules: list[str]
) -> None:
    before, about = Definition(metadata(), VECTORS), Definition(metadata(), after)
    flaws = check_change(before, about, dropping="deletionVectors")
    assert sorted({flaw.rule for flaw in flaws}) == rules
    assert {flaw.error_class for flaw in flaws} <= {DOWNGRADE}


def test_a_drop_leaves_no_use_behind() -> None:
    about: Metadata = metadata(a_field("a"), **{"delta.enableDeletionVectors": "true"})
    flaws = check_change(
        Definition(about, VECTORS), Definition(about, versions(1, 2)), dropping="deletionVectors"
    )
    assert [flaw.rule for flaw in flaws] == ["feature_not_listed"]

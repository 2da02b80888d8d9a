"""A feature that binds every writer fails proposals that read the table before it."""

import pytest

from tests.builders import Gate, Row, add, metadata, proposal, protocol
from tests.support.other_engines import write
from tests.support.outcomes import rejection_of, rules_of
from tests.support.tables import creating
from tidegate_delta.features.feature import Support
from tidegate_delta.features.supported_features import FEATURES

BINDING = sorted(
    name for name, row in FEATURES.items() if row.fails_concurrent and row.writes is not Support.NO
)
FREE = ["appendOnly", "domainMetadata", "changeDataFeed", "vacuumProtocolCheck", "rowTracking"]


def behind(*features: str) -> Gate:
    """Return a committer with a table whose version 1, by another engine, has these features."""
    gate = Gate()
    begun: list[Row] = [protocol(1, 7, writerFeatures=[]), metadata()]
    gate.ask(creating(*begun))
    needed = [needed for name in features for needed in FEATURES[name].needs]
    both = [name for name in (*features, *needed) if FEATURES[name].reader_writer]
    lists = {"writerFeatures": [*features, *needed]}
    reader = 3 if both else 1
    write(gate, 1, protocol(reader, 7, **lists, **({"readerFeatures": both} if both else {})))
    return gate


def test_the_features_that_bind_are_those_that_delta_spark_names() -> None:
    assert {
        *("invariants", "checkConstraints", "generatedColumns", "identityColumns", "clustering"),
        *("allowColumnDefaults", "checkpointProtection"),
    } <= set(BINDING)


@pytest.mark.parametrize("name", BINDING)
def test_a_feature_that_binds_writers_fails_who_read_before(name: str) -> None:
    [result] = gate_told = behind(name).ask(proposal(add("a")))
    assert rules_of(gate_told) == ["feature_binds_writers"]
    assert rejection_of(result).error_class == "DELTA_PROTOCOL_CHANGED"


@pytest.mark.parametrize("name", FREE)
def test_any_other_feature_fails_nobody(name: str) -> None:
    assert rules_of(behind(name).ask(proposal(add("a")))) == ["committed"]


def test_what_a_version_without_features_implies_fails_nobody() -> None:
    gate = Gate()
    gate.ask(creating(protocol(), metadata()))
    write(gate, 1, protocol(1, 4))
    assert rules_of(gate.ask(proposal(add("a")))) == ["committed"]


def test_what_a_winner_implied_another_may_name() -> None:
    """Listing one more feature turns the features implied by a version into named ones."""
    gate = Gate()
    gate.ask(creating(protocol(), metadata()))
    write(gate, 1, protocol(1, 4))
    implied = ("appendOnly", "changeDataFeed", "checkConstraints", "generatedColumns", "invariants")
    write(gate, 2, protocol(1, 7, writerFeatures=[*implied, "domainMetadata"]))
    assert rules_of(gate.ask(proposal(add("a")))) == ["committed"]
    write(gate, 4, protocol(1, 7, writerFeatures=[*implied, "domainMetadata", "identityColumns"]))
    assert rules_of(gate.ask(proposal(add("b")))) == ["feature_binds_writers"]

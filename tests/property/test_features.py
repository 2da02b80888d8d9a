"""Laws of protocols and properties: normal forms, the least protocol, changes that stay valid."""

import json
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from tests.definitions import a_field, metadata
from tidegate_delta.definitions.definition import Definition
from tidegate_delta.definitions.definition_changes import check_change
from tidegate_delta.definitions.definition_checks import check_definition
from tidegate_delta.definitions.drop_feature import Drop, FeatureRemains, drop_flaws, dropped
from tidegate_delta.definitions.feature_directives import (
    canonical_keys,
    is_directive,
    read_directives,
    without_instructions,
)
from tidegate_delta.definitions.resolve_definition import resolve_definition
from tidegate_delta.errors import TidegateError
from tidegate_delta.features.supported_features import (
    FEATURES,
    closure,
    minimum_protocol,
    protocol_for,
    self_enabling_features,
    with_features,
    without_feature,
)
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_delta.log.protocol_versions import (
    canonical,
    denormalised,
    merged,
    normalised,
    shape_fault,
    supported_features,
)
from tidegate_delta.properties.property import column_list, interval_ms
from tidegate_delta.properties.table_properties import ALL, INSTRUCTIONS

READING = sorted(name for name, row in FEATURES.items() if row.reader_writer)
REMOVABLE = sorted(name for name, row in FEATURES.items() if row.is_removable)
names = st.sampled_from([*FEATURES, "fromMars", "fromVenus"])
sets = st.frozensets(names, max_size=8)


@st.composite
def listing(draw: st.DrawFn) -> Protocol:
    """Draw a protocol with consistent lists, perhaps longer than necessary."""
    writers = draw(sets)
    readers = tuple(name for name in sorted(writers) if name in READING or name == "fromMars")
    native = any(name != "columnMapping" for name in readers)
    if native or draw(st.booleans()):
        return Protocol(
            min_reader_version=3,
            min_writer_version=7,
            reader_features=readers,
            writer_features=tuple(writers),
        )
    return Protocol(
        min_reader_version=2 if readers else draw(st.sampled_from([1, 2])),
        min_writer_version=7,
        writer_features=tuple(writers),
    )


versions = st.tuples(st.integers(1, 2), st.integers(1, 6)).map(
    lambda both: Protocol(min_reader_version=both[0], min_writer_version=both[1])
)
protocols = versions | listing()

MAPPED = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "1"}
ROWS = {
    "delta.enableRowTracking": "true",
    "delta.rowTracking.materializedRowIdColumnName": "_r",
    "delta.rowTracking.materializedRowCommitVersionColumnName": "_v",
}
USES: list[dict[str, str]] = [
    {"delta.appendOnly": "true"},
    {"delta.constraints.c": "a > 0"},
    {"delta.enableChangeDataFeed": "true"},
    {"delta.enableDeletionVectors": "true"},
    {"delta.checkpointPolicy": "v2"},
    {"delta.enableInCommitTimestamps": "true"},
    {"delta.enableTypeWidening": "true"},
    {"delta.enableVariantShredding": "true"},
    {"delta.enableMaterializePartitionColumnsFeature": "true"},
    {"delta.enableIcebergCompatV2": "true"},
    {"delta.compatibility.symlinkFormatManifest.enabled": "true"},
    {"delta.universalFormat.enabledFormats": "iceberg"},
    MAPPED,
    ROWS,
]
KINDS = ["long", "timestamp_ntz", "variant", "geometry", "string"]
uses = st.lists(st.integers(0, len(USES) - 1), max_size=5).map(frozenset)
ABOUT: list[dict[str, Any]] = [
    {},
    {"delta.invariants": "{}"},
    {"delta.generationExpression": "1"},
    {"delta.identity.start": 1},
]


def table(
    using: frozenset[int], kind: str = "long", about: dict[str, Any] | None = None
) -> Metadata:
    """Return metadata that uses the given features."""
    text = {key: value for number in using for key, value in USES[number].items()}
    mapping = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "p"}
    return metadata(a_field("a", kind, **mapping, **(about or {})), **text)


tables = st.builds(table, uses, st.sampled_from(KINDS), st.sampled_from(ABOUT))


@given(sets)
def test_features_make_a_protocol_that_supports_them_and_no_others(asked: frozenset[str]) -> None:
    protocol = protocol_for(asked)
    assert supported_features(protocol) == asked
    assert shape_fault(protocol) is None
    assert canonical(protocol) == protocol


@given(protocols)
def test_a_form_of_a_protocol_is_reached_once_and_supports_the_same(protocol: Protocol) -> None:
    for form in (normalised, denormalised, canonical):
        once = form(protocol)
        assert form(once) == once
        assert supported_features(once) == supported_features(protocol)
        assert shape_fault(once) is None
    assert canonical(denormalised(protocol)) == canonical(protocol)


@given(protocols, protocols)
def test_a_merged_protocol_supports_what_each_does_in_any_order(
    first: Protocol, second: Protocol
) -> None:
    both = merged(first, second)
    assert supported_features(both) >= supported_features(first) | supported_features(second)
    assert both == merged(second, first) == canonical(both)
    assert merged(first, first) == canonical(first)


@given(protocols, sets)
def test_features_are_added_with_their_needs_and_nothing_is_lost(
    protocol: Protocol, more: frozenset[str]
) -> None:
    after = with_features(protocol, more)
    assert supported_features(after) == supported_features(protocol) | closure(more)
    assert with_features(after, more) == after


@given(protocols, names)
def test_a_feature_is_dropped_alone(protocol: Protocol, name: str) -> None:
    after = without_feature(protocol, name)
    assert supported_features(after) == supported_features(protocol) - {name}
    assert canonical(after) == after


@given(uses, uses, st.sampled_from(KINDS))
def test_the_least_protocol_grows_with_what_is_used(
    some: frozenset[int], more: frozenset[int], kind: str
) -> None:
    fewer, all_of_it = minimum_protocol(table(some)), minimum_protocol(table(some | more, kind))
    assert supported_features(fewer) <= supported_features(all_of_it)


INSTRUCTED = st.dictionaries(
    st.sampled_from(
        [*(f"delta.feature.{name}" for name in FEATURES), "DELTA.Feature.x", *INSTRUCTIONS]
    ),
    st.sampled_from(["supported", "enabled", "true", "1", "2", "3", "5", "7", "x"]),
    max_size=4,
)


@given(st.none() | protocols, tables, INSTRUCTED)
def test_instructions_are_obeyed_and_never_kept(
    before: Protocol | None, wanted: Metadata, told: dict[str, str]
) -> None:
    asked = wanted.with_(configuration={**wanted.configuration, **told})
    old = None if before is None else Definition(wanted, before)
    settled = resolve_definition(old, asked)
    kept = settled.definition.metadata.configuration
    assert not any(is_directive(key) for key in kept)
    assert wanted.configuration.items() <= kept.items()
    supported = settled.definition.supported
    assert closure(read_directives(told)[0].features) <= supported
    assert frozenset(self_enabling_features(wanted, supported)) <= supported
    again = resolve_definition(settled.definition, settled.definition.metadata)
    assert again.definition == settled.definition
    assert again.flaws == ()


@given(st.dictionaries(st.text("delta.fUX", max_size=12), st.text(max_size=3)))
def test_keys_have_one_spelling(text: dict[str, str]) -> None:
    kept = canonical_keys(without_instructions(text))
    assert canonical_keys(kept) == kept == without_instructions(kept)


ELSEWHERE = frozenset(
    {"catalogManaged", "catalogOwned-preview", "adaptiveMetadata-preview", "clustering"}
)
"""Features that need more of the metadata or the partition columns than these have."""


@given(protocols, tables, sets)
def test_a_sound_definition_stays_sound_when_it_is_upgraded(
    protocol: Protocol, about: Metadata, more: frozenset[str]
) -> None:
    sound = resolve_definition(None, about, protocol).definition
    assume(not check_definition(sound))
    assume(not closure(more) & ELSEWHERE)
    upgraded = Definition(sound.metadata, with_features(sound.protocol, more))
    assert check_definition(upgraded) == ()
    assert check_change(sound, upgraded) == ()


@given(protocols, uses, st.sampled_from(REMOVABLE), st.booleans())
def test_what_may_be_dropped_is_dropped_soundly(
    protocol: Protocol, using: frozenset[int], name: str, truncates: bool
) -> None:
    text = {key: value for number in using for key, value in USES[number].items()}
    about = metadata(**{**text, "delta.rowTrackingSuspended": "true"})
    sound = resolve_definition(None, about, with_features(protocol, (name,))).definition
    drop = Drop(name, truncates_history=truncates)
    if drop_flaws(drop, sound, FeatureRemains()):
        return
    after = dropped(drop, sound, 9)
    assert name not in after.supported
    assert check_change(sound, after, dropping=name) == ()


KEYS = [record.key for record in ALL] + [
    *INSTRUCTIONS,
    "delta.feature.x",
    "delta.constraints.c",
    "mine",
]
TEXTS = st.sampled_from(["", "true", "false", "name", "id", "v2", "1", "-1", "a", "{}", "hudi"])
SCHEMAS = st.sampled_from(
    [
        "",
        "{}",
        "[" * 3000,
        '{"type":"struct","fields":[]}',
        json.dumps(
            {"type": "struct", "fields": [a_field("a", "long", **{"delta.typeChanges": 1})]}
        ),
        json.dumps({"type": "struct", "fields": [a_field("a", "null", CURRENT_DEFAULT=None)]}),
    ]
)


@st.composite
def anything(draw: st.DrawFn) -> Definition:
    """Draw arbitrary metadata and an arbitrary protocol."""
    text = st.dictionaries(st.sampled_from(KEYS), TEXTS | st.text(max_size=5), max_size=6)
    about = Metadata(
        id="t",
        schema_string=draw(SCHEMAS),
        partition_columns=draw(st.sampled_from([(), ("a",), ("b",)])),
        configuration=draw(text),
    )
    protocol = Protocol(
        min_reader_version=draw(st.integers(-1, 9)),
        min_writer_version=draw(st.integers(-1, 9)),
        reader_features=draw(st.none() | sets.map(tuple)),
        writer_features=draw(st.none() | sets.map(tuple)),
    )
    return Definition(about, protocol)


@given(anything(), anything(), st.none() | names)
def test_every_definition_and_change_gets_a_verdict(
    before: Definition, after: Definition, dropping: str | None
) -> None:
    for flaw in (*check_definition(after), *check_change(before, after, dropping=dropping)):
        assert flaw.rule
        assert flaw.reason
        assert flaw.remedy
    assert check_change(before, before) == ()


@given(anything())
def test_what_cannot_be_resolved_is_refused_with_an_error_of_ours(wanted: Definition) -> None:
    try:
        settled = resolve_definition(None, *wanted)
    except TidegateError:
        assert any(flaw.rule == "unreadable_schema" for flaw in check_definition(wanted))
        return
    assert not any(is_directive(key) for key in settled.definition.metadata.configuration)


@given(st.text("interval 0123456789.+-daysecnm\t", max_size=24))
def test_a_text_is_an_interval_or_none(text: str) -> None:
    try:
        length_ms = interval_ms(text)
    except ValueError:
        return
    assert length_ms >= 0
    assert interval_ms(f"{text} 1 second") == length_ms + 1000


@given(st.lists(st.lists(st.text("a`.,b ", min_size=1, max_size=3), min_size=1, max_size=3)))
def test_a_list_of_columns_is_read_as_it_was_written(columns: list[list[str]]) -> None:
    quoted = (".".join("`" + name.replace("`", "``") + "`" for name in path) for path in columns)
    assert column_list(", ".join(quoted)) == tuple(map(tuple, columns))

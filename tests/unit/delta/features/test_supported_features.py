import json
from typing import Any

import pytest

from tidegate_delta.errors import BrokenLog, UnsupportedFeature
from tidegate_delta.features.supported_features import (
    FEATURES,
    Support,
    check_readable,
    check_writable,
    unlisted_features,
)
from tidegate_delta.log.actions import Format, Metadata, Protocol

LEGACY = Protocol(min_reader_version=1, min_writer_version=2)
NUMBERED = {
    "delta.identity.start": 1,
    "delta.identity.step": 1,
    "delta.identity.allowExplicitInsert": False,
}


def metadata(*fields: dict[str, Any], **configuration: str) -> Metadata:
    columns = fields or ({"name": "a", "type": "long", "nullable": True, "metadata": {}},)
    return Metadata(
        id="t",
        schema_string=json.dumps({"type": "struct", "fields": list(columns)}),
        configuration={
            f"delta.{key.replace('_', '.')}": text for key, text in configuration.items()
        },
    )


def a_field(kind: Any = "long", **about: Any) -> dict[str, Any]:
    named = {key.replace("delta_", "delta."): value for key, value in about.items()}
    return {"name": "a", "type": kind, "nullable": True, "metadata": named}


def features(*names: str, reader: tuple[str, ...] = ()) -> Protocol:
    return Protocol(
        min_reader_version=3, min_writer_version=7, reader_features=reader, writer_features=names
    )


def refused(check: Any, protocol: Protocol, about: Metadata) -> str:
    with pytest.raises(UnsupportedFeature, match="table here") as caught:
        check(protocol, about, "here")
    return caught.value.feature


@pytest.mark.parametrize("writer", [1, 2, 3, 4])
def test_a_legacy_table_that_uses_nothing_is_read_and_written(writer: int) -> None:
    check_writable(Protocol(min_reader_version=1, min_writer_version=writer), metadata(), "here")


INVARIANT = '{"expression":{"expression":"a > 0"}}'


@pytest.mark.parametrize(
    ("about", "feature"),
    [
        (metadata(constraints_positive="a > 0"), "checkConstraints"),
        (metadata(enableChangeDataFeed="true"), "changeDataFeed"),
        (metadata(a_field(delta_invariants=INVARIANT)), "invariants"),
        (metadata(a_field(delta_generationExpression="b + 1")), "generatedColumns"),
        (metadata(a_field(CURRENT_DEFAULT="1")), "allowColumnDefaults"),
    ],
)
def test_requirements_of_rows_are_written_where_the_protocol_lists_them(
    about: Metadata, feature: str
) -> None:
    check_writable(features(feature), about, "here")
    assert refused(check_writable, features(), about) == feature
    check_readable(features(), about, "here")


@pytest.mark.parametrize(
    ("feature", "about"),
    [
        ("invariants", metadata(a_field(delta_invariants="{}"))),
        ("generatedColumns", metadata(a_field(delta_generationExpression=1))),
        ("identityColumns", metadata(a_field(**{"delta.identity.start": 1}))),
        ("allowColumnDefaults", metadata(a_field(CURRENT_DEFAULT=1))),
    ],
)
def test_unreadable_requirements_of_rows_break_the_log(feature: str, about: Metadata) -> None:
    check_readable(features(feature), about, "here")
    with pytest.raises(BrokenLog, match=r"table here: .*'a'"):
        check_writable(features(feature), about, "here")


@pytest.mark.parametrize("version", ["V1", "V2", "V3"])
def test_tables_with_unverifiable_iceberg_requirements_are_not_written(version: str) -> None:
    name, used = f"icebergCompat{version}", metadata(**{f"enableIcebergCompat{version}": "true"})
    check_readable(features(name), used, "here")
    assert refused(check_writable, features(name), used) == name
    check_writable(features(name), metadata(), "here")


@pytest.mark.parametrize("feature", ["adaptiveMetadata-preview", "catalogManaged", "fromMars"])
def test_a_reader_feature_we_lack_is_refused_by_name(feature: str) -> None:
    protocol = features(feature, reader=(feature,))
    assert refused(check_readable, protocol, metadata()) == feature
    assert refused(check_writable, protocol, metadata()) == feature


@pytest.mark.parametrize(
    ("feature", "meaning"),
    [
        ("catalogManaged", "through its catalog"),
        ("catalogOwned-preview", "through its catalog"),
        ("redirectReaderWriter-preview", "redirectReaderWriter-preview or"),
        ("adaptiveMetadata-preview", "manifests"),
    ],
)
def test_a_refusal_says_what_the_feature_means(feature: str, meaning: str) -> None:
    with pytest.raises(UnsupportedFeature, match=meaning):
        check_readable(features(feature, reader=(feature,)), metadata(), "here")


def test_tables_with_v2_checkpoints_are_read_and_written() -> None:
    protocol = features("v2Checkpoint", reader=("v2Checkpoint",))
    check_readable(protocol, metadata(checkpointPolicy="v2"), "here")
    check_writable(protocol, metadata(checkpointPolicy="v2"), "here")


@pytest.mark.parametrize(
    ("feature", "about"),
    [
        ("inCommitTimestamp", metadata(enableInCommitTimestamps="true")),
        ("rowTracking", metadata(enableRowTracking="true")),
        ("identityColumns", metadata(a_field(**NUMBERED))),
        ("domainMetadata", metadata()),
        ("clustering", metadata()),
        ("checkpointProtection", metadata(requireCheckpointProtectionBeforeVersion="7")),
    ],
)
def test_features_that_concern_commits_alone_are_read_and_written(
    feature: str, about: Metadata
) -> None:
    check_readable(features(feature), about, "here")
    check_writable(features(feature), about, "here")


def test_a_writer_feature_unheard_of_is_read_and_not_written() -> None:
    check_readable(features("fromMars"), metadata(), "here")
    assert refused(check_writable, features("fromMars"), metadata()) == "fromMars"


@pytest.mark.parametrize("feature", ["timestampNtz", "vacuumProtocolCheck", "deletionVectors"])
def test_features_with_few_requirements_are_read_and_written(feature: str) -> None:
    check_writable(features(feature, reader=(feature,)), metadata(), "here")


MAPPED = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "c1"}


@pytest.mark.parametrize("mode", ["name", "id"])
def test_mapped_columns_are_read_and_written(mode: str) -> None:
    protocol = Protocol(min_reader_version=2, min_writer_version=5)
    check_writable(protocol, metadata(), "here")
    used = metadata(a_field(**MAPPED), columnMapping_mode=mode)
    check_readable(protocol, used, "here")
    check_writable(protocol, used, "here")
    check_writable(protocol, metadata(a_field(**MAPPED), columnMapping_mode="none"), "here")


def test_mapped_columns_are_refused_where_the_protocol_does_not_list_them() -> None:
    used = metadata(a_field(**MAPPED), columnMapping_mode="name")
    assert refused(check_readable, LEGACY, used) == "columnMapping"


def test_mapped_columns_without_a_name_in_files_break_the_log() -> None:
    protocol = Protocol(min_reader_version=2, min_writer_version=5)
    with pytest.raises(BrokenLog, match="'a' has no physical name"):
        check_readable(protocol, metadata(columnMapping_mode="name"), "here")
    with pytest.raises(BrokenLog, match="'a' has no physical name"):
        check_writable(protocol, metadata(columnMapping_mode="name"), "here")


@pytest.mark.parametrize(
    ("name", "reason"), [("A", "does not have, but 'a'"), ("b", "does not have;")]
)
def test_a_partition_column_that_is_no_column_breaks_the_log(name: str, reason: str) -> None:
    made_by_hand = metadata().with_(partition_columns=(name,))
    for check in (check_readable, check_writable):
        with pytest.raises(BrokenLog, match=f"partitioned by '{name}'.*{reason}"):
            check(LEGACY, made_by_hand, "here")
    check_writable(LEGACY, metadata().with_(partition_columns=("a",)), "here")


@pytest.mark.parametrize("feature", ["typeWidening", "typeWidening-preview"])
def test_widened_columns_are_read_and_written(feature: str) -> None:
    protocol = features(feature, reader=(feature,))
    check_readable(protocol, metadata(), "here")
    changed = metadata(a_field(delta_typeChanges=[{"fromType": "integer", "toType": "long"}]))
    check_readable(protocol, changed, "here")
    check_writable(protocol, changed, "here")


def test_a_change_of_type_that_we_do_not_know_is_refused() -> None:
    protocol = features("typeWidening", reader=("typeWidening",))
    changed = metadata(a_field(delta_typeChanges=[{"fromType": "string", "toType": "long"}]))
    assert refused(check_readable, protocol, changed) == "typeWidening"


@pytest.mark.parametrize(
    "listed",
    [
        ("variantType",),
        ("variantType-preview",),
        ("variantType", "variantShredding"),
        ("variantType", "variantShredding-preview"),
    ],
)
def test_variants_are_read_and_written(listed: tuple[str, ...]) -> None:
    protocol, used = features(*listed, reader=listed), metadata(a_field("variant"))
    check_readable(protocol, used, "here")
    check_writable(protocol, used, "here")
    assert refused(check_writable, LEGACY, used) == "variantType"


def test_a_type_we_do_not_know_is_refused() -> None:
    with pytest.raises(UnsupportedFeature, match="intervalType"):
        check_readable(LEGACY, metadata(a_field("interval day")), "here")


@pytest.mark.parametrize("kind", ["timestamp_nanos", "timestamp_nanos_ntz"])
def test_timestamps_in_nanoseconds_are_read_and_not_written(kind: str) -> None:
    protocol = features("timestampNanos", reader=("timestampNanos",))
    used = metadata(a_field(kind))
    check_readable(protocol, used, "here")
    assert refused(check_writable, protocol, used) == "timestampNanos"
    assert refused(check_writable, LEGACY, used) == "timestampNanos"


@pytest.mark.parametrize(
    "kind", ["geometry(OGC:CRS84)", "geography(SRID:0, SPHERICAL)", "geometry"]
)
def test_shapes_on_earth_are_read_and_not_written(kind: str) -> None:
    protocol = features("geospatial", reader=("geospatial",))
    check_readable(protocol, metadata(a_field(kind)), "here")
    assert refused(check_writable, protocol, metadata(a_field(kind))) == "geospatial"
    assert refused(check_writable, LEGACY, metadata(a_field(kind))) == "geospatial"


def test_a_format_other_than_parquet_is_refused() -> None:
    about = metadata().with_(format=Format(provider="orc"))
    assert refused(check_readable, LEGACY, about) == "format orc"


@pytest.mark.parametrize("writer", [0, 8])
def test_a_writer_version_out_of_range_is_read_and_not_written(writer: int) -> None:
    lists = {"writer_features": ()} if writer == 8 else {}
    protocol = Protocol(min_reader_version=1, min_writer_version=writer, **lists)
    check_readable(protocol, metadata(), "here")
    with pytest.raises(UnsupportedFeature) as caught:
        check_writable(protocol, metadata(), "here")
    assert caught.value.error_class == "UnsupportedProtocol"


def test_what_the_metadata_uses_the_protocol_must_list() -> None:
    uses = metadata(enableDeletionVectors="true", appendOnly="true")
    assert unlisted_features(LEGACY, uses) == ("deletionVectors",)
    listed = features("deletionVectors", "appendOnly", reader=("deletionVectors",))
    assert unlisted_features(listed, uses) == ()


def test_every_row_of_the_table_is_found_under_its_own_name() -> None:
    assert all(name == row.name for name, row in FEATURES.items())


def test_what_readers_need_not_know_is_always_read() -> None:
    writers = [row for row in FEATURES.values() if not row.reader_writer]
    unread = [row.name for row in writers if row.reads is not Support.YES]
    assert unread == ["coordinatedCommits-preview"]

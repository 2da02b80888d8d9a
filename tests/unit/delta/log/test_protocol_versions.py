import pytest

from tidegate_delta.errors import UnsupportedFeature
from tidegate_delta.log.actions import Protocol
from tidegate_delta.log.protocol_versions import (
    canonical,
    check_shape,
    denormalised,
    legacy_features,
    merged,
    normalised,
    reader_features,
    shape_fault,
    supported_features,
    weakest,
    writer_features,
)


def versions(reader: int, writer: int, **lists: tuple[str, ...]) -> Protocol:
    return Protocol(min_reader_version=reader, min_writer_version=writer, **lists)


def test_each_writer_version_adds_to_the_one_before() -> None:
    assert writer_features(versions(1, 1)) == set()
    assert writer_features(versions(1, 2)) == {"appendOnly", "invariants"}
    assert writer_features(versions(1, 3)) - writer_features(versions(1, 2)) == {"checkConstraints"}
    four = writer_features(versions(1, 4)) - writer_features(versions(1, 3))
    assert four == {"changeDataFeed", "generatedColumns"}
    assert writer_features(versions(2, 5)) - writer_features(versions(1, 4)) == {"columnMapping"}
    assert writer_features(versions(2, 6)) - writer_features(versions(2, 5)) == {"identityColumns"}


def test_a_writer_must_know_what_a_reader_must_know() -> None:
    protocol = versions(2, 7, writer_features=("appendOnly",))
    assert reader_features(protocol) == {"columnMapping"}
    assert writer_features(protocol) == {"columnMapping", "appendOnly"}


def test_lists_replace_what_versions_imply() -> None:
    protocol = versions(3, 7, reader_features=("x",), writer_features=("x", "y"))
    assert reader_features(protocol) == {"x"}
    assert writer_features(protocol) == {"x", "y"}


@pytest.mark.parametrize(
    "protocol",
    [
        versions(1, 1),
        versions(1, 7, writer_features=()),
        versions(1, 2, reader_features=(), writer_features=()),
        versions(2, 6),
        versions(3, 7, reader_features=(), writer_features=()),
    ],
)
def test_legal_shapes_pass(protocol: Protocol) -> None:
    check_shape(protocol, "here")


@pytest.mark.parametrize(
    "protocol",
    [
        versions(0, 2),
        versions(4, 7, reader_features=(), writer_features=()),
        versions(3, 7),
        versions(3, 7, reader_features=()),
        versions(3, 6, reader_features=()),
        versions(1, 7),
        versions(1, 2, reader_features=("x",)),
        versions(1, 2, writer_features=("x",)),
    ],
)
def test_other_shapes_are_refused(protocol: Protocol) -> None:
    with pytest.raises(UnsupportedFeature, match="table here") as caught:
        check_shape(protocol, "here")
    assert caught.value.error_class == "UnsupportedProtocol"


def lists(*names: str, readers: tuple[str, ...] | None = None, reader: int = 1) -> Protocol:
    """Return a protocol that lists features, some of them for readers too."""
    return Protocol(
        min_reader_version=3 if readers is not None else reader,
        min_writer_version=7,
        reader_features=readers,
        writer_features=names,
    )


def test_a_legacy_feature_is_supported_where_both_versions_reach_it() -> None:
    assert supported_features(versions(1, 5)) == legacy_features(1, 4)
    assert supported_features(versions(2, 4)) == legacy_features(1, 4)
    assert "columnMapping" in supported_features(versions(2, 5))
    assert supported_features(lists("x", readers=("y",))) == {"x", "y"}
    assert supported_features(lists("x", reader=2)) == {"x"}


@pytest.mark.parametrize(
    ("protocol", "form"),
    [
        (versions(1, 1), versions(1, 1)),
        (versions(2, 3), versions(1, 3)),
        (versions(1, 5), versions(1, 4)),
        (versions(1, 6), versions(1, 6)),
        (versions(2, 6), versions(2, 6)),
        (lists("appendOnly", "invariants"), versions(1, 2)),
        (lists("invariants", "appendOnly", readers=()), versions(1, 2)),
        (lists("checkConstraints"), lists("checkConstraints")),
        (lists("rowTracking", readers=()), lists("rowTracking")),
        (lists(), versions(1, 1)),
        (lists("columnMapping", readers=("columnMapping",)), lists("columnMapping", reader=2)),
        (lists(*sorted(legacy_features(2, 5)), readers=("columnMapping",)), versions(2, 5)),
        (
            lists("y", "x", "columnMapping", readers=("x", "columnMapping")),
            lists("columnMapping", "x", "y", readers=("columnMapping", "x")),
        ),
    ],
)
def test_a_protocol_has_one_canonical_form(protocol: Protocol, form: Protocol) -> None:
    assert canonical(protocol) == form


def test_forms_that_are_there_already_stay() -> None:
    odd = versions(2, 3)
    assert normalised(odd) is odd
    listed = lists("appendOnly", "invariants")
    assert denormalised(listed) is listed
    assert denormalised(versions(2, 5)) == lists(*sorted(legacy_features(2, 5)), reader=2)


@pytest.mark.parametrize(
    ("protocols", "both"),
    [
        ((versions(1, 2), versions(1, 3)), versions(1, 3)),
        ((versions(1, 5), versions(2, 4)), versions(2, 5)),
        ((versions(1, 2), lists("checkConstraints")), versions(1, 3)),
        (
            (versions(2, 5), lists("x", readers=("x",))),
            lists(*sorted({*legacy_features(2, 5), "x"}), readers=("columnMapping", "x")),
        ),
        ((versions(1, 2), lists(readers=())), versions(1, 2)),
    ],
)
def test_protocols_are_merged_into_one_that_supports_all(
    protocols: tuple[Protocol, ...], both: Protocol
) -> None:
    assert merged(*protocols) == both
    assert merged(*reversed(protocols)) == both


def test_what_readers_must_know_writers_must_know_too() -> None:
    assert weakest(["x"], ["y"]) == lists("x", "y", readers=("x",))
    assert weakest((name for name in "x"), ()) == lists("x", readers=("x",))


def test_a_contradiction_is_reported() -> None:
    assert shape_fault(versions(2, 5)) is None
    assert shape_fault(versions(3, 5)) == "reader version 3 without readerFeatures"

import pytest

from tidegate.delta.actions import Protocol
from tidegate.delta.errors import UnsupportedFeature
from tidegate.delta.features.arithmetic import check_shape, reader_features, writer_features


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

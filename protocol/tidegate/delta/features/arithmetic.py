"""Protocol arithmetic: what versions imply, which shapes are legal."""

from collections.abc import Mapping
from typing import Final

from tidegate.delta.actions import Protocol
from tidegate.delta.errors import UnsupportedFeature

READER_FEATURES_VERSION: Final = 3
WRITER_FEATURES_VERSION: Final = 7
COLUMN_MAPPING_READER_VERSION: Final = 2

IMPLIED_BY_WRITER: Final[Mapping[int, tuple[str, ...]]] = {
    2: ("appendOnly", "invariants"),
    3: ("checkConstraints",),
    4: ("changeDataFeed", "generatedColumns"),
    5: ("columnMapping",),
    6: ("identityColumns",),
}
"""What each writer version below the feature lists adds to the one before.

Spec: "Writer Version Requirements"
"""


def reader_features(protocol: Protocol) -> frozenset[str]:
    """Return the features that a reader of the table must know.

    Spec: "Reader Version Requirements"
    """
    if protocol.min_reader_version >= READER_FEATURES_VERSION:
        return frozenset(protocol.reader_features or ())
    if protocol.min_reader_version == COLUMN_MAPPING_READER_VERSION:
        return frozenset({"columnMapping"})
    return frozenset()


def writer_features(protocol: Protocol) -> frozenset[str]:
    """Return the features that a writer of the table must know.

    Spec: "Writer Version Requirements"
    """
    if protocol.min_writer_version >= WRITER_FEATURES_VERSION:
        return frozenset(protocol.writer_features or ()) | reader_features(protocol)
    versions = range(protocol.min_writer_version + 1)
    return frozenset(name for v in versions for name in IMPLIED_BY_WRITER.get(v, ()))


def check_shape(protocol: Protocol, table: str) -> None:
    """Refuse versions that we do not read, and protocol actions that contradict themselves.

    Raises: UnsupportedFeature (`UnsupportedProtocol`).
    Spec: "Protocol Evolution"
    """
    reader, writer = protocol.min_reader_version, protocol.min_writer_version
    if not 1 <= reader <= READER_FEATURES_VERSION:
        raise _refusal(
            table,
            f"asks for reader version {reader}; this release reads up to "
            f"{READER_FEATURES_VERSION}: use a newer release",
        )
    if reader == READER_FEATURES_VERSION and protocol.reader_features is None:
        raise _malformed(table, f"reader version {reader} without readerFeatures")
    if reader < READER_FEATURES_VERSION and protocol.reader_features:
        raise _malformed(table, f"reader version {reader} with readerFeatures")
    if writer >= WRITER_FEATURES_VERSION and protocol.writer_features is None:
        raise _malformed(table, f"writer version {writer} without writerFeatures")
    if writer < WRITER_FEATURES_VERSION and protocol.writer_features:
        raise _malformed(table, f"writer version {writer} with writerFeatures")
    if reader == READER_FEATURES_VERSION and writer < WRITER_FEATURES_VERSION:
        raise _malformed(table, f"reader version {reader} with writer version {writer}")


def _malformed(table: str, what: str) -> UnsupportedFeature:
    return _refusal(table, f"has a malformed protocol: {what}; repair its last protocol action")


def _refusal(table: str, what: str) -> UnsupportedFeature:
    return UnsupportedFeature(
        f"table {table} {what}", feature="protocol", error_class="UnsupportedProtocol"
    )

"""Protocol actions: the features they imply, which are valid, and equivalent forms of one.

A protocol states its features either by versions, which imply *legacy* features, or by lists of
names (*table features*). The same features may have several forms; the functions here convert
between them and keep unknown names.

Spec: "Table Features for New and Existing Tables"
"""

from collections.abc import Iterable, Mapping
from typing import Final

from tidegate_delta.errors import UnsupportedFeature
from tidegate_delta.log.actions import Protocol

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
"""The features that each writer version below 7 adds to the version before.

Spec: "Writer Version Requirements"
"""


LEGACY: Final[Mapping[str, tuple[int, int]]] = {
    name: (COLUMN_MAPPING_READER_VERSION if name == "columnMapping" else 1, version)
    for version, names in IMPLIED_BY_WRITER.items()
    for name in names
}
"""The legacy features, each with the first reader and writer version that imply it.

Spec: "Reader Version Requirements"
"""


def legacy_features(reader_version: int, writer_version: int) -> frozenset[str]:
    """Return the features that a reader and a writer version imply together.

    Spec: "Writer Version Requirements"
    """
    return frozenset(
        name
        for name, (reader, writer) in LEGACY.items()
        if reader <= reader_version and writer <= writer_version
    )


def supported_features(protocol: Protocol) -> frozenset[str]:
    """Return the features that a protocol supports: by its lists, or else by both its versions.

    `writer_features` is stricter: it includes a feature that only one of the versions implies.
    (1,5) does not support column mapping, but its writers must know it.
    Spec: "Supported Features"
    """
    if protocol.min_writer_version >= WRITER_FEATURES_VERSION:
        return frozenset(protocol.writer_features or ()) | frozenset(protocol.reader_features or ())
    return legacy_features(protocol.min_reader_version, protocol.min_writer_version)


def weakest(reading: Iterable[str], writing: Iterable[str]) -> Protocol:
    """Return the protocol with the lowest versions that supports exactly the given features.

    `reading` are reader-writer features; `writing` are writer-only features.
    Law: supported_features(weakest(r, w)) == r | w
    """
    readers = frozenset(reading)
    everything = readers | frozenset(writing)
    if everything <= LEGACY.keys():
        versions = [(1, 1), *(LEGACY[name] for name in everything)]
        reader, writer = max(r for r, _ in versions), max(w for _, w in versions)
        if legacy_features(reader, writer) == everything:
            return Protocol(min_reader_version=reader, min_writer_version=writer)
    native = readers - LEGACY.keys()
    mapped = everything & {"columnMapping"}
    if native:
        return Protocol(
            min_reader_version=READER_FEATURES_VERSION,
            min_writer_version=WRITER_FEATURES_VERSION,
            reader_features=tuple(sorted(native | mapped)),
            writer_features=tuple(sorted(everything)),
        )
    return Protocol(
        min_reader_version=COLUMN_MAPPING_READER_VERSION if mapped else 1,
        min_writer_version=WRITER_FEATURES_VERSION,
        writer_features=tuple(sorted(everything)),
    )


def normalised(protocol: Protocol) -> Protocol:
    """Return the weakest form of a protocol with lists; a protocol without lists stays as it is.

    Law: normalised(normalised(p)) == normalised(p); it supports what p does
    """
    if protocol.min_writer_version != WRITER_FEATURES_VERSION:
        return protocol
    return weakest(protocol.reader_features or (), protocol.writer_features or ())


def denormalised(protocol: Protocol) -> Protocol:
    """Return a protocol without lists in the form with lists; one with lists stays as it is.

    Law: denormalised(denormalised(p)) == denormalised(p); it supports what p does
    """
    if protocol.min_writer_version >= WRITER_FEATURES_VERSION:
        return protocol
    names = supported_features(protocol)
    mapped = "columnMapping" in names
    return Protocol(
        min_reader_version=COLUMN_MAPPING_READER_VERSION if mapped else 1,
        min_writer_version=WRITER_FEATURES_VERSION,
        writer_features=tuple(sorted(names)),
    )


def canonical(protocol: Protocol) -> Protocol:
    """Return the one form, as delta-spark chooses it, of all protocols with the same features.

    Versions higher than the features need are lowered: (2,3) becomes (1,3), (1,5) becomes (1,4).
    Law: canonical(canonical(p)) == canonical(p); it supports what p does
    """
    return normalised(denormalised(protocol))


def merged(first: Protocol, *others: Protocol) -> Protocol:
    """Return the canonical protocol that supports the features of all given protocols.

    Where none has lists, the highest of their versions count together: (1,5) and (2,4) are (2,5).
    Law: supported_features(merged(p, q)) >= supported_features(p) | supported_features(q)
    """
    protocols = (first, *others)
    names = frozenset[str]().union(*(supported_features(protocol) for protocol in protocols))
    reader = max(protocol.min_reader_version for protocol in protocols)
    writer = max(protocol.min_writer_version for protocol in protocols)
    if writer < WRITER_FEATURES_VERSION:
        names |= legacy_features(reader, writer)
    reading = frozenset[str]().union(*(protocol.reader_features or () for protocol in protocols))
    return weakest(reading, names)


def reader_features(protocol: Protocol) -> frozenset[str]:
    """Return the features that a reader of the table must support.

    Spec: "Reader Version Requirements"
    """
    if protocol.min_reader_version >= READER_FEATURES_VERSION:
        return frozenset(protocol.reader_features or ())
    if protocol.min_reader_version == COLUMN_MAPPING_READER_VERSION:
        return frozenset({"columnMapping"})
    return frozenset()


def writer_features(protocol: Protocol) -> frozenset[str]:
    """Return the features that a writer of the table must support.

    Spec: "Writer Version Requirements"
    """
    if protocol.min_writer_version >= WRITER_FEATURES_VERSION:
        return frozenset(protocol.writer_features or ()) | reader_features(protocol)
    versions = range(protocol.min_writer_version + 1)
    return frozenset(name for v in versions for name in IMPLIED_BY_WRITER.get(v, ()))


def shape_fault(protocol: Protocol) -> str | None:
    """Return how a protocol contradicts itself, or None.

    Spec: "Protocol Evolution"
    """
    reader, writer = protocol.min_reader_version, protocol.min_writer_version
    if reader == READER_FEATURES_VERSION and protocol.reader_features is None:
        return f"reader version {reader} without readerFeatures"
    if reader < READER_FEATURES_VERSION and protocol.reader_features:
        return f"reader version {reader} with readerFeatures"
    if writer >= WRITER_FEATURES_VERSION and protocol.writer_features is None:
        return f"writer version {writer} without writerFeatures"
    if writer < WRITER_FEATURES_VERSION and protocol.writer_features:
        return f"writer version {writer} with writerFeatures"
    if reader == READER_FEATURES_VERSION and writer < WRITER_FEATURES_VERSION:
        return f"reader version {reader} with writer version {writer}"
    return None


def check_shape(protocol: Protocol, table: str) -> None:
    """Refuse versions that we do not read, and protocol actions that contradict themselves.

    Raises: UnsupportedFeature (`UnsupportedProtocol`).
    Spec: "Protocol Evolution"
    """
    problem = unreadable(protocol)
    if problem is not None:
        description, remedy = problem
        raise UnsupportedFeature(
            f"table {table} {description}",
            feature="protocol",
            error_class="UnsupportedProtocol",
            remedy=remedy,
        )


def unreadable(protocol: Protocol) -> tuple[str, str] | None:
    """Return why a table with this protocol can't be read and what to do, or None.

    Spec: "Protocol Evolution"
    """
    reader = protocol.min_reader_version
    if not 1 <= reader <= READER_FEATURES_VERSION:
        most = f"this release reads up to {READER_FEATURES_VERSION}"
        return f"asks for reader version {reader}, and {most}", "use a newer release"
    fault = shape_fault(protocol)
    if fault is None:
        return None
    return f"has a malformed protocol: {fault}", "repair its last protocol action"

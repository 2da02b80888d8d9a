"""Protocols from features: the lowest one for a table's metadata, and upgrades and downgrades."""

from collections.abc import Iterable

from tidegate_delta.features.feature import PREVIEWS
from tidegate_delta.features.supported_features import FEATURES, closure
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_delta.log.protocol_versions import denormalised, merged, supported_features, weakest
from tidegate_delta.schema.types import parse_schema


def protocol_for(names: Iterable[str]) -> Protocol:
    """Return the weakest protocol that supports exactly the given features.

    An unknown name is taken to be a writer-only feature.
    Law: supported_features(protocol_for(n)) == frozenset(n)
    Spec: "Table Features for New and Existing Tables"
    """
    features = frozenset(names)
    reading = (name for name in features if name in FEATURES and FEATURES[name].reader_writer)
    return weakest(reading, features)


def self_enabling_features(metadata: Metadata, supported: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the features that metadata adds to a protocol by itself, in the order of FEATURES.

    A feature whose preview is supported is left out. So are features that are used but never add
    themselves, such as column defaults.
    Spec: "Active Features"
    """
    schema = parse_schema(metadata.schema_string)
    previewed = {PREVIEWS[name] for name in supported if name in PREVIEWS}
    return tuple(
        row.name
        for row in FEATURES.values()
        if row.enables_itself and row.name not in previewed and row.is_required(metadata, schema)
    )


def minimum_protocol(metadata: Metadata) -> Protocol:
    """Return the weakest protocol that the metadata allows.

    Law: metadata that uses more has a protocol that supports no less
    Spec: "Table Features for New and Existing Tables"
    """
    return protocol_for(closure(self_enabling_features(metadata)))


def with_features(protocol: Protocol, names: Iterable[str]) -> Protocol:
    """Return a protocol with more features and all that they need; unchanged if it has them.

    Law: it supports what the protocol did
    Spec: "Supported Features"
    """
    supported = supported_features(protocol)
    if closure(names) <= supported:
        return protocol
    return merged(denormalised(protocol), protocol_for(closure(names)))


def without_feature(protocol: Protocol, name: str) -> Protocol:
    """Return the weakest protocol with the same features except one.

    Spec: "Supported Features"
    """
    reading = frozenset(denormalised(protocol).reader_features or ()) - {name}
    return weakest(reading, supported_features(protocol) - {name})


def added_features(before: Protocol, after: Protocol) -> frozenset[str]:
    """Return the features that a change of protocol adds.

    Spec: "Supported Features"
    """
    return supported_features(after) - supported_features(before)


def dropped_features(before: Protocol, after: Protocol) -> frozenset[str]:
    """Return the features that a change of protocol removes.

    Spec: "Supported Features"
    """
    return supported_features(before) - supported_features(after)


def interrupting_features(before: Protocol, after: Protocol) -> tuple[str, ...]:
    """Return, by name, the added features that fail transactions which read the table before.

    The writers of those may not have met what such a feature requires of every file. Unknown
    features are included, because their requirements are unknown.
    Spec: "Supported Features"
    """
    return tuple(
        sorted(
            name
            for name in added_features(before, after)
            if name not in FEATURES or FEATURES[name].fails_concurrent
        )
    )

"""Resolve the definition that a writer asks for: apply directives and defaults.

A writer proposes metadata, perhaps with directives among its properties, and perhaps a protocol.
The resolved definition is what gets committed: directives are applied and removed, features that
the metadata uses are listed with all that they need, and properties that they need are set.

Spec: "Table Features for New and Existing Tables"
"""

from dataclasses import dataclass
from typing import Final

from tidegate_delta.definitions.definition import Definition, Flaw, refuse
from tidegate_delta.definitions.definition_checks import check_definition
from tidegate_delta.definitions.feature_directives import (
    UNKNOWN_FEATURE,
    FeatureDirectives,
    canonical_keys,
    read_directives,
    without_instructions,
)
from tidegate_delta.errors import UnsupportedFeature
from tidegate_delta.features.supported_features import (
    FEATURES,
    check_writable,
    closure,
    protocol_for,
    self_enabling_features,
    with_features,
)
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_delta.log.protocol_versions import (
    COLUMN_MAPPING_READER_VERSION,
    WRITER_FEATURES_VERSION,
    legacy_features,
    merged,
    supported_features,
)
from tidegate_delta.properties import table_properties
from tidegate_delta.properties.table_properties import FEATURE_PREFIX

NEW_TABLE: Final = Protocol(min_reader_version=1, min_writer_version=2)
"""The protocol of a new table that asks for no feature."""

BARE_TABLE: Final = Protocol(min_reader_version=1, min_writer_version=1)
"""The protocol of a new table that ignores defaults."""

_TIMED: Final = frozenset({"catalogManaged", "catalogOwned-preview", "coordinatedCommits-preview"})
"""Features that require in-commit timestamps."""


@dataclass(frozen=True)
class ResolvedDefinition:
    """The definition that a table gets, and the flaws in the request.

    Law: the configuration holds no directive
    """

    definition: Definition
    flaws: tuple[Flaw, ...] = ()


def resolve_definition(
    before: Definition | None, metadata: Metadata, protocol: Protocol | None = None
) -> ResolvedDefinition:
    """Return the definition that a table gets when its writer proposes metadata and a protocol.

    `before` is None for a table that is created. A proposed protocol is kept unchanged if it
    supports everything that is needed.
    Raises: as `parse_schema`.
    """
    directives, flaws = read_directives(metadata.configuration)
    kept = canonical_keys(without_instructions(metadata.configuration))
    plain = metadata.with_(configuration=kept)
    if protocol is not None:
        base = protocol
    elif before is None:
        base = _new_protocol(directives, plain)
    else:
        base = _with_requested_versions(directives, before.protocol)
    base = with_features(base, directives.features)
    needed = self_enabling_features(plain, supported_features(base))
    if before is not None:
        flaws += _by_hand(needed, base)
    resolved = with_features(base, (*supported_features(base), *needed))
    return ResolvedDefinition(Definition(_with_times(plain, resolved), resolved), flaws)


def define_new(metadata: Metadata) -> Definition:
    """Return the definition of a new table: metadata without directives, and the lowest protocol.

    Raises: InvalidRequest for flaws, with delta-spark's error class; UnsupportedFeature for
    metadata that uses, or asks for, a feature we don't write.
    """
    resolved = resolve_definition(None, metadata)
    definition = resolved.definition
    for flaw in resolved.flaws:
        if flaw.rule == UNKNOWN_FEATURE:
            raise UnsupportedFeature(
                f"a table that is to be created asks for what is not known: {flaw}",
                feature=flaw.field.rpartition(FEATURE_PREFIX)[2],
                error_class=flaw.error_class,
            )
    refuse(resolved.flaws, "that is to be created")
    check_writable(definition.protocol, definition.metadata, "that is to be created")
    refuse(check_definition(definition), "that is to be created")
    return definition


def _new_protocol(directives: FeatureDirectives, metadata: Metadata) -> Protocol:
    """Return the protocol of a new table; requested versions never create feature lists."""
    default = BARE_TABLE if directives.ignores_defaults else NEW_TABLE
    reader = directives.reader_version or default.min_reader_version
    writer = directives.writer_version or default.min_writer_version
    implied = legacy_features(min(reader, COLUMN_MAPPING_READER_VERSION), writer)
    if writer >= WRITER_FEATURES_VERSION:
        implied = frozenset()
    needed = self_enabling_features(metadata, directives.features)
    return protocol_for(closure((*implied, *directives.features, *needed)))


def _with_requested_versions(directives: FeatureDirectives, current: Protocol) -> Protocol:
    """Return an existing table's protocol with the requested versions, which never lower it."""
    if directives.reader_version is None and directives.writer_version is None:
        return current
    reader = directives.reader_version or current.min_reader_version
    writer = directives.writer_version or current.min_writer_version
    lists = writer >= WRITER_FEATURES_VERSION
    if not lists:
        reader = min(reader, COLUMN_MAPPING_READER_VERSION)
    requested = Protocol(
        min_reader_version=reader,
        min_writer_version=writer,
        reader_features=() if reader > COLUMN_MAPPING_READER_VERSION else None,
        writer_features=() if lists else None,
    )
    proposed = merged(current, requested)
    return current if supported_features(proposed) == supported_features(current) else proposed


def _by_hand(needed: tuple[str, ...], base: Protocol) -> tuple[Flaw, ...]:
    """Return a flaw for each used feature that an existing table must list by hand first."""
    supported = supported_features(base)
    return tuple(
        Flaw(
            "feature_by_hand",
            "protocol",
            f"does not list the feature {name!r}, which the metadata uses",
            f"add the property 'delta.feature.{name}' with the value 'supported'",
            "DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT",
        )
        for name in needed
        if name not in supported and not FEATURES[name].enables_itself_later
    )


def _with_times(metadata: Metadata, protocol: Protocol) -> Metadata:
    """Return metadata with in-commit timestamps turned on where a supported feature requires them.

    Tables with a commit coordinator require them too.
    """
    key = table_properties.in_commit_timestamps_enabled.key
    if not _TIMED & supported_features(protocol) or metadata.configuration.get(key) == "true":
        return metadata
    return metadata.with_(configuration={**metadata.configuration, key: "true"})

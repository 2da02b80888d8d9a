"""Directives among the properties, which change the protocol and are never stored.

`delta.feature.NAME`, `delta.minReaderVersion`, `delta.minWriterVersion` and
`delta.ignoreProtocolDefaults` change the protocol and are removed from the configuration.

Spec: "Table Features for New and Existing Tables"
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tidegate_delta.definitions.definition import Flaw, configured
from tidegate_delta.features.supported_features import FEATURES
from tidegate_delta.log.protocol_versions import READER_FEATURES_VERSION, WRITER_FEATURES_VERSION
from tidegate_delta.properties.table_properties import (
    ALL,
    CONSTRAINT_PREFIX,
    FEATURE_PREFIX,
    INSTRUCTIONS,
    OLDER,
    UNIVERSAL_PREFIX,
)

_READER, _WRITER, _IGNORES = INSTRUCTIONS
UNKNOWN_FEATURE: Final = "unknown_feature"
"""The name of the rule that an unknown feature name breaks."""

_VERSION: Final = re.compile(r"[+-]?[0-9]{1,10}")
_STATUS: Final = ("supported", "enabled")
_KEYS: Final[Mapping[str, str]] = {
    key.lower(): key for key in (*(prop.key for prop in ALL), *OLDER, *INSTRUCTIONS)
}
_NAMES: Final[Mapping[str, str]] = {name.lower(): name for name in FEATURES}


@dataclass(frozen=True)
class FeatureDirectives:
    """The protocol changes that a configuration asks for.

    `ignores_defaults`: a new table starts without features, not with the legacy defaults.
    """

    features: frozenset[str] = frozenset()
    reader_version: int | None = None
    writer_version: int | None = None
    ignores_defaults: bool = False


def is_directive(key: str) -> bool:
    """Return whether a property is a directive, in any case of letters."""
    name = key.lower()
    return name.startswith(FEATURE_PREFIX) or _KEYS.get(name) in INSTRUCTIONS


def without_instructions(configuration: Mapping[str, str]) -> dict[str, str]:
    """Return a configuration without its directives, as it is stored.

    Law: no key of it is a directive
    Spec: "Change Metadata"
    """
    return {key: text for key, text in configuration.items() if not is_directive(key)}


def canonical_keys(configuration: Mapping[str, str]) -> dict[str, str]:
    """Return a configuration with its keys as delta-spark would store them.

    Keys that begin with `delta.` are matched without regard to case. Names of features and settings
    of other formats become lower case; constraints and all other keys are unchanged.
    Law: canonical_keys(canonical_keys(c)) == canonical_keys(c)
    Spec: "Table Properties"
    """
    return {_canonical(key): text for key, text in configuration.items()}


def read_directives(
    configuration: Mapping[str, str],
) -> tuple[FeatureDirectives, tuple[Flaw, ...]]:
    """Return the directives of a configuration, and the flaws in them."""
    features: set[str] = set()
    versions: dict[str, int] = {}
    flaws: list[Flaw] = []
    for key, text in configuration.items():
        canonical = _canonical(key)
        if canonical.startswith(FEATURE_PREFIX):
            key_flaws = list(_feature_flaws(key, canonical.removeprefix(FEATURE_PREFIX), text))
            flaws += key_flaws
            if not key_flaws:
                features.add(_NAMES[canonical.removeprefix(FEATURE_PREFIX)])
        elif canonical in (_READER, _WRITER):
            key_flaws = list(_version_flaws(key, canonical, text))
            flaws += key_flaws
            if not key_flaws:
                versions[canonical] = int(text)
    reader, writer = versions.get(_READER), versions.get(_WRITER)
    if reader == READER_FEATURES_VERSION and writer not in (None, WRITER_FEATURES_VERSION):
        flaws.append(
            Flaw(
                "features_of_readers_alone",
                configured(_WRITER),
                f"is {writer}, while readers are told of features by reader version {reader}",
                f"ask for writer version {WRITER_FEATURES_VERSION}",
                "DELTA_READ_FEATURE_PROTOCOL_REQUIRES_WRITE",
            )
        )
    ignores = any(
        _canonical(key) == _IGNORES and text.lower() == "true"
        for key, text in configuration.items()
    )
    return FeatureDirectives(frozenset(features), reader, writer, ignores), tuple(flaws)


def _canonical(key: str) -> str:
    name = key.lower()
    if name.startswith((FEATURE_PREFIX, UNIVERSAL_PREFIX)):
        return name
    if not name.startswith("delta.") or name.startswith(CONSTRAINT_PREFIX):
        return key
    return _KEYS.get(name, key)


def _feature_flaws(key: str, name: str, status: str) -> Iterator[Flaw]:
    if status.lower() not in _STATUS:
        yield Flaw(
            "feature_status",
            configured(key),
            f"is {status!r}",
            "say 'supported'",
            "DELTA_UNSUPPORTED_FEATURE_STATUS",
        )
    if name not in _NAMES:
        yield Flaw(
            UNKNOWN_FEATURE,
            configured(key),
            "names a feature that this release has not heard of",
            "correct the name, or use a release that knows it",
            "DELTA_UNSUPPORTED_FEATURES_IN_CONFIG",
        )


def _version_flaws(key: str, canonical: str, text: str) -> Iterator[Flaw]:
    highest = READER_FEATURES_VERSION if canonical == _READER else WRITER_FEATURES_VERSION
    if not _VERSION.fullmatch(text):
        yield Flaw(
            "version_not_a_number",
            configured(key),
            f"is {text!r}",
            f"give a number from 1 to {highest}, or leave it out",
            "DELTA_PROTOCOL_PROPERTY_NOT_INT",
        )
    elif not 1 <= int(text) <= highest:
        yield Flaw(
            "version_out_of_range",
            configured(key),
            f"is {text}",
            f"give a number from 1 to {highest}, or leave it out",
            "DELTA_INVALID_PROTOCOL_VERSION",
        )

"""Whether a feature may be dropped: who uses it still, in the words of its own preconditions."""

from collections.abc import Callable, Mapping, Set
from typing import Final

from tidegate.committer.entries import Entry
from tidegate.delta.actions import Metadata, Protocol
from tidegate.delta.features import activity, row_tracking, timestamps
from tidegate.delta.features.arithmetic import reader_features
from tidegate.delta.schema.mapping import FIELD_ID, PHYSICAL_NAME
from tidegate.delta.schema.types import parse_schema, walk

DROP_FEATURE: Final = "DROP FEATURE"
"""What a commit calls itself that drops one."""

BOUND: Final = "delta.requireCheckpointProtectionBeforeVersion"
"""The property that keeps old checkpoints for those who knew the feature that was dropped."""

Use = Callable[[Metadata], bool]
"""Says whether metadata uses a feature, if only by a trace that it left."""


def _mapping(metadata: Metadata) -> bool:
    schema = parse_schema(metadata.schema_string)
    named = any({FIELD_ID, PHYSICAL_NAME} & one.metadata.keys() for one in walk(schema))
    return named or activity.column_mapping(metadata, schema)


def _widening(metadata: Metadata) -> bool:
    on = metadata.configuration.get("delta.enableTypeWidening", "").lower() == "true"
    return on or activity.type_changes(metadata, parse_schema(metadata.schema_string))


def _timestamps(metadata: Metadata) -> bool:
    schema = parse_schema(metadata.schema_string)
    recorded = any(key in metadata.configuration for key in timestamps.ENABLEMENT)
    return recorded or activity.in_commit_timestamps(metadata, schema)


def _by(active: Callable[..., bool]) -> Use:
    return lambda metadata: active(metadata, parse_schema(metadata.schema_string))


def _row_tracking(metadata: Metadata) -> bool:
    return row_tracking.is_enabled(metadata)


REMOVABLE: Final[Mapping[str, Use]] = {
    "checkConstraints": _by(activity.check_constraints),
    "columnMapping": _mapping,
    "identityColumns": _by(activity.identity_columns),
    "deletionVectors": _by(activity.deletion_vectors),
    "rowTracking": _row_tracking,
    "domainMetadata": lambda metadata: False,
    "v2Checkpoint": _by(activity.v2_checkpoints),
    "typeWidening": _widening,
    "typeWidening-preview": _widening,
    "inCommitTimestamp": _timestamps,
    "vacuumProtocolCheck": lambda metadata: False,
    "checkpointProtection": lambda metadata: BOUND in metadata.configuration,
    "materializePartitionColumns": lambda metadata: False,
}
"""Features that may be dropped, and what in the metadata says that they are in use."""


def needs_history(dropped: Set[str], before: Protocol) -> bool:
    """Return whether earlier versions can't be read without features: keep their checkpoints."""
    return bool(dropped & REMOVABLE.keys() & reader_features(before))


def in_use(dropped: Set[str], metadata: Metadata, winner: Entry | None = None) -> str | None:
    """Return why features can't be dropped from a table with this metadata, or None.

    A winner's files and domains are looked at, too.
    """
    if len(dropped) > 1:
        return f"{len(dropped)} features go at once, of which each may hide another's traces"
    [name] = dropped
    if name not in REMOVABLE:
        return f"the feature {name!r} stays for ever"
    if REMOVABLE[name](metadata):
        return f"the feature {name!r} is in use"
    if winner is not None and name == "deletionVectors" and winner.vectors:
        return f"{min(winner.vectors)!r} has a deletion vector"
    if winner is not None and name == "domainMetadata":
        living = [domain.domain for domain in winner.domains if not domain.removed]
        return f"the metadata domain {living[0]!r} lives" if living else None
    return None

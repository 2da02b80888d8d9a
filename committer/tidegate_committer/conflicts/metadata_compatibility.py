"""Changes of a table's metadata over which a concurrent proposal may be rebased.

The list is delta-spark's: properties that enable a feature without requirements on what was written
before. Every other change must be seen by the writer.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from tidegate_delta.constraints import identity_columns
from tidegate_delta.log.actions import Metadata
from tidegate_delta.schema.column_mapping_assignment import MAPPING_KEYS, MODE
from tidegate_delta.schema.types import StructField, parse_schema


@dataclass(frozen=True)
class MetadataChange:
    """The metadata before and after, and the features that the table supports after."""

    before: Metadata
    after: Metadata
    features: frozenset[str]

    @property
    def maps_names_now(self) -> bool:
        """Whether column mapping was switched on in the mode `name`."""
        return (
            self.before.configuration.get(MODE, "none").lower() == "none"
            and self.after.configuration.get(MODE, "none").lower() == "name"
        )


def conflict_free(
    before: Metadata, after: Metadata, features: frozenset[str], *, may_number: bool = False
) -> str | None:
    """Return a change over which no concurrent proposal can be rebased, or None.

    `may_number` says that the commit claims to move only identity high-water marks.
    """
    if may_number and numbers_only(before, after):
        return None
    change = MetadataChange(before, after, features)
    return changed_field(change) or _changed_property(change) or _changed_schema(change)


def numbers_only(before: Metadata, after: Metadata) -> bool:
    """Return whether only the high-water marks of identity columns changed."""
    unchanged = ("id", "name", "description", "format", "partition_columns", "configuration")
    if any(getattr(before, name) != getattr(after, name) for name in unchanged):
        return False
    if (
        before.schema_string == after.schema_string
        or identity_columns.MARK not in after.schema_string
    ):
        return False
    return bool(_unnumbered(before.schema_string) == _unnumbered(after.schema_string))


def _unnumbered(schema_string: str) -> Any:
    schema = orjson.loads(schema_string)
    for field in schema["fields"]:
        field.get("metadata", {}).pop(identity_columns.MARK, None)
    return schema


def _turned_on(key: str, feature: str) -> Callable[[MetadataChange], bool]:
    def tolerated(change: MetadataChange) -> bool:
        return feature in change.features and change.after.configuration[key].lower() == "true"

    return tolerated


def _new(key: str) -> Callable[[MetadataChange], bool]:
    return lambda change: key not in change.before.configuration


def _rows_are_tracked(change: MetadataChange) -> bool:
    return change.after.configuration.get("delta.enableRowTracking", "").lower() == "true"


def _to_v2_checkpoints(change: MetadataChange) -> bool:
    policy = change.after.configuration["delta.checkpointPolicy"]
    return "v2Checkpoint" in change.features and policy == "v2"


def _to_mapping_by_name(change: MetadataChange) -> bool:
    return "columnMapping" in change.features and change.maps_names_now


def _always(change: MetadataChange) -> bool:
    return True


_ICT: Final = "delta.inCommitTimestampEnablement"

TOLERATED: Final[Mapping[str, Callable[[MetadataChange], bool]]] = {
    "delta.enableDeletionVectors": _turned_on("delta.enableDeletionVectors", "deletionVectors"),
    "delta.checkpointPolicy": _to_v2_checkpoints,
    "delta.enableRowTracking": _turned_on("delta.enableRowTracking", "rowTracking"),
    "delta.rowTracking.materializedRowIdColumnName": _rows_are_tracked,
    "delta.rowTracking.materializedRowCommitVersionColumnName": _rows_are_tracked,
    MODE: _to_mapping_by_name,
    "delta.columnMapping.maxColumnId": _always,
    "delta.enableInCommitTimestamps": _turned_on(
        "delta.enableInCommitTimestamps", "inCommitTimestamp"
    ),
    f"{_ICT}Version": _new(f"{_ICT}Version"),
    f"{_ICT}Timestamp": _new(f"{_ICT}Timestamp"),
    "io.unitycatalog.tableId": _always,
}
"""Property -> whether its addition or change is tolerated."""


SWITCHES: Final[Mapping[str, str | None]] = {
    "delta.enableDeletionVectors": "deletionVectors",
    "delta.enableRowTracking": None,
    "delta.enableInCommitTimestamps": "inCommitTimestamp",
}
"""Boolean property -> the feature without which delta-spark does not read it, if any."""


def neither_on_nor_off(before: Metadata, after: Metadata, features: frozenset[str]) -> str | None:
    """Return a boolean property that may be tolerated but was set to another value, or None."""
    new, old = after.configuration, before.configuration
    changed = {key for key in new if old.get(key) != new[key]}
    if changed_field(MetadataChange(before, after, features)) or not changed <= TOLERATED.keys():
        return None
    if old.keys() - new.keys():
        return None
    switches = {key for key, feature in SWITCHES.items() if feature is None or feature in features}
    changed_switches = sorted(switches & changed)
    unclear = [key for key in changed_switches if new[key].lower() not in ("true", "false")]
    return unclear[0] if unclear else None


def changed_field(change: MetadataChange) -> str | None:
    """Return a changed field of the metadata other than schema and properties, or None."""
    before, after = change.before, change.after
    for name in ("id", "name", "description", "format", "partition_columns", "created_time"):
        if getattr(before, name) != getattr(after, name):
            return f"the table's {name.replace('_', ' ')}"
    return None


def _changed_property(change: MetadataChange) -> str | None:
    before, after = change.before.configuration, change.after.configuration
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) == after.get(key):
            continue
        if key not in after or key not in TOLERATED or not TOLERATED[key](change):
            return f"the property {key!r}"
    return None


def _changed_schema(change: MetadataChange) -> str | None:
    if change.before.schema_string == change.after.schema_string:
        return None
    before = parse_schema(change.before.schema_string)
    after = parse_schema(change.after.schema_string)
    if not change.maps_names_now or len(before) != len(after):
        return "the schema"
    is_same = all(map(_differs_in_mapping_only, before.fields, after.fields))
    return None if is_same else "the schema"


def _differs_in_mapping_only(before: StructField, after: StructField) -> bool:
    keys = before.metadata.keys() | after.metadata.keys()
    changed = {key for key in keys if before.metadata.get(key) != after.metadata.get(key)}
    return (
        changed <= MAPPING_KEYS
        and (before.name, before.nullable) == (after.name, after.nullable)
        and before.kind == after.kind
    )

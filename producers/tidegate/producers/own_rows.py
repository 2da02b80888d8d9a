"""What our own writers can't do to rows, though the gate takes such rows from engines that can.

The table of features says with which tables the gate commits. Some of them ask something of whoever
writes the files, and there our writers stop, by name.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Final

from tidegate.delta.actions import Metadata, Protocol
from tidegate.delta.errors import UnsupportedFeature
from tidegate.delta.features import activity
from tidegate.delta.features.arithmetic import writer_features
from tidegate.delta.features.constraints import expressions, requirements, unenforced
from tidegate.delta.schema.types import StructType, parse_schema

Active = Callable[[Metadata, StructType], bool]

CLUSTERING: Final = "clustering"

_USED: Final[Mapping[str, Active]] = {
    "columnMapping": activity.column_mapping,
    "identityColumns": activity.identity_columns,
    "variantType": activity.variant_type,
}
"""Features that rows must be written for, and what says that a table uses them."""

_NEW: Final[Mapping[str, Active]] = {
    "rowTracking": activity.row_tracking,
    "v2Checkpoint": activity.v2_checkpoints,
}
"""Features of tables that others have to begin."""

_COPIED: Final[Mapping[str, Active]] = {
    "changeDataFeed": activity.change_data_feed,
    "rowTracking": activity.row_tracking,
}
"""Features of tables whose rows do not stay the same rows where we copy them."""


def check_rows(protocol: Protocol, metadata: Metadata, root: str) -> None:
    """Refuse a table whose rows take more than our writers do. Raises: UnsupportedFeature."""
    schema = parse_schema(metadata.schema_string)
    used = [name for name, active in _USED.items() if active(metadata, schema)]
    if CLUSTERING in writer_features(protocol):
        used.append(CLUSTERING)
    _refuse(used, f"{root} has rows", "write it with an engine that does")


def check_new_rows(
    protocol: Protocol, metadata: Metadata, root: str, enforced: Collection[str] = ()
) -> None:
    """Refuse a table that asks of new rows what our writers do not see to, and nobody else did.

    `enforced` are the hashes of what the caller has made sure of.
    Raises: UnsupportedFeature, naming the constraint.
    """
    required = requirements(metadata, protocol)
    if required.defaults:
        _refuse(["allowColumnDefaults"], f"{root} has columns", "write it with an engine that does")
    lacking = unenforced(expressions(required), enforced)
    if lacking:
        raise UnsupportedFeature(
            f"{root} holds new rows to {lacking[0]}, which this writer does not evaluate: do so on "
            "every row and give its hash in the option constraintsEnforced "
            "(`tidegate.delta.features.constraints.hashes`), or write by an engine that does; "
            "nothing was proposed",
            feature="checkConstraints",
        )


def check_copies(protocol: Protocol, metadata: Metadata, root: str) -> None:
    """Refuse to copy rows where a copy is another row: to the change feed, or by its row id.

    Raises: UnsupportedFeature.
    """
    schema, listed = parse_schema(metadata.schema_string), writer_features(protocol)
    used = [name for name, active in _COPIED.items() if name in listed and active(metadata, schema)]
    remedy = "set delta.enableDeletionVectors, or delete by an engine that does"
    _refuse(used, f"{root} has rows that would be copied,", remedy)


def check_new(metadata: Metadata, root: str) -> None:
    """Refuse to begin a table that takes more than we do. Raises: UnsupportedFeature."""
    schema = parse_schema(metadata.schema_string)
    every = {**_USED, **_NEW}
    used = [name for name, active in every.items() if active(metadata, schema)]
    _refuse(used, f"{root} would be a table", "create it with an engine that does")


def _refuse(used: list[str], what: str, remedy: str) -> None:
    if used:
        raise UnsupportedFeature(
            f"{what} for which the feature {used[0]!r} asks more than this writer does: {remedy}; "
            "nothing was proposed",
            feature=used[0],
        )

"""Tables that our own writers refuse, although the committer commits to them for other engines.

Some table features require work of writers of data files that ours don't do. Our writers refuse
such tables and name the feature.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Final

from tidegate_delta.constraints.row_constraints import expressions, requirements, unenforced
from tidegate_delta.errors import UnsupportedFeature
from tidegate_delta.features import active_features
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_delta.log.protocol_versions import writer_features
from tidegate_delta.schema.field_paths import same_name
from tidegate_delta.schema.types import StructType, parse_schema

Active = Callable[[Metadata, StructType], bool]

CLUSTERING: Final = "clustering"

_USED: Final[Mapping[str, Active]] = {
    "columnMapping": active_features.column_mapping,
    "identityColumns": active_features.identity_columns,
    "variantType": active_features.variant_type,
}
"""Features that require work of every writer of rows, each with the test whether a table uses it.
"""

_NEW: Final[Mapping[str, Active]] = {
    "rowTracking": active_features.row_tracking,
    "v2Checkpoint": active_features.v2_checkpoints,
}
"""Further features that our writers do not create tables with."""

_COPIED: Final[Mapping[str, Active]] = {
    "changeDataFeed": active_features.change_data_feed,
    "rowTracking": active_features.row_tracking,
}
"""Features under which our copy-on-write would turn an old row into a new one."""


def check_rows(protocol: Protocol, metadata: Metadata, root: str) -> None:
    """Refuse a table with a feature that our writers lack. Raises: UnsupportedFeature."""
    schema = parse_schema(metadata.schema_string)
    used = [name for name, active in _USED.items() if active(metadata, schema)]
    if CLUSTERING in writer_features(protocol):
        used.append(CLUSTERING)
    _refuse(used, f"{root} has rows", "write it with an engine that does")


def check_new_rows(
    protocol: Protocol,
    metadata: Metadata,
    root: str,
    enforced: Collection[str] = (),
    given: Collection[str] = (),
) -> None:
    """Refuse rows that lack defaults or constraints, which a data source cannot evaluate.

    `enforced` are the hashes of constraints that the caller has evaluated, `given` its columns.
    Raises: UnsupportedFeature, naming the column or constraint.
    """
    required = requirements(metadata, protocol)
    lacks = [
        one for one in required.defaults if not any(same_name(one.column, name) for name in given)
    ]
    if lacks:
        raise UnsupportedFeature(
            f"{root} has the default {lacks[0].expression} for column {lacks[0].column!r}, which "
            "the rows lack and this writer does not compute (feature allowColumnDefaults): write "
            "with Table.append, which does, or add the column; nothing was proposed",
            feature="allowColumnDefaults",
        )
    lacking = unenforced(expressions(required), enforced)
    if lacking:
        raise UnsupportedFeature(
            f"{root} requires {lacking[0]} of new rows, which this writer does not evaluate: write "
            "with Table.append, which does, or evaluate it on every row and give its hash in the "
            "option constraintsEnforced (`tidegate_delta.constraints.row_constraints.hashes`); "
            "nothing was proposed",
            feature="checkConstraints",
        )


def check_copies(protocol: Protocol, metadata: Metadata, root: str) -> None:
    """Refuse to rewrite files if change data feed or row ids would show the copies as new rows.

    Raises: UnsupportedFeature.
    """
    schema, listed = parse_schema(metadata.schema_string), writer_features(protocol)
    used = [name for name, active in _COPIED.items() if name in listed and active(metadata, schema)]
    remedy = "set delta.enableDeletionVectors, or delete with an engine that does"
    _refuse(used, f"{root} has rows that would be copied,", remedy)


def check_new(metadata: Metadata, root: str) -> None:
    """Refuse to create a table with a feature that our writers lack. Raises: UnsupportedFeature."""
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

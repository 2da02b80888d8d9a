"""Whether a change of metaData or protocol is valid: the checks that admission applies.

A change is checked as it would be written, after `resolve_definition`. An existing flaw does not
block a change that does not make it worse.
"""

from collections.abc import Callable, Iterator
from typing import Final

from tidegate_delta.definitions.column_mapping_checks import mapping_change_flaws
from tidegate_delta.definitions.definition import Definition, Flaw, configured
from tidegate_delta.definitions.definition_checks import (
    UNREADABLE,
    check_definition,
    without_wrong_values,
)
from tidegate_delta.definitions.iceberg_compat import iceberg_change_flaws
from tidegate_delta.features.supported_features import FEATURES, added_features, dropped_features
from tidegate_delta.properties import table_properties

ChangeRule = Callable[[Definition, Definition], Iterator[Flaw]]

PROTECTION: Final = "checkpointProtection"

_FROM_THE_START: Final = {
    "catalogManaged": None,
    "catalogOwned-preview": None,
    "adaptiveMetadata-preview": "DELTA_ADAPTIVE_METADATA_UPGRADE_NOT_SUPPORTED",
}
"""Features that can only be enabled at table creation -> delta-spark's error class."""


def check_change(
    before: Definition | None, after: Definition, *, dropping: str | None = None
) -> tuple[Flaw, ...]:
    """Return the flaws of a transaction that changes metaData or protocol.

    `before` is None for a table that is created. `dropping` is the feature of a DROP FEATURE;
    `drop_feature` checks what such a drop requires of files and history.
    Law: check_change(d, d) == ()
    Spec: "Writer Requirements"
    """
    flaws = check_definition(after)
    if before is None:
        return flaws
    known = frozenset(check_definition(before))
    new = [flaw for flaw in flaws if flaw not in known]
    new += _dropped(before, after, dropping)
    if not any(flaw.rule == UNREADABLE for flaw in (*flaws, *known)):
        pair = without_wrong_values(before), without_wrong_values(after)
        new += [flaw for rule in RULES for flaw in rule(*pair)]
    return tuple(new)


def _dropped(before: Definition, after: Definition, dropping: str | None) -> Iterator[Flaw]:
    dropped = dropped_features(before.protocol, after.protocol)
    gained = added_features(before.protocol, after.protocol)
    for name in sorted(dropped - {dropping}):
        yield Flaw(
            "feature_dropped",
            "protocol",
            f"does not list the feature {name!r}, which the table has",
            "keep it, or drop it by DROP FEATURE",
            "DELTA_INVALID_PROTOCOL_DOWNGRADE",
        )
    if dropping is not None and (dropping not in dropped or gained - {PROTECTION}):
        yield Flaw(
            "not_a_drop",
            "protocol",
            f"does more or less than to drop the feature {dropping!r}",
            f"change nothing but {dropping!r} and, where its history is protected, {PROTECTION!r}",
            "DELTA_INVALID_PROTOCOL_DOWNGRADE",
        )


def enabled_from_the_start(before: Definition, after: Definition) -> Iterator[Flaw]:
    """Yield each added feature that can only be enabled at table creation.

    Spec: "Catalog-managed Table Enablement"
    """
    for name in sorted(added_features(before.protocol, after.protocol) & _FROM_THE_START.keys()):
        yield Flaw(
            "feature_for_new_tables",
            "protocol",
            f"adds the feature {name!r} ({FEATURES[name].capability}) to a table that exists",
            "create a table with it and copy the rows",
            _FROM_THE_START[name],
        )


def row_tracking_columns_kept(before: Definition, after: Definition) -> Iterator[Flaw]:
    """Yield each renamed materialised column of row tracking: old files keep the old name.

    Spec: "Row Tracking"
    """
    if not {"rowTracking"} & before.supported & after.supported:
        return
    for column in (table_properties.row_id_column, table_properties.row_commit_version_column):
        old, new = column(before.metadata), column(after.metadata)
        if old is not None and old != new:
            yield Flaw(
                "row_tracking_column_renamed",
                configured(column.key),
                f"changes from {old!r} to {new!r}",
                f"keep {old!r}: files of the table hold the column under that name",
            )


def protection_kept(before: Definition, after: Definition) -> Iterator[Flaw]:
    """Yield a flaw where the version below which checkpoints are protected is lowered.

    Spec: "Metadata Cleanup", except that checkpoint protection is proposed and not yet part of it.
    """
    if PROTECTION in before.supported & after.supported:
        bound = table_properties.checkpoint_protection_version
        old, new = bound(before.metadata), bound(after.metadata)
        if bound.key in after.metadata.configuration and new < old:
            yield Flaw(
                "protection_lowered",
                configured(bound.key),
                f"falls from {old} to {new}",
                f"keep {old}, or drop the feature {PROTECTION!r} once history is truncated",
            )


RULES: Final[tuple[ChangeRule, ...]] = (
    mapping_change_flaws,
    iceberg_change_flaws,
    enabled_from_the_start,
    row_tracking_columns_kept,
    protection_kept,
)
"""Rules for changes, besides the rules for each definition."""

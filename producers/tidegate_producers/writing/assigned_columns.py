"""Names and ids that a writer gives to columns: of column mapping, and of row tracking."""

from collections.abc import Callable
from typing import Final
from uuid import UUID

from tidegate_delta.features import row_tracking
from tidegate_delta.log.actions import Metadata
from tidegate_delta.properties.table_properties import row_commit_version_column, row_id_column
from tidegate_delta.schema.column_mapping_assignment import map_columns, physical_names

_ROW_TRACKING: Final = (
    (row_id_column, "_row-id-col-"),
    (row_commit_version_column, "_row-commit-version-col-"),
)


def assigned(
    before: Metadata | None,
    after: Metadata,
    new_id: Callable[[], UUID],
    *,
    overwrites: bool = False,
) -> Metadata:
    """Return new metadata whose columns have what column mapping and row tracking ask for.

    `before` is None for a new table; `overwrites` says that all files are replaced.
    Raises: InvalidRequest, for a name or a change of mode that the mapping does not allow.
    """
    names = physical_names(iter(new_id, None))
    mapped = map_columns(before, after, names, overwrites=overwrites)
    if not row_tracking.is_enabled(mapped):
        return mapped
    # Files of older versions keep the names that they have.
    configured = {
        column.key: text for column, _ in _ROW_TRACKING if before and (text := column(before))
    }
    mapped = mapped.with_(configuration={**mapped.configuration, **configured})
    configured = row_columns(mapped, new_id)
    return mapped.with_(configuration={**mapped.configuration, **configured})


def row_columns(metadata: Metadata, new_id: Callable[[], UUID]) -> dict[str, str]:
    """Return the properties that name the columns in which moved rows keep their ids, as far as
    none does yet.
    """
    return {
        column.key: f"{prefix}{new_id()}"
        for column, prefix in _ROW_TRACKING
        if not column(metadata)
    }

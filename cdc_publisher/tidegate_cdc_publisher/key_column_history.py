"""The key columns of a stream from version to version: renamed, corrected, or carried on."""

from collections.abc import Callable, Sequence

from tidegate_cdc_publisher.key_columns import (
    PROPERTY,
    KeyColumns,
    carried_over,
    declared_columns,
    key_columns,
    keys_of_order,
)
from tidegate_cdc_publisher.settings import TableChanges
from tidegate_delta.errors import InvalidRequest
from tidegate_delta.log.actions import Metadata
from tidegate_messages.stream_position import Position
from tidegate_runtime.table_io.data_file_reader import schema_of


class DeclaredKeys:
    """The declared key columns of one table. `head` returns the metadata of its newest version.

    `declared` are the names of the declaration, while renamed columns stand for them.
    """

    def __init__(
        self, name: str, changes: TableChanges, head: Callable[[], Metadata | None]
    ) -> None:
        self._name = name
        self._changes = changes
        self._head = head
        self.declared: tuple[str, ...] | None = None

    def resolved(
        self, metadata: Metadata, before: Metadata, position: Position | None
    ) -> KeyColumns:
        """Return the declared key columns. A column that was renamed goes on under its new name; a
        property that was corrected later holds from the version at which the stream stands.

        Raises: InvalidRequest (`KeyColumnsMissing`).
        """
        try:
            keys = key_columns(metadata, self._name, self._changes.key, self._changes.key_columns)
        except InvalidRequest:
            declared = declared_columns(metadata, self._name, self._changes.key_columns)
            renamed = _renamed(declared, metadata, before, position)
            if renamed is not None:
                self.declared = tuple(declared)
                return renamed
            corrected = self._corrected(metadata)
            if corrected is None:
                raise
            keys = corrected
        self.declared = None
        return keys

    def before(
        self, keys: KeyColumns, after: Metadata, before: Metadata, position: Position | None
    ) -> KeyColumns:
        """Return the key columns of the version before one whose key columns are `keys`."""
        if keys is None:
            return None
        if position is not None and position.complete:
            used = keys_of_order(position.order, of_any_rules=True)
            if used is not None and set(used) <= set(schema_of(before).names):
                return used
        try:
            return key_columns(before, self._name, self._changes.key, self._changes.key_columns)
        except InvalidRequest:
            return carried_over(keys, after, before) or keys

    def _corrected(self, metadata: Metadata) -> KeyColumns:
        """Return the columns that the table's property names at the head, as they are named here.

        None if it names none that are here.
        """
        head = self._head() or metadata
        if self._changes.key_columns or head.configuration.get(
            PROPERTY
        ) == metadata.configuration.get(PROPERTY):
            return None
        try:
            keys = key_columns(head, self._name, self._changes.key, ())
        except InvalidRequest:
            return None
        return None if keys is None else carried_over(keys, head, metadata)


def _renamed(
    declared_now: Sequence[str], metadata: Metadata, before: Metadata, position: Position | None
) -> KeyColumns:
    """Return the columns of before under their new names, if they were declared as now."""
    used = keys_of_order(position.order, of_any_rules=True) if position is not None else None
    if position is None or used is None:
        return None
    declared = position.declared or used
    if [name.lower() for name in declared] != [name.lower() for name in declared_now]:
        return None
    return carried_over(used, before, metadata)

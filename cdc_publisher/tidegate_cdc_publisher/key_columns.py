"""The key columns of a table's changes, from the settings or else from a table property."""

from collections.abc import Sequence
from typing import Final, Literal
from urllib.parse import unquote

from tidegate_delta.errors import InvalidRequest
from tidegate_delta.log.actions import Metadata
from tidegate_delta.properties.property import column_list
from tidegate_delta.schema.column_mapping import mode_of, physical_name
from tidegate_delta.schema.types import parse_schema

PROPERTY: Final = "tidegate.cdc.keyColumns"
RULES: Final = 3
"""The number of the ordering rules.

Raise it with any change to the order in which the changes of a version are published.
"""

KeyColumns = tuple[str, ...] | None
"""The key columns; None for a stream declared to have no key."""


def key_columns(
    metadata: Metadata, table: str, key: Literal["columns", "none"], declared: Sequence[str]
) -> KeyColumns:
    """Return the key columns, spelled as in the schema.

    Raises: InvalidRequest (`KeyColumnsMissing`), if none are declared or one does not exist.
    """
    if key == "none":
        return None
    declared_names = declared_columns(metadata, table, declared)
    if not declared_names:
        raise _missing(
            f"table {table} has no key columns, without which updates and deletes can't be "
            f"published; name them with `tidegate table alter {table} --property {PROPERTY}=…`, or "
            f"in the publisher's setting cdc.tables.{table}.key_columns, or declare with "
            f"cdc.tables.{table}.key=none that its changes have no key"
        )
    names = {
        field.name.lower(): field.name for field in parse_schema(metadata.schema_string).fields
    }
    absent = [name for name in declared_names if name.lower() not in names]
    if absent:
        raise _missing(
            f"table {table} has no column {absent[0]!r}, which is to be a key column; it has "
            f"{', '.join(names.values())}: correct the publisher's setting "
            f"cdc.tables.{table}.key_columns if that names it, else the table's property with "
            f"`tidegate table alter {table} --property {PROPERTY}=…`; the stream goes on by itself"
        )
    return tuple(names[name.lower()] for name in declared_names)


def declared_columns(metadata: Metadata, table: str, declared: Sequence[str]) -> list[str]:
    """Return the names that the settings or else the table's property give, as they stand there.

    Raises: InvalidRequest (`KeyColumnsMissing`), for a property that names no columns.
    """
    return list(declared) or _listed(metadata.configuration.get(PROPERTY, ""), table)


def carried_over(keys: Sequence[str], before: Metadata, after: Metadata) -> KeyColumns:
    """Return the names in `after` of columns that are named as in `before`; None if one is gone.

    A renamed column keeps its physical name.
    Spec: "Column Mapping"
    """
    old, new = _physical(before), {name: field for field, name in _physical(after).items()}
    new_names = [new.get(old.get(name, "")) for name in keys]
    return None if None in new_names else tuple(name for name in new_names if name is not None)


def keys_of_order(order: str, *, of_any_rules: bool = False) -> KeyColumns:
    """Return the key columns that an ordering names, or None if it names none for certain.

    Law: keys_of_order(order_of(keys)) == keys
    """
    rules, _, names = order.partition(":")
    is_known = of_any_rules or rules == str(RULES)
    return tuple(map(unquote, names.split(","))) if is_known and names not in ("", "-") else None


def _physical(metadata: Metadata) -> dict[str, str]:
    mode = mode_of(metadata)
    fields = parse_schema(metadata.schema_string).fields
    return {field.name: physical_name(field, mode) for field in fields}


def is_asked_for(metadata: Metadata, declared: Sequence[str]) -> bool:
    """Return whether key columns are configured; without any, nobody has asked for the changes."""
    return bool(declared or metadata.configuration.get(PROPERTY))


def order_of(keys: KeyColumns) -> str:
    """Return the name of the ordering of a version's changes; it depends on the key columns."""
    if keys is None:
        return f"{RULES}:-"
    names = (name.replace("%", "%25").replace(",", "%2C") for name in keys)
    return f"{RULES}:" + ",".join("%2D" if name == "-" else name for name in names)


def _listed(text: str, table: str) -> list[str]:
    try:
        paths = column_list(text)
    except ValueError as error:
        raise _missing(f"table {table}: property {PROPERTY}: {error}; set it again") from error
    nested = [path for path in paths if len(path) > 1]
    if nested:
        raise _missing(
            f"table {table}: property {PROPERTY} names the nested column {'.'.join(nested[0])}; "
            "key columns are columns of the table itself"
        )
    return [path[0] for path in paths]


def _missing(message: str) -> InvalidRequest:
    return InvalidRequest(message, error_class="KeyColumnsMissing")

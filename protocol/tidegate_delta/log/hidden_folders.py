"""Which files and folders of a table's root hold no data of the table."""

from collections.abc import Collection
from urllib.parse import unquote

_SHOWN = ("_change_data", "_delta_index")


def is_hidden(name: str, partition_columns: Collection[str]) -> bool:
    """Return whether a file or folder of this name, anywhere below the root, is none of the table.

    Names that begin with `_` or `.` are hidden, except change data, indexes, and the folders of
    partition columns whose names begin so.

    Spec: "Data Files"
    """
    if not name.startswith(("_", ".")) or name.startswith(_SHOWN):
        return False
    column, equals, _ = name.partition("=")
    return not (equals and unquote(column) in partition_columns)

"""Merges the records of a batch into a table by their keys.

The rule: of the records of a key in a batch, the last one counts; it replaces, makes or deletes
the key's row. Last is the largest value of `order_by`, and among equal ones, or without it, the
largest offset. A tombstone has no such value, and comes behind the records before it.

With `order_by`, a record below the value that the row has is late and changes nothing; one that is
equal replaces it, so that a repeated record changes nothing else. A deleted row keeps no order: a
late record makes it again.
"""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from tidegate_producers.ingest.record_decoding import DELETED
from tidegate_producers.ingest.settings import OWN_PREFIX, Route
from tidegate_producers.table.table import Table
from tidegate_producers.table.target_frame import quoted

_ORDER: Final = f"{OWN_PREFIX}order"
_RANK: Final = f"{OWN_PREFIX}rank"
_TARGET: Final = "t"
_SOURCE: Final = "s"


def last_of_keys(rows: DataFrame, route: Route) -> DataFrame:
    """Return the last record of each key."""
    order = [F.col(f"{OWN_PREFIX}offset").desc(), F.col(f"{OWN_PREFIX}partition").desc()]
    keys = [F.col(quoted(name)) for name in route.key]
    if route.order_by is not None:
        value = F.col(quoted(route.order_by))
        before = Window.partitionBy(*keys).orderBy(f"{OWN_PREFIX}offset")
        rows = rows.withColumn(_ORDER, F.coalesce(value, F.max(value).over(before)))
        order.insert(0, F.col(_ORDER).desc_nulls_last())
    ranked = rows.withColumn(_RANK, F.row_number().over(Window.partitionBy(*keys).orderBy(*order)))
    return ranked.where(F.col(_RANK) == 1)


def upserted(table: Table, rows: DataFrame, columns: list[str], route: Route) -> int | None:
    """Merge rows into a table by the key of a route, and return the new version.

    Raises: as `Table.merge`.
    """
    last = last_of_keys(rows, route).select(*(F.col(quoted(name)) for name in columns), DELETED)
    source = {name: f"{_SOURCE}.{quoted(name)}" for name in columns}
    by_key = " AND ".join(f"{_TARGET}.{quoted(name)} = {source[name]}" for name in route.key)
    named = {quoted(name): value for name, value in source.items()}
    deletes = f"{_SOURCE}.{DELETED}"
    merge = table.alias(_TARGET).merge(last.alias(_SOURCE), by_key)
    if route.order_by is None:
        merge = merge.whenMatchedDelete(deletes).whenMatchedUpdate(set=named)
    else:
        old = f"{_TARGET}.{quoted(route.order_by)}"
        is_due = f"({old} IS NULL OR {source[route.order_by]} >= {old})"
        # A tombstone has no order: it comes when it comes.
        goes = f"{deletes} AND ({is_due} OR {source[route.order_by]} IS NULL)"
        merge = merge.whenMatchedDelete(goes)
        merge = merge.whenMatchedUpdate(f"NOT {deletes} AND {is_due}", named)
    return merge.whenNotMatchedInsert(f"NOT {deletes}", named).execute()

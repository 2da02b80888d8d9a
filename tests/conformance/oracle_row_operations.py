"""Operations on rows of a table of any kind, by a winner or by the transaction.

Each does what a writer would do that knows the table.
"""

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.conformance.oracle_tables import BEGIN_MS, FEED, VECTORS, Table, domain, removal
from tests.conformance.oracle_vectors import Row

DELETED: Final = ("ab^-aqEH.-t@S}K{vb[*k^", "ab^-aqEH.-t@S}K{vb[*k#", "vBn[lx{q8@P<9BNH/isA")


@dataclass(frozen=True)
class Doing:
    """A transaction: its operation, its actions and its reads. `ast` is its scan."""

    name: str
    rows: Sequence[Row] = ()
    ast: Row | None = None
    whole: bool = False
    dynamic: bool = False
    by_path: Sequence[str] = ()
    app_ids: Sequence[str] = ()
    mode: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    feature: str | None = None

    @property
    def is_blind(self) -> bool:
        """Whether it read nothing and only adds files."""
        files = {kind for row in self.rows for kind in row} & {"remove", "cdc"}
        return not (self.ast or self.whole or self.by_path or self.dynamic or files)


def _in(table: Table, place: str | None) -> Row:
    """Return a partition's predicate, or one on some rows if there are no partitions."""
    if not table.keys:
        return {"op": ">=", "column": ["x"], "value": 50, "type": "integer"}
    if place is None:
        return {"op": "is_null", "column": ["p"]}
    return {"op": "=", "column": ["p"], "value": int(place), "type": "integer"}


def _some(table: Table, place: str | None) -> Row | None:
    result = table.near(place if table.keys else None)
    return table.random.choice(result) if result else None


def appends(table: Table, place: str | None) -> Doing:
    """Append rows, perhaps with tags."""
    tags = {"tags": {"INSERTION_TIME": "1700000000000000"}} if table.random.random() < 0.2 else {}
    rows = [{"add": table.file(place, **tags)} for _ in range(table.random.choice((1, 1, 2)))]
    return Doing("WRITE", rows, mode="Append")


def numbers(table: Table, place: str | None) -> Doing:
    """Append rows with identity values, which moves the column's high-water mark."""
    about = table.fields[0]["metadata"]
    if "delta.identity.start" not in about:
        return appends(table, place)
    metadata = table.metadata
    fields = copy.deepcopy(table.fields)
    fields[0]["metadata"]["delta.identity.highWaterMark"] += table.random.choice((1, 10))
    metadata["schemaString"] = json.dumps({"type": "struct", "fields": fields})
    tags = {"delta.identity.schemaUpdate": "true"}
    return Doing("WRITE", [{"metaData": metadata}, {"add": table.file(place)}], tags=tags)


def streams(table: Table, place: str | None) -> Doing:
    """Append a stream's batch after reading its last txn version."""
    app = table.random.choice(("a", "b"))
    txn = {"appId": app, "version": table.version + 5, "lastUpdated": BEGIN_MS}
    return Doing(
        "STREAMING UPDATE", [{"txn": txn}, {"add": table.file(place)}], app_ids=[app], mode=None
    )


def selects(table: Table, place: str | None) -> Doing:
    """Append rows computed from a partition."""
    return Doing("WRITE", [{"add": table.file(place)}], _in(table, place), mode="Append")


def deletes(table: Table, place: str | None) -> Doing:
    """Remove a whole file."""
    file = _some(table, place)
    return Doing("DELETE", [] if file is None else [removal(file)], _in(table, place))


def updates(table: Table, place: str | None) -> Doing:
    """Rewrite a file, with change files if the table has a change feed."""
    file = _some(table, place)
    name = table.random.choice(("UPDATE", "MERGE"))
    if file is None:
        return Doing(name, [], _in(table, place))
    rows: list[Row] = [removal(file), {"add": table.file(place)}]
    if table.own.get(FEED) == "true":
        change = {"path": f"_change_data/c{table.count}", "size": 9, "dataChange": False}
        rows.append({"cdc": {**change, "partitionValues": file["partitionValues"]}})
    return Doing(name, rows, _in(table, place))


def deletes_rows(table: Table, place: str | None) -> Doing:
    """Delete rows of a file by a deletion vector."""
    file = _some(table, place)
    if file is None or table.own.get(VECTORS) != "true" or "deletionVector" in file:
        return deletes(table, place)
    wide = json.dumps({**json.loads(file["stats"]), "tightBounds": False})
    vector = {"storageType": "u", "pathOrInlineDv": table.random.choice(DELETED), "offset": 1}
    vector.update(sizeInBytes=36, cardinality=1)
    add = {**file, "deletionVector": vector, "stats": wide, "dataChange": True}
    rows: list[Row] = [removal(file), {"add": add}]
    if table.random.random() < 0.3:
        rows.append({"add": table.file(place)})
    return Doing(table.random.choice(("DELETE", "UPDATE", "MERGE")), rows, _in(table, place))


def compacts(table: Table, place: str | None) -> Doing:
    """Compact files; no row changes."""
    name = table.random.choice(("OPTIMIZE", "OPTIMIZE", "REORG"))
    files = table.near(place if table.keys else None)[:2]
    if not files:
        return Doing(name, [], _in(table, place))
    more: Row = {"dataChange": False}
    if "delta.clustering" in table.domains:
        more["clusteringProvider"] = "liquid"
        more["tags"] = {"ZCUBE_ID": "u", "ZCUBE_ZORDER_BY": '["x"]'}
    rows = [
        *(removal(file, dataChange=False) for file in files),
        {"add": table.file(place, **more)},
    ]
    by_path = [file["path"] for file in files] if table.random.random() < 0.5 else []
    return Doing(name, rows, None if by_path else _in(table, place), by_path=by_path)


def counts(table: Table, place: str | None) -> Doing:
    """Compute the statistics of files again."""
    files = table.near(place if table.keys else None)[:2]
    return Doing(
        "COMPUTE STATS",
        [{"add": {**file, "dataChange": False}} for file in files],
        _in(table, place),
    )


def restores(table: Table, place: str | None) -> Doing:
    """Add a removed file and remove an added one, with the table's protocol and metadata."""
    file = _some(table, place)
    back = [{"add": {**item, "dataChange": True}} for item in list(table.gone.values())[:1]]
    back = [one for one in back if one["add"]["path"] not in table.files]
    rows = [{"metaData": table.metadata}, {"protocol": table.protocol}, *back]
    if file is not None:
        rows.append(removal(file))
    return Doing("RESTORE", rows, whole=table.random.random() < 0.5)


def overwrites(table: Table, place: str | None) -> Doing:
    """Overwrite a partition by predicate or dynamically, or the whole table."""
    files = table.near(place if table.keys else None)
    rows = [*map(removal, files), {"add": table.file(place)}]
    drawn = table.random.random()
    if table.keys == ["p"] and drawn < 0.4:
        same = {"op": "<=>", "column": ["p"], "type": "integer"}
        ast = {**same, "value": None if place is None else int(place)}
        return Doing("WRITE", rows, ast, dynamic=True, mode="Overwrite")
    if drawn < 0.8:
        return Doing("WRITE", rows, _in(table, place), mode="Overwrite")
    rows = [*map(removal, table.files.values()), {"add": table.file(place)}]
    return Doing("WRITE", rows, {"op": "true"}, mode="Overwrite")


def replaces(table: Table, place: str | None) -> Doing:
    """Replace the table, with another definition."""
    metadata = table.metadata
    metadata["configuration"] = {**table.own, "acme.owner": "you"}
    rows = [{"metaData": metadata}, *map(removal, table.files.values()), {"add": table.file(place)}]
    if "delta.clustering" in table.domains and table.random.random() < 0.5:
        rows.append(domain("delta.clustering", json.dumps({"clusteringColumns": [["id"]]})))
    name = table.random.choice(("REPLACE TABLE AS SELECT", "CREATE OR REPLACE TABLE AS SELECT"))
    return Doing(name, rows, whole=table.random.random() < 0.3)

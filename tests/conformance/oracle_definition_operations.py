"""Operations on a table's definition: columns, properties, features, row ids and domains."""

import copy
import json

from tests.conformance.oracle_row_operations import Doing, counts
from tests.conformance.oracle_tables import (
    IDS,
    MAPPING,
    NAMES,
    SUSPENDED,
    TIMED,
    TRACKS,
    VECTORS,
    Table,
    domain,
)
from tests.conformance.oracle_tables import field as column
from tests.conformance.oracle_vectors import Row


def changes_columns(table: Table, place: str | None) -> Doing:
    """Add, drop, rename, widen or comment on a column, or make it nullable."""
    metadata, fields = table.metadata, copy.deepcopy(table.fields)
    kind, about = table.random.choice(("ADD", "COMMENT", "WIDEN", "RENAME", "DROP")), {}
    is_mapped = f"{MAPPING}mode" in table.own
    if is_mapped:
        last = int(table.own[f"{MAPPING}maxColumnId"]) + 1
        about = {f"{MAPPING}id": last, f"{MAPPING}physicalName": "col-new"}
    name = "CHANGE COLUMN"
    if kind == "WIDEN" and "delta.enableTypeWidening" in table.own:
        change: Row = {"fromType": fields[1]["type"], "toType": "long"}
        if table.has("typeWidening-preview"):
            change["tableVersion"] = table.version + 1
        fields[1]["type"] = "long"
        fields[1]["metadata"].setdefault("delta.typeChanges", []).append(change)
        if fields[2]["name"] == "n":
            inner = dict(change, fromType="short", toType="integer", fieldPath="element")
            within = fields[2]["type"]["fields"][1]["type"]["elementType"]["fields"][0]
            within["type"] = "integer"
            within["metadata"]["delta.typeChanges"] = [
                {key: one for key, one in inner.items() if key != "fieldPath"}
            ]
    elif kind == "RENAME" and is_mapped:
        fields[-2]["name"], name = f"{fields[-2]['name']}2", "RENAME COLUMN"
    elif kind == "DROP" and is_mapped:
        fields, name = [field for field in fields if field["name"] != "s"], "DROP COLUMNS"
    elif kind == "COMMENT":
        fields[1]["metadata"]["comment"] = "new"
    else:
        fields.append(column("y", "string", **about))
        name = "ADD COLUMNS"
        if is_mapped:
            metadata["configuration"][f"{MAPPING}maxColumnId"] = str(last)
    metadata["schemaString"] = json.dumps({"type": "struct", "fields": fields})
    return Doing(name, [{"metaData": metadata}])


def enables(table: Table, place: str | None) -> Doing:
    """Enable a property; other transactions can mostly be rebased over it."""
    result: list[dict[str, str]] = [{"io.unitycatalog.tableId": "u"}]
    if table.has("deletionVectors"):
        result.append({VECTORS: "true"})
    if table.has("v2Checkpoint"):
        result.append({"delta.checkpointPolicy": "v2"})
    if table.tracks and all(IDS[0] in file for file in table.files.values()):
        result += [{TRACKS: "true", **NAMES}] * 2
    if table.has("inCommitTimestamp") and TIMED not in table.own:
        result += [{TIMED: "true"}] * 2
    if table.has("rowTracking") and TRACKS not in table.own:
        result.append({SUSPENDED: "true"})
    if table.random.random() < 0.15:
        result = [{"acme.owner": "you"}, {"delta.appendOnly": "false"}, {TIMED: "false"}]
    metadata = table.metadata
    metadata["configuration"] = {**table.own, **table.random.choice(result)}
    return Doing("SET TBLPROPERTIES", [{"metaData": metadata}])


def maps_names(table: Table, place: str | None) -> Doing:
    """Enable column mapping by name with the present names."""
    if f"{MAPPING}mode" in table.own or not (
        table.has("columnMapping") or (table.features is None and table.legacy[1] > 4)
    ):
        return enables(table, place)
    after, features = copy.deepcopy(table), table.features
    after.map_names(again=False)
    after.features = features
    return Doing("SET TBLPROPERTIES", [{"metaData": after.metadata}])


def upgrades(table: Table, place: str | None) -> Doing:
    """Add a feature, or raise a protocol version."""
    after = copy.deepcopy(table)
    if table.features is None and table.random.random() < 0.5:
        after.legacy = table.random.choice(((1, 4), (2, 5), (2, 6)))
    else:
        after.support(
            table.random.choice(
                ("rowTracking", "inCommitTimestamp", "deletionVectors", "v2Checkpoint",
                 "columnMapping", "domainMetadata", "changeDataFeed", "vacuumProtocolCheck",
                 "typeWidening", "checkConstraints", "timestampNtz", "checkpointProtection")
            )
        )  # fmt: skip
    rows: list[Row] = [{"protocol": after.protocol}]
    if table.random.random() < 0.3 and after.has("deletionVectors"):
        after.own[VECTORS] = "true"
        rows.append({"metaData": after.metadata})
    return Doing("UPGRADE PROTOCOL", rows)


def drops(table: Table, place: str | None) -> Doing:
    """Drop a feature."""
    if not table.features:
        return enables(table, place)
    gone = table.random.choice(sorted(table.features - {"appendOnly", "invariants"}) or [""])
    after = copy.deepcopy(table)
    assert after.features is not None
    after.features.discard(gone)
    rows: list[Row] = [{"protocol": after.protocol}]
    if table.has("checkpointProtection") and table.random.random() < 0.6:
        bound = {"delta.requireCheckpointProtectionBeforeVersion": str(table.version + 1)}
        after.own.update(bound)
        rows.insert(0, {"metaData": after.metadata})
    return Doing("DROP FEATURE", rows, feature=gone)


def backfills(table: Table, place: str | None) -> Doing:
    """Assign row ids to files without any."""
    if not table.tracks:
        return counts(table, place)
    bare = [file for file in table.files.values() if IDS[0] not in file]
    rows = [{"add": {**item, "dataChange": False}} for item in bare]
    return Doing("ROW TRACKING BACKFILL", rows, by_path=[one["path"] for one in bare])


def unbackfills(table: Table, place: str | None) -> Doing:
    """Remove the files' row ids."""
    if not table.has("rowTracking") or table.own.get(SUSPENDED) != "true":
        return counts(table, place)
    rows = [
        {
            "add": {
                **{key: result for key, result in file.items() if key not in IDS},
                "dataChange": False,
            }
        }
        for file in table.files.values()
        if IDS[0] in file
    ]
    paths = [row["add"]["path"] for row in rows]
    return Doing("ROW TRACKING UNBACKFILL", rows, by_path=paths)


def clusters(table: Table, place: str | None) -> Doing:
    """Change the clustering, or end it."""
    if not table.has("clustering"):
        return set_domain(table, place)
    result = json.dumps({"clusteringColumns": table.random.choice(([["id"]], []))})
    return Doing("CLUSTER BY", [domain("delta.clustering", result)])


def set_domain(table: Table, place: str | None) -> Doing:
    """Set a metadata domain, or remove it."""
    if not table.has("domainMetadata"):
        return Doing(table.random.choice(("VACUUM START", "VACUUM END", "Empty Commit")))
    name = table.random.choice(("acme.a", "acme.b"))
    rows = [domain(name, '{"k": 1}', removed=table.random.random() < 0.3)]
    if table.random.random() < 0.4:
        rows.append({"add": table.file(place)})
    return Doing("X", rows)

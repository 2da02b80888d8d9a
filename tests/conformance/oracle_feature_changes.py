"""Changes of a case that concern features which are updated when rebasing over a winner.

These are row ids, timestamps, type widening, identity values, column mapping, clustering and
checkpoint protection.
"""

import copy
import json
from collections.abc import Mapping
from random import Random
from typing import Final

from tests.conformance.oracle_table_changes import LEVEL, LEVELS, list_features
from tests.conformance.oracle_vectors import Case, Pool, Row, add_action, everywhere, rows_of

MAPPING: Final = "delta.columnMapping."
NUMBERED: Final = "delta.identity."
ENABLEMENT: Final = "delta.inCommitTimestampEnablement"
BOUND: Final = "delta.requireCheckpointProtectionBeforeVersion"
NAMES: Final = {
    "delta.rowTracking.materializedRowIdColumnName": "_r",
    "delta.rowTracking.materializedRowCommitVersionColumnName": "_c",
}


def numbered(pool: Pool, random: Random, case: Case) -> None:
    """Give the transaction's files row ids and versions of their own, above and below the mark."""
    for add in rows_of([case["actions"]], "add"):
        if random.random() < 0.6:
            add["baseRowId"] = random.choice((0, 5, 10, 39, 40, 50, 1000))
        if random.random() < 0.6:
            add["defaultRowCommitVersion"] = case["read_version"] + random.choice((-1, 0, 1, 2, 3))
            add["defaultRowCommitVersion"] = max(0, add["defaultRowCommitVersion"])


def marked(pool: Pool, random: Random, case: Case) -> None:
    """Let winners raise the row id high-water mark, or leave it out."""
    list_features(case, {"rowTracking", "domainMetadata"})
    for rows in case["winners"]:
        if random.random() < 0.6:
            result = json.dumps({"rowIdHighWaterMark": random.choice((39, 49, 59, 200))})
            domain = {"domain": "delta.rowTracking", "configuration": result, "removed": False}
            add_action(rows, {"domainMetadata": domain})


def backfilled(pool: Pool, random: Random, case: Case) -> None:
    """Let a winner, or the transaction, backfill row ids of the table's files."""
    list_features(case, {"rowTracking", "domainMetadata"})
    live = [copy.deepcopy(add) for add in rows_of(case["table"]["base"], "add")]
    files = random.sample(live, random.randint(0, len(live)))
    name = random.choice(("BACKFILL", "BACKFILL", "UNBACKFILL"))
    is_own = random.random() < 0.5
    for at, add in enumerate(files):
        add.update(dataChange=False)
        if name == "BACKFILL" and not is_own:
            add.update(baseRowId=at * 10, defaultRowCommitVersion=case["read_version"] + 1)
    rows = [{"add": add} for add in {add["path"]: add for add in files}.values()]
    if is_own:
        case["actions"] = rows
        case["operation"] = {"name": f"ROW TRACKING {name}", "parameters": {}}
        return
    info = {"timestamp": 1_700_000_400_000, "operation": f"ROW TRACKING {name}"}
    result = json.dumps({"rowIdHighWaterMark": 10 * len(files) - 1})
    mark = {"domain": "delta.rowTracking", "configuration": result, "removed": False}
    _win(random, case, {"commitInfo": {**info, "operationParameters": {}, "isBlindAppend": False}},
         *rows, {"domainMetadata": mark})  # fmt: skip


def enables(pool: Pool, random: Random, case: Case) -> None:
    """Let a winner, or the transaction, enable something over which others may be rebased."""
    features = set(case["table"]["protocol"].get("writerFeatures", ()))
    metadata = copy.deepcopy(case["table"]["metaData"])
    own = metadata["configuration"]
    kind = random.choice(("tracking", "tracking", "times", "times", "vectors", "checkpoints"))
    needed = {"tracking": {"rowTracking", "domainMetadata"}, "times": {"inCommitTimestamp"},
              "vectors": {"deletionVectors"}, "checkpoints": {"v2Checkpoint"}}[kind]  # fmt: skip
    if kind == "tracking":
        own["delta.enableRowTracking"] = "true"
        own.update(NAMES if random.random() < 0.8 else {})
    elif kind == "times":
        own["delta.enableInCommitTimestamps"] = "true"
        if random.random() < 0.6:
            own[f"{ENABLEMENT}Version"] = str(case["read_version"] + 1)
            own[f"{ENABLEMENT}Timestamp"] = "1700000400000"
    elif kind == "vectors":
        own["delta.enableDeletionVectors"] = "true"
    else:
        own["delta.checkpointPolicy"] = "v2"
    if not needed <= features and random.random() < 0.8:
        list_features(case, needed)
    is_own = random.random() < 0.5
    rows: list[Row] = [{"metaData": metadata}]
    if is_own:
        case["actions"] = [row for row in case["actions"] if "metaData" not in row] + rows
        return
    info: Row = {"timestamp": 1_700_000_400_000, "operation": "SET TBLPROPERTIES"}
    info.update(operationParameters={}, isBlindAppend=random.random() < 0.5)
    if kind == "times":
        info["inCommitTimestamp"] = 1_700_000_400_000
    _win(random, case, {"commitInfo": info}, *rows)


def maps_names(pool: Pool, random: Random, case: Case) -> None:
    """Let a winner map columns by name, and perhaps change more."""
    metadata = copy.deepcopy(case["table"]["metaData"])
    if f"{MAPPING}mode" in metadata["configuration"]:
        return
    protocol = case["table"]["protocol"]
    if "columnMapping" not in protocol.get("writerFeatures", ("columnMapping",)):
        return
    for item in everywhere(case, "protocol"):
        if "writerFeatures" not in item:
            item.update(minReaderVersion=2, minWriterVersion=max(5, item["minWriterVersion"]))
    schema = json.loads(metadata["schemaString"])
    for at, field in enumerate(schema["fields"]):
        if random.random() < 0.97:
            field["metadata"][f"{MAPPING}id"] = at + 1
            field["metadata"][f"{MAPPING}physicalName"] = field["name"]
        if random.random() < 0.05:
            field["metadata"]["comment"] = "new"
        if random.random() < 0.05:
            field["metadata"]["parquet.field.id"] = at + 1
        if random.random() < 0.03:
            field["nullable"] = not field["nullable"]
    metadata["schemaString"] = json.dumps(schema)
    metadata["configuration"][f"{MAPPING}mode"] = random.choice(("name", "name", "name", "id"))
    metadata["configuration"][f"{MAPPING}maxColumnId"] = str(len(schema["fields"]))
    _win(random, case, _info("SET TBLPROPERTIES"), {"metaData": metadata})


def counts(pool: Pool, random: Random, case: Case) -> None:
    """Add an identity column to the table; some commits move its high-water mark."""
    list_features(case, {"identityColumns"})
    for metadata in everywhere(case, "metaData"):
        schema = json.loads(metadata["schemaString"])
        field = schema["fields"][0]
        field["type"] = "long"
        field["metadata"].update({
            f"{NUMBERED}start": 1, f"{NUMBERED}step": 1, f"{NUMBERED}allowExplicitInsert": True,
        })  # fmt: skip
        metadata["schemaString"] = json.dumps(schema)
    for _ in range(random.choice((1, 1, 2))):
        metadata = copy.deepcopy(case["table"]["metaData"])
        schema = json.loads(metadata["schemaString"])
        schema["fields"][0]["metadata"][f"{NUMBERED}highWaterMark"] = random.randint(1, 50)
        metadata["schemaString"] = json.dumps(schema)
        if random.random() < 0.3:
            add_action(case["actions"], {"metaData": metadata})
            continue
        info = _info("WRITE")
        if random.random() < 0.85:
            info["commitInfo"]["tags"] = {"delta.identity.schemaUpdate": "true"}
        _win(random, case, info, {"metaData": metadata})


def widens(pool: Pool, random: Random, case: Case) -> None:
    """Let the transaction, or the table before it, have a widened column."""
    feature = random.choice(("typeWidening", "typeWidening", "typeWidening-preview"))
    list_features(case, {feature})
    for protocol in everywhere(case, "protocol"):
        readers = sorted({*protocol.get("readerFeatures", ()), feature})
        protocol.update(minReaderVersion=3, readerFeatures=readers)
    for metadata in everywhere(case, "metaData"):
        if random.random() < 0.95:
            metadata.setdefault("configuration", {})["delta.enableTypeWidening"] = "true"
    metadata = copy.deepcopy(case["table"]["metaData"])
    schema = json.loads(metadata["schemaString"])
    fields = [item for item in schema["fields"] if item["type"] == "integer"]
    partitions = metadata["partitionColumns"]
    fields = [field for field in fields if field["name"] not in partitions] or fields
    if not fields:
        return
    field = random.choice(fields)
    field["type"] = "long"
    changes: list[Row] = [{"toType": "long", "fromType": "integer"}]
    if random.random() < 0.3:
        changes.insert(0, {"toType": "integer", "fromType": "short"})
    for change in changes:
        if random.random() < 0.9:
            change["tableVersion"] = max(
                0, case["read_version"] + random.choice((-1, 0, 1, 1, 2, 3))
            )
    field["metadata"]["delta.typeChanges"] = changes
    metadata["schemaString"] = json.dumps(schema)
    row: Row = {"metaData": metadata}
    add_action(
        case["actions"]
        if random.random() < 0.85
        else random.choice([case["actions"], *case["winners"]]),
        row,
    )


def clusters(pool: Pool, random: Random, case: Case) -> None:
    """Let a commit change the clustering, or end it; the transaction may replace the table."""
    list_features(case, {"clustering", "domainMetadata"})
    for _ in range(random.choice((1, 1, 2))):
        result = json.dumps({"clusteringColumns": random.choice(([["x"]], []))})
        domain: Row = {"domain": "delta.clustering", "configuration": result}
        domain["removed"] = random.random() < 0.2
        rows = case["actions"] if random.random() < 0.3 else None
        row: Row = {"domainMetadata": domain}
        if rows is None:
            _win(random, case, _info("CLUSTER BY"), row)
        else:
            add_action(rows, row)
    if random.random() < 0.7:
        name = random.choice(("REPLACE TABLE", "CREATE OR REPLACE TABLE AS SELECT", "WRITE",
                              "REPLACE TABLE AS SELECT", "RESTORE"))  # fmt: skip
        case["operation"] = {"name": name, "parameters": {"mode": "Overwrite"}}


def protects(pool: Pool, random: Random, case: Case) -> None:
    """Let the transaction drop a feature that old versions use, with protected checkpoints."""
    gone = random.choice(("deletionVectors", "v2Checkpoint", "rowTracking", "appendOnly",
                          "inCommitTimestamp", "checkConstraints"))  # fmt: skip
    list_features(case, {gone, "checkpointProtection"})
    if gone in ("deletionVectors", "v2Checkpoint"):
        for one in everywhere(case, "protocol"):
            readers = sorted({*one.get("readerFeatures", ()), gone})
            one.update(minReaderVersion=3, readerFeatures=readers)
    protocol = copy.deepcopy(case["table"]["protocol"])
    for kind in ("readerFeatures", "writerFeatures"):
        if kind in protocol:
            protocol[kind] = [item for item in protocol[kind] if item != gone]
    if protocol.get("readerFeatures") == []:
        del protocol["readerFeatures"]
        protocol["minReaderVersion"] = 1
    case["actions"] = [{"protocol": protocol}]
    if random.random() < 0.8:
        metadata = copy.deepcopy(case["table"]["metaData"])
        metadata["configuration"][BOUND] = str(case["read_version"] + 1)
        case["actions"].append({"metaData": metadata})
    case["operation"] = {"name": "DROP FEATURE", "parameters": {"featureName": gone}}
    if random.random() < 0.7:
        case["reads"].update(whole_table=False, predicates=[], files=[])


def suspended(pool: Pool, random: Random, case: Case) -> None:
    """Suspend row tracking; perhaps a winner enables it."""
    _set(case, {"delta.rowTrackingSuspended": "true"}, gone="delta.enableRowTracking")
    if random.random() < 0.2:
        metadata = copy.deepcopy(case["table"]["metaData"])
        metadata["configuration"].update({"delta.enableRowTracking": "true", **NAMES})
        _win(random, case, _info("SET TBLPROPERTIES"), {"metaData": metadata})


def tracked_for_good(pool: Pool, random: Random, case: Case) -> None:
    """Enable row tracking instead of only supporting it."""
    on = {"delta.enableRowTracking": "true", **NAMES}
    _set(case, on, gone="delta.rowTrackingSuspended")


def drops_tracking(pool: Pool, random: Random, case: Case) -> None:
    """Let the transaction drop row tracking; perhaps winners' files have row ids."""
    _set(case, {"delta.rowTrackingSuspended": "true"}, gone="delta.enableRowTracking")
    protocol = copy.deepcopy(case["table"]["protocol"])
    protocol["writerFeatures"].remove("rowTracking")
    case["actions"] = [{"protocol": protocol}]
    if random.random() < 0.6:
        metadata = copy.deepcopy(case["table"]["metaData"])
        metadata["configuration"].pop("delta.rowTrackingSuspended")
        case["actions"].append({"metaData": metadata})
    case["operation"] = {"name": "DROP FEATURE", "parameters": {"featureName": "rowTracking"}}
    for add in rows_of(case["winners"], "add"):
        if random.random() < 0.4:
            add.update(baseRowId=random.choice((30, 40)), defaultRowCommitVersion=1)


def own_level(pool: Pool, random: Random, case: Case) -> None:
    """Let the transaction change the isolation level from any to any."""
    level = random.choice((*LEVELS, "unheard of"))
    for metadata in everywhere(case, "metaData"):
        metadata.setdefault("configuration", {})[LEVEL] = level
    metadata = copy.deepcopy(case["table"]["metaData"])
    metadata["configuration"][LEVEL] = random.choice(("Serializable", "WriteSerializable", level))
    add_action(case["actions"], {"metaData": metadata})


def other_table(pool: Pool, random: Random, case: Case) -> None:
    """Change metadata other than properties: the name, the columns, or the partition columns."""
    metadata = copy.deepcopy(case["table"]["metaData"])
    schema = json.loads(metadata["schemaString"])
    drawn = random.random()
    if drawn < 0.2:
        metadata["name"] = "other"
    elif drawn < 0.4:
        metadata["description"] = "other"
    elif drawn < 0.6:
        new = {"name": "y", "type": "string", "nullable": True, "metadata": {}}
        schema["fields"].append(new)
    elif drawn < 0.7:
        schema["fields"][0]["metadata"]["comment"] = "other"
    elif drawn < 0.8:
        metadata["createdTime"] = 1_700_000_000_001
    else:
        metadata["configuration"]["acme.b"] = "2"
    metadata["schemaString"] = json.dumps(schema, separators=(",", ":"))
    own = random.random() < 0.7
    add_action(case["actions"] if own else random.choice([case["actions"], *case["winners"]]),
        {"metaData": metadata})  # fmt: skip


def out_of_order(pool: Pool, random: Random, case: Case) -> None:
    """Give the winners' commit files odd modification times."""
    times = (1_500_000_000_000, 1_700_000_400_000, 4_102_444_800_000)
    case["winner_mtimes_ms"] = [random.choice(times) for _ in case["winners"]]


def _set(case: Case, more: Mapping[str, str], gone: str) -> None:
    list_features(case, {"rowTracking", "domainMetadata"})
    for metadata in everywhere(case, "metaData"):
        own = metadata.setdefault("configuration", {})
        own.update(more)
        own.pop(gone, None)


def _info(name: str) -> Row:
    info = {"timestamp": 1_700_000_400_000, "operation": name, "operationParameters": {}}
    return {"commitInfo": {**info, "isBlindAppend": False}}


def _win(random: Random, case: Case, *rows: Row) -> None:
    """Add a winner with some actions, before or after the others."""
    at = random.randint(0, len(case["winners"]))
    case["winners"].insert(at, list(rows))
    if case.get("winner_mtimes_ms"):
        case["winner_mtimes_ms"].insert(at, 1_700_000_400_000)

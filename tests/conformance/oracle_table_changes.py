"""Changes of a case that concern its table: features, properties, partitioning, columns."""

import copy
import json
from collections.abc import Set
from random import Random
from typing import Final

from tests.conformance.oracle_predicates import ODD, SPELLINGS, made_up, sql_of
from tests.conformance.oracle_vectors import Case, Pool, Row, add_action, everywhere, rows_of

LEVELS: Final = ("Serializable", "WriteSerializable", "SnapshotIsolation", "writeserializable")


LEVEL: Final = "delta.isolationLevel"


FUTURE_MS: Final = 4_102_444_800_000


CONFIGURATION: Final = (
    ("delta.enableDeletionVectors", "true"),
    ("delta.enableDeletionVectors", "false"),
    ("delta.checkpointPolicy", "v2"),
    ("delta.checkpointPolicy", "classic"),
    ("delta.enableRowTracking", "true"),
    ("delta.enableInCommitTimestamps", "true"),
    ("delta.enableInCommitTimestamps", "false"),
    ("delta.enableRowTracking", "false"),
    ("delta.enableChangeDataFeed", "true"),
    ("delta.enableTypeWidening", "true"),
    ("delta.appendOnly", "false"),
    ("delta.columnMapping.mode", "name"),
    ("delta.isolationLevel", "WriteSerializable"),
    ("delta.columnMapping.maxColumnId", "9"),
    ("io.unitycatalog.tableId", "new"),
    ("delta.rowTracking.materializedRowIdColumnName", "_r"),
    ("delta.rowTracking.materializedRowCommitVersionColumnName", "_c"),
    ("delta.inCommitTimestampEnablementVersion", "1"),
    ("delta.inCommitTimestampEnablementTimestamp", "1700000000000"),
    ("delta.appendOnly", "true"),
    ("delta.logRetentionDuration", "interval 7 days"),
    ("delta.rowTrackingSuspended", "true"),
    ("acme.owner", "me"),
)


READ: Final = ("columnMapping", "deletionVectors", "v2Checkpoint")


ALL_FEATURES: Final = (
    "appendOnly", "changeDataFeed", "checkConstraints", "columnMapping", "deletionVectors",
    "domainMetadata", "inCommitTimestamp", "invariants", "rowTracking", "v2Checkpoint",
)  # fmt: skip


MORE: Final = (
    "appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns",
    "identityColumns", "domainMetadata", "rowTracking", "inCommitTimestamp", "clustering",
    "checkpointProtection", "allowColumnDefaults", "icebergCompatV1", "icebergCompatV2",
    "collations-preview", "materializePartitionColumns", "catalogManaged", "unheardOf",
)  # fmt: skip


IMPLIED: Final = (
    (2, "appendOnly"), (2, "invariants"), (3, "checkConstraints"), (4, "changeDataFeed"),
    (4, "generatedColumns"), (5, "columnMapping"), (6, "identityColumns"),
)  # fmt: skip


def other_level(pool: Pool, random: Random, case: Case) -> None:
    level = random.choice(LEVELS)
    for metadata in everywhere(case, "metaData"):
        metadata.setdefault("configuration", {})[LEVEL] = level


def all_features(pool: Pool, random: Random, case: Case) -> None:
    """Give the table all features; a commit that writes a protocol keeps its own."""
    list_features(case, set(ALL_FEATURES))
    protocols = [case["table"]["protocol"], *rows_of(case["table"]["base"], "protocol")]
    for protocol in protocols:
        known = {*protocol.get("readerFeatures", ()), *READ}
        protocol.update(minReaderVersion=3, readerFeatures=sorted(known))


def configured(pool: Pool, random: Random, case: Case) -> None:
    """Set another property of the table, or of a commit's metaData."""
    key, value = random.choice(CONFIGURATION)
    whole = random.random() < 0.4
    metadata = everywhere(case, "metaData") if whole else rows_of([case["actions"]], "metaData")
    if not whole and random.random() < 0.6:
        metadata = rows_of(case["winners"], "metaData")
    for item in metadata:
        item.setdefault("configuration", {})[key] = value


def with_metadata(pool: Pool, random: Random, case: Case) -> None:
    """Add a metaData to a commit: unchanged, or with another property."""
    metadata = copy.deepcopy(case["table"]["metaData"])
    if random.random() < 0.8:
        key, value = random.choice(CONFIGURATION)
        metadata["configuration"][key] = value
    add_action(random.choice([case["actions"], *case["winners"]]), {"metaData": metadata})


def with_protocol(pool: Pool, random: Random, case: Case) -> None:
    """Add a protocol to a commit: unchanged, or with a feature more or less."""
    protocol = copy.deepcopy(case["table"]["protocol"])
    features = protocol.get("writerFeatures")
    drawn = random.random()
    if features is None:
        if drawn < 0.5:
            protocol["minWriterVersion"] = random.randint(2, 6)
        elif drawn < 0.8:
            protocol = {"minReaderVersion": 1, "minWriterVersion": 7}
            protocol["writerFeatures"] = ["appendOnly", "invariants", random.choice(MORE)]
    elif drawn < 0.6:
        protocol["writerFeatures"] = sorted({*features, random.choice(MORE)})
    elif drawn < 0.8 and features:
        gone = random.choice(features)
        protocol["writerFeatures"] = [feature for feature in features if feature != gone]
        if gone in protocol.get("readerFeatures", ()):
            protocol["readerFeatures"].remove(gone)
    add_action(random.choice([case["actions"], *case["winners"]]), {"protocol": protocol})


def drops_feature(pool: Pool, random: Random, case: Case) -> None:
    """Let the transaction drop a feature of the table."""
    protocol = copy.deepcopy(case["table"]["protocol"])
    if not protocol.get("writerFeatures"):
        return
    gone = random.choice(protocol["writerFeatures"])
    for kind in ("readerFeatures", "writerFeatures"):
        if kind in protocol:
            protocol[kind] = [item for item in protocol[kind] if item != gone]
    if protocol.get("readerFeatures") == []:
        del protocol["readerFeatures"]
        protocol["minReaderVersion"] = 1
    case["operation"] = {"name": "DROP FEATURE", "parameters": {"featureName": gone}}
    case["actions"] = [row for row in case["actions"] if "metaData" in row]
    case["actions"].append({"protocol": protocol})
    case["reads"].update(whole_table=False, predicates=[], files=[])


def timed(pool: Pool, random: Random, case: Case) -> None:
    """Enable in-commit timestamps; the winners' are far ahead, or long ago."""
    for metadata in everywhere(case, "metaData"):
        metadata.setdefault("configuration", {})["delta.enableInCommitTimestamps"] = "true"
    list_features(case, {"inCommitTimestamp"})
    begin = random.choice((1_700_000_000_000, FUTURE_MS))
    for at, info in enumerate(rows_of(case["table"]["base"], "commitInfo")):
        info["inCommitTimestamp"] = 1_700_000_000_000 + at
    for at, info in enumerate(rows_of(case["winners"], "commitInfo")):
        info["inCommitTimestamp"] = begin + random.choice((at, -at)) * 1000
    case["winners"] = [
        rows if any("commitInfo" in row for row in rows) else [_timed_info(begin), *rows]
        for rows in case["winners"]
    ]


def list_features(case: Case, more: Set[str]) -> None:
    """Add features to every protocol, and list by name what its versions imply."""
    for protocol in everywhere(case, "protocol"):
        version = protocol["minWriterVersion"]
        if "writerFeatures" not in protocol:
            names = [name for since, name in IMPLIED if since <= version]
            protocol.update(minWriterVersion=7, writerFeatures=names)
            if protocol["minReaderVersion"] == 2:
                protocol.update(minReaderVersion=3, readerFeatures=["columnMapping"])
        protocol["writerFeatures"] = sorted({*protocol["writerFeatures"], *more})


def _timed_info(at_ms: int) -> Row:
    info = {"timestamp": at_ms, "operation": "WRITE", "operationParameters": {}}
    return {"commitInfo": {**info, "isBlindAppend": False, "inCommitTimestamp": at_ms}}


def tracked(pool: Pool, random: Random, case: Case) -> None:
    """Enable row tracking, with row ids in every commit."""
    if "rowTracking" in case["table"]["protocol"].get("writerFeatures", ()):
        return
    list_features(case, {"rowTracking", "domainMetadata"})
    mark, ids = -1, {}
    for version, rows in enumerate([*case["table"]["base"], *case["winners"]]):
        for add in rows_of([rows], "add"):
            if add["path"] not in ids:
                ids[add["path"]] = (mark + 1, version)
                mark += json.loads(add.get("stats") or "{}").get("numRecords", 10)
            add["baseRowId"], add["defaultRowCommitVersion"] = ids[add["path"]]
        result = {"domain": "delta.rowTracking", "removed": False}
        result["configuration"] = json.dumps({"rowIdHighWaterMark": mark})
        if any("add" in row for row in rows):
            rows.append({"domainMetadata": result})


def require_of_rows(pool: Pool, random: Random, case: Case) -> None:
    """Add constraints on new rows, or a change feed."""
    kind = random.choice(("feed", "check", "invariant", "required"))
    features = {"feed": "changeDataFeed", "check": "checkConstraints"}
    list_features(case, {features.get(kind, "invariants")})
    for metadata in everywhere(case, "metaData"):
        own = metadata.setdefault("configuration", {})
        if kind == "feed":
            own["delta.enableChangeDataFeed"] = "true"
        elif kind == "check":
            own["delta.constraints.positive"] = "x > 0"
        else:
            schema = json.loads(metadata["schemaString"])
            field = schema["fields"][0]
            if kind == "required":
                field["nullable"] = False
            else:
                result = {"expression": {"expression": f"`{field['name']}` > 0"}}
                field["metadata"]["delta.invariants"] = json.dumps(result)
            metadata["schemaString"] = json.dumps(schema)


def unpartitioned(pool: Pool, random: Random, case: Case) -> None:
    for metadata in everywhere(case, "metaData"):
        metadata["partitionColumns"] = []
    for rows in (*case["table"]["base"], *case["winners"], case["actions"]):
        for kind in ("add", "remove"):
            for file in rows_of([rows], kind):
                if "partitionValues" in file:
                    file["partitionValues"] = {}


def typed(pool: Pool, random: Random, case: Case) -> None:
    """Use a small table, partitioned by a column of some type, and a scan of it."""
    kind = random.choice(sorted(SPELLINGS))
    fields = [("x", "integer"), ("k", kind)]
    schema = {
        "type": "struct",
        "fields": [
            {"name": name, "type": one, "nullable": True, "metadata": {}} for name, one in fields
        ],
    }
    metadata = {
        "id": "11111111-1111-4111-8111-111111111111",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema),
        "partitionColumns": ["k"],
        "configuration": {},
        "createdTime": 1_700_000_000_000,
    }
    protocol: Row = {"minReaderVersion": 1, "minWriterVersion": 2}
    if kind == "timestamp_ntz":
        names = {"readerFeatures": ["timestampNtz"], "writerFeatures": ["timestampNtz"]}
        protocol = {"minReaderVersion": 3, "minWriterVersion": 7, **names}
    values = (None, *SPELLINGS[kind])
    result = (*values, *ODD) if random.random() < 0.3 else values
    base = [{"protocol": protocol}, {"metaData": metadata}, _file("f0", random.choice(values))]
    case["table"] = {"protocol": protocol, "metaData": metadata, "base": [base]}
    case["read_version"] = 0
    scan = made_up(random, {"k": kind} if random.random() < 0.8 else {"k": kind, "x": "integer"})
    case["reads"] = {"whole_table": False, "predicates": [{"sql": sql_of(scan), "ast": scan}]}
    case["reads"].update(files=[], app_ids=[], domains=[])
    case["operation"] = {"name": "WRITE", "parameters": {"mode": "Append"}}
    case["actions"] = [_file("q", random.choice(values))]
    info = {"timestamp": 1_700_000_400_000, "operation": "WRITE", "operationParameters": {}}
    adds = [_file(f"n{at}", random.choice(result)) for at in range(random.randint(1, 2))]
    case["winners"] = [[{"commitInfo": {**info, "isBlindAppend": True}}, *adds]]
    case.pop("winner_mtimes_ms", None)


def _file(name: str, value: str | None) -> Row:
    result = {"path": f"k=x/part-{name}-c000.snappy.parquet", "partitionValues": {"k": value}}
    stats = '{"numRecords":10,"minValues":{"x":100},"maxValues":{"x":109},"nullCount":{"x":0}}'
    more = {"size": 1030, "modificationTime": 1_700_000_100_000, "dataChange": True}
    return {"add": {**result, **more, "stats": stats}}


def level_of(case: Case) -> str:
    named = case["table"]["metaData"]["configuration"].get(LEVEL, "Serializable")
    return {level.lower(): level for level in LEVELS[:3]}.get(named.lower(), "Serializable")

"""New cases of concurrent transactions, made of the conflict vectors: what is so in one of them is
put beside what is so in another, and little things are changed.

Cases have the form of the vectors, without `expected`; `reads.files` are files read by path only:
what the scans find, delta-spark tells.
"""

import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final

from tests.conformance.oracle_predicates import SPELLINGS, made_up, sql_of

Case = dict[str, Any]
Row = dict[str, Any]

OPERATIONS: Final = (
    "WRITE", "STREAMING UPDATE", "DELETE", "UPDATE", "MERGE", "TRUNCATE", "OPTIMIZE", "REORG",
    "COMPUTE STATS", "RESTORE", "CLONE", "CONVERT", "Manual Update", "SET TBLPROPERTIES",
    "UPGRADE PROTOCOL", "REPLACE TABLE", "CREATE OR REPLACE TABLE", "REPLACE TABLE AS SELECT",
    "CREATE OR REPLACE TABLE AS SELECT", "CREATE TABLE AS SELECT", "ADD COLUMNS", "CLUSTER BY",
    "ROW TRACKING BACKFILL", "ROW TRACKING UNBACKFILL", "UPDATE SCHEMA", "CHANGE COLUMN", "FSCK",
)  # fmt: skip
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
ALL_FEATURES: Final = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["columnMapping", "deletionVectors", "v2Checkpoint"],
    "writerFeatures": [
        "appendOnly", "changeDataFeed", "checkConstraints", "columnMapping", "deletionVectors",
        "domainMetadata", "inCommitTimestamp", "invariants", "rowTracking", "v2Checkpoint",
    ],
}  # fmt: skip


class Pool:
    """The vectors, by the tables that they are about."""

    def __init__(self, cases: Sequence[Mapping[str, Any]]) -> None:
        """Take the vectors."""
        self._alike: dict[str, list[Case]] = {}
        self._keys: dict[str, str] = {}
        self.cases = [_question(case) for case in cases]
        for case in self.cases:
            self._keys[case["name"]] = _key(case)
            self._alike.setdefault(_key(case), []).append(case)

    def alike(self, random: Random, case: Mapping[str, Any]) -> Case:
        """Return a case on the table that a case was about before it was changed."""
        return copy.deepcopy(random.choice(self._alike[self._keys[case["name"]]]))

    def draw(self, random: Random) -> Case:
        """Return a case: each table's turn comes about as often as that of a group of cases."""
        if random.random() < 0.5:
            return copy.deepcopy(random.choice(self.cases))
        return copy.deepcopy(random.choice(self._alike[random.choice(sorted(self._alike))]))


def _key(case: Mapping[str, Any]) -> str:
    table = case["table"]
    return json.dumps([table["protocol"], table["metaData"], table["base"]], sort_keys=True)


def _question(case: Mapping[str, Any]) -> Case:
    """Return a vector without what was decided; only files that were read by path stay."""
    found = copy.deepcopy({key: value for key, value in case.items() if key in KEPT})
    if found["reads"]["predicates"]:
        found["reads"]["files"] = []
    return found


KEPT: Final = frozenset(
    {"name", "table", "read_version", "reads", "isolation", "operation", "actions", "winners",
     "winner_mtimes_ms"}
)  # fmt: skip


def made_cases(cases: Sequence[Mapping[str, Any]], seed: int) -> Iterator[Case]:
    """Yield new cases without end; the same ones for a seed."""
    pool, at = Pool(cases), 0
    while True:
        random = Random(f"{seed}/{at}")
        yield _made(pool, random, f"made/{seed}-{at}")
        at += 1


def _made(pool: Pool, random: Random, name: str) -> Case:
    case = pool.draw(random)
    origin, done, changes = case["name"], [], CHANGES
    if random.random() < 0.15:
        _typed(pool, random, case)
        done, changes = ["typed"], CHANGES_OF_TYPED
    elif random.random() < 0.75:
        _other_loser(pool, random, case)
        done.append("other_loser")
    for _ in range(random.choice((0, 1, 1, 2, 2, 3))):
        change = random.choice(changes)
        change(pool, random, case)
        done.append(change.__name__.lstrip("_"))
    case["name"], case["why"] = name, f"{origin}: {', '.join(done)}"
    case["isolation"] = _level(case)
    return case


def _level(case: Case) -> str:
    named = case["table"]["metaData"]["configuration"].get(LEVEL, "Serializable")
    return {level.lower(): level for level in LEVELS[:3]}.get(named.lower(), "Serializable")


def _other_loser(pool: Pool, random: Random, case: Case) -> None:
    """Another case's transaction loses to this one's winners."""
    other = pool.alike(random, case)
    for key in ("reads", "operation", "actions"):
        case[key] = other[key]


def _other_reads(pool: Pool, random: Random, case: Case) -> None:
    case["reads"] = pool.alike(random, case)["reads"]


def _more_winners(pool: Pool, random: Random, case: Case) -> None:
    other = pool.alike(random, case)
    winners, times = other["winners"], other.get("winner_mtimes_ms")
    base = len(case["table"]["base"])
    own = case.get("winner_mtimes_ms") or [1_700_000_400_000] * len(case["winners"])
    if random.random() < 0.5:
        case["winners"] = [*case["winners"], *winners]
        case["winner_mtimes_ms"] = [*own, *(times or [1_700_000_400_000] * len(winners))]
    else:
        case["winners"] = [*winners, *case["winners"]]
        case["winner_mtimes_ms"] = [*(times or [1_700_000_400_000] * len(winners)), *own]
    assert base


def _fewer_winners(pool: Pool, random: Random, case: Case) -> None:
    if case["winners"]:
        del case["winners"][random.randrange(len(case["winners"]))]
        case.pop("winner_mtimes_ms", None)


def _other_level(pool: Pool, random: Random, case: Case) -> None:
    level = random.choice(LEVELS)
    for metadata in _all_of(case, "metaData"):
        metadata.setdefault("configuration", {})[LEVEL] = level


def _other_operation(pool: Pool, random: Random, case: Case) -> None:
    name = random.choice(OPERATIONS)
    case["operation"] = {"name": name, "parameters": {}}
    if name == "WRITE":
        case["operation"]["parameters"]["mode"] = random.choice(("Append", "Overwrite"))


def _other_winning_operation(pool: Pool, random: Random, case: Case) -> None:
    for info in _of(case["winners"], "commitInfo"):
        info["operation"] = random.choice(OPERATIONS)


def _blindness(pool: Pool, random: Random, case: Case) -> None:
    for info in _of(case["winners"], "commitInfo"):
        info["isBlindAppend"] = random.choice((True, False, None))
        if info["isBlindAppend"] is None:
            del info["isBlindAppend"]


def _no_commit_info(pool: Pool, random: Random, case: Case) -> None:
    case["winners"] = [[row for row in rows if "commitInfo" not in row] for rows in case["winners"]]


def _identity_tag(pool: Pool, random: Random, case: Case) -> None:
    for info in _of(case["winners"], "commitInfo"):
        info["tags"] = {"delta.identity.schemaUpdate": random.choice(("true", "false"))}


def _data_change(pool: Pool, random: Random, case: Case) -> None:
    """Files say otherwise whether they change data: all of the transaction's, or some."""
    rows = random.choice(([case["actions"]], case["winners"]))
    changed, every = random.random() < 0.3, random.random() < 0.7
    for kind in ("add", "remove"):
        for file in _of(rows, kind):
            if every or random.random() < 0.5:
                file["dataChange"] = changed


def _whole_table(pool: Pool, random: Random, case: Case) -> None:
    case["reads"]["whole_table"] = not case["reads"]["whole_table"]


def _files_by_path(pool: Pool, random: Random, case: Case) -> None:
    paths = [add["path"] for add in _of(case["table"]["base"], "add")]
    if paths:
        case["reads"]["files"] = random.sample(paths, random.randint(0, min(2, len(paths))))


def _app_ids(pool: Pool, random: Random, case: Case) -> None:
    ids = [txn["appId"] for txn in (*_of([case["actions"]], "txn"), *_of(case["winners"], "txn"))]
    case["reads"]["app_ids"] = sorted({random.choice([*ids, "other"])})


def _with_txn(pool: Pool, random: Random, case: Case) -> None:
    txn = {"txn": {"appId": random.choice("ab"), "version": random.randint(0, 9)}}
    random.choice([case["actions"], *case["winners"]]).append(txn)


def _with_domain(pool: Pool, random: Random, case: Case) -> None:
    domain = {
        "domain": random.choice(("acme.a", "acme.b", "delta.clustering", "delta.rowTracking")),
        "configuration": random.choice(('{"a":1}', "{}", '{"rowIdHighWaterMark":99}')),
        "removed": random.random() < 0.2,
    }
    random.choice([case["actions"], *case["winners"]]).append({"domainMetadata": domain})


def _predicate(pool: Pool, random: Random, case: Case) -> None:
    """Another scan, of partition columns and others."""
    columns = _columns(case)
    partitions = case["table"]["metaData"]["partitionColumns"]
    if partitions and random.random() < 0.7:
        columns = {name: columns[name] for name in partitions}
    if not columns:
        return
    scans = [made_up(random, columns) for _ in range(random.choice((1, 1, 2)))]
    case["reads"]["predicates"] = [{"sql": sql_of(scan), "ast": scan} for scan in scans]


def _columns(case: Case) -> dict[str, str]:
    fields = json.loads(case["table"]["metaData"]["schemaString"])["fields"]
    kinds = {one["name"]: one["type"] for one in fields}
    return {name: kind for name, kind in kinds.items() if kind in SPELLINGS}


def _partition_values(pool: Pool, random: Random, case: Case) -> None:
    """The winners' new files lie in other partitions."""
    kinds = _columns(case)
    for add in _of(case["winners"], "add"):
        for name in add.get("partitionValues", {}):
            if name in kinds and random.random() < 0.7:
                drawn = random.choice((None, *SPELLINGS[kinds[name]]))
                add["partitionValues"][name] = drawn


def _own_partition_values(pool: Pool, random: Random, case: Case) -> None:
    kinds = _columns(case)
    for add in _of([case["actions"]], "add"):
        for name in add.get("partitionValues", {}):
            if name in kinds:
                drawn = random.choice((None, *SPELLINGS[kinds[name]]))
                add["partitionValues"][name] = drawn


def _dynamic(pool: Pool, random: Random, case: Case) -> None:
    """The transaction overwrites the partitions of its files, and reads nothing else."""
    columns = case["table"]["metaData"]["partitionColumns"]
    kinds = _columns(case)
    adds = list(_of([case["actions"]], "add"))
    if not (columns and adds and all(kinds.get(one) == "integer" for one in columns)):
        return
    if any(set(add.get("partitionValues", {})) != set(columns) for add in adds):
        return
    asked = []
    for add in adds:
        parts = []
        for name, text in add["partitionValues"].items():
            try:
                value = None if text is None else int(text)
            except ValueError:
                return
            parts.append({"op": "<=>", "column": [name], "value": value, "type": "integer"})
        asked.append(parts[0] if len(parts) == 1 else {"op": "and", "args": parts})
    ast = asked[0] if len(asked) == 1 else {"op": "or", "args": asked}
    scan = {"sql": None, "ast": ast, "kind": "dynamic_overwrite"}
    case["reads"].update(whole_table=False, predicates=[scan], files=[])
    case["operation"] = {"name": "WRITE", "parameters": {"mode": "Overwrite"}}


def _all_features(pool: Pool, random: Random, case: Case) -> None:
    """The table has all features; who writes a protocol keeps his own."""
    told = copy.deepcopy(ALL_FEATURES)
    case["table"]["protocol"] = told
    for protocol in _of(case["table"]["base"], "protocol"):
        protocol.clear()
        protocol.update(told)


def _configured(pool: Pool, random: Random, case: Case) -> None:
    """The table, or somebody's change of it, says one thing more."""
    key, value = random.choice(CONFIGURATION)
    whole = random.random() < 0.4
    metadata = _all_of(case, "metaData") if whole else _of([case["actions"]], "metaData")
    if not whole and random.random() < 0.6:
        metadata = _of(case["winners"], "metaData")
    for one in metadata:
        one.setdefault("configuration", {})[key] = value


def _with_metadata(pool: Pool, random: Random, case: Case) -> None:
    """Somebody writes metaData: as it is, or with another property."""
    metadata = copy.deepcopy(case["table"]["metaData"])
    if random.random() < 0.8:
        key, value = random.choice(CONFIGURATION)
        metadata["configuration"][key] = value
    random.choice([case["actions"], *case["winners"]]).append({"metaData": metadata})


def _with_protocol(pool: Pool, random: Random, case: Case) -> None:
    """Somebody writes a protocol: as it is, or with another feature, or with one less."""
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
        protocol["writerFeatures"] = [one for one in features if one != gone]
        if gone in protocol.get("readerFeatures", ()):
            protocol["readerFeatures"].remove(gone)
    random.choice([case["actions"], *case["winners"]]).append({"protocol": protocol})


MORE: Final = (
    "appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns",
    "identityColumns", "domainMetadata", "rowTracking", "inCommitTimestamp", "clustering",
    "checkpointProtection", "allowColumnDefaults", "icebergCompatV1", "icebergCompatV2",
    "collations-preview", "materializePartitionColumns", "catalogManaged", "unheardOf",
)  # fmt: skip


def _timed(pool: Pool, random: Random, case: Case) -> None:
    """The table has in-commit timestamps, and each winner has one: far ahead, or long ago."""
    for metadata in _all_of(case, "metaData"):
        metadata.setdefault("configuration", {})["delta.enableInCommitTimestamps"] = "true"
    for protocol in _all_of(case, "protocol"):
        if "writerFeatures" not in protocol:
            protocol.update(minWriterVersion=7, writerFeatures=["appendOnly", "invariants"])
        protocol["writerFeatures"] = sorted({*protocol["writerFeatures"], "inCommitTimestamp"})
    begin = random.choice((1_700_000_000_000, FUTURE_MS))
    for at, info in enumerate(_of(case["table"]["base"], "commitInfo")):
        info["inCommitTimestamp"] = 1_700_000_000_000 + at
    for at, info in enumerate(_of(case["winners"], "commitInfo")):
        info["inCommitTimestamp"] = begin + random.choice((at, -at)) * 1000
    case["winners"] = [
        rows if any("commitInfo" in row for row in rows) else [_timed_info(begin), *rows]
        for rows in case["winners"]
    ]


def _timed_info(at_ms: int) -> Row:
    info = {"timestamp": at_ms, "operation": "WRITE", "operationParameters": {}}
    return {"commitInfo": {**info, "isBlindAppend": False, "inCommitTimestamp": at_ms}}


def _tracked(pool: Pool, random: Random, case: Case) -> None:
    """The table tracks rows, and whoever wrote to it gave ids."""
    if "rowTracking" in case["table"]["protocol"].get("writerFeatures", ()):
        return
    for protocol in _all_of(case, "protocol"):
        if "writerFeatures" not in protocol:
            protocol.update(minWriterVersion=7, writerFeatures=["appendOnly", "invariants"])
        more = {"rowTracking", "domainMetadata"}
        protocol["writerFeatures"] = sorted({*protocol["writerFeatures"], *more})
    mark, ids = -1, {}
    for version, rows in enumerate([*case["table"]["base"], *case["winners"]]):
        for add in _of([rows], "add"):
            if add["path"] not in ids:
                ids[add["path"]] = (mark + 1, version)
                mark += json.loads(add.get("stats") or "{}").get("numRecords", 10)
            add["baseRowId"], add["defaultRowCommitVersion"] = ids[add["path"]]
        told = {"domain": "delta.rowTracking", "removed": False}
        told["configuration"] = json.dumps({"rowIdHighWaterMark": mark})
        if any("add" in row for row in rows):
            rows.append({"domainMetadata": told})


def _unpartitioned(pool: Pool, random: Random, case: Case) -> None:
    for metadata in _all_of(case, "metaData"):
        metadata["partitionColumns"] = []
    for rows in (*case["table"]["base"], *case["winners"], case["actions"]):
        for kind in ("add", "remove"):
            for file in _of([rows], kind):
                if "partitionValues" in file:
                    file["partitionValues"] = {}


def _without_action(pool: Pool, random: Random, case: Case) -> None:
    rows = random.choice([case["actions"], *case["winners"]])
    if rows:
        del rows[random.randrange(len(rows))]


def _action_of_other(pool: Pool, random: Random, case: Case) -> None:
    """Somebody does one thing more that another one did on this table."""
    other = pool.alike(random, case)
    found = [row for rows in (other["actions"], *other["winners"]) for row in rows]
    found = [row for row in found if "commitInfo" not in row]
    if found:
        random.choice([case["actions"], *case["winners"]]).append(random.choice(found))


def _own_as_winner(pool: Pool, random: Random, case: Case) -> None:
    """Another case's transaction has won, too."""
    other = pool.alike(random, case)
    info = {"timestamp": 1_700_000_400_000, "operation": other["operation"]["name"]}
    blind = not any("add" not in row for row in other["actions"])
    info.update(operationParameters={}, isBlindAppend=blind)
    at = random.randint(0, len(case["winners"]))
    case["winners"].insert(at, [{"commitInfo": info}, *other["actions"]])
    case.pop("winner_mtimes_ms", None)


def _statistics(pool: Pool, random: Random, case: Case) -> None:
    """The files of one side have other statistics, or none."""
    for add in _of(random.choice(([case["actions"]], case["winners"])), "add"):
        drawn = random.random()
        if drawn < 0.3:
            add.pop("stats", None)
        elif drawn < 0.6:
            add["stats"] = '{"numRecords":7}'
        elif drawn < 0.7:
            add["stats"] = "{}"
        else:
            low = random.choice((-5, 100, 150, 1000))
            told = {"numRecords": 3, "minValues": {"x": low}, "maxValues": {"x": low + 9}}
            add["stats"] = json.dumps({**told, "nullCount": {"x": random.choice((0, 1, 3))}})


def _typed(pool: Pool, random: Random, case: Case) -> None:
    """A small table of its own, partitioned by a column of some type, and a scan of it."""
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
    base = [{"protocol": protocol}, {"metaData": metadata}, _file("f0", random.choice(values))]
    case["table"] = {"protocol": protocol, "metaData": metadata, "base": [base]}
    case["read_version"] = 0
    scan = made_up(random, {"k": kind} if random.random() < 0.8 else {"k": kind, "x": "integer"})
    case["reads"] = {"whole_table": False, "predicates": [{"sql": sql_of(scan), "ast": scan}]}
    case["reads"].update(files=[], app_ids=[], domains=[])
    case["operation"] = {"name": "WRITE", "parameters": {"mode": "Append"}}
    case["actions"] = [_file("q", random.choice(values))]
    info = {"timestamp": 1_700_000_400_000, "operation": "WRITE", "operationParameters": {}}
    adds = [_file(f"n{at}", random.choice(values)) for at in range(random.randint(1, 2))]
    case["winners"] = [[{"commitInfo": {**info, "isBlindAppend": True}}, *adds]]
    case.pop("winner_mtimes_ms", None)


def _file(name: str, value: str | None) -> Row:
    told = {"path": f"k=x/part-{name}-c000.snappy.parquet", "partitionValues": {"k": value}}
    stats = '{"numRecords":10,"minValues":{"x":100},"maxValues":{"x":109},"nullCount":{"x":0}}'
    more = {"size": 1030, "modificationTime": 1_700_000_100_000, "dataChange": True}
    return {"add": {**told, **more, "stats": stats}}


def _of(rows: Sequence[Sequence[Row]], kind: str) -> Iterator[Row]:
    return (row[kind] for actions in rows for row in actions if kind in row)


def _all_of(case: Case, kind: str) -> Iterator[Row]:
    yield case["table"][kind]
    yield from _of([*case["table"]["base"], *case["winners"], case["actions"]], kind)


Change = Callable[[Pool, Random, Case], None]
CHANGES: Final[Sequence[Change]] = (
    _other_reads, _more_winners, _fewer_winners, _other_level, _other_operation,
    _other_winning_operation, _blindness, _no_commit_info, _identity_tag, _data_change,
    _whole_table, _files_by_path, _app_ids, _with_txn, _with_domain, _predicate, _predicate,
    _partition_values, _own_partition_values, _dynamic, _all_features, _configured,
    _with_metadata, _with_protocol, _timed, _tracked, _unpartitioned, _without_action,
    _action_of_other, _own_as_winner, _statistics,
)  # fmt: skip
CHANGES_OF_TYPED: Final[Sequence[Change]] = (
    _other_level, _other_operation, _blindness, _data_change, _predicate, _partition_values,
    _own_partition_values, _dynamic, _unpartitioned, _statistics, _with_txn, _all_features,
)  # fmt: skip

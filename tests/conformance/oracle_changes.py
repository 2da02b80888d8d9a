"""Changes of a case that concern its transactions: reads, actions and commitInfo."""

import json
from random import Random
from typing import Final

from tests.conformance.oracle_predicates import SPELLINGS, made_up, sql_of
from tests.conformance.oracle_vectors import Case, Pool, add_action, columns_of, rows_of

OPERATIONS: Final = (
    "WRITE", "STREAMING UPDATE", "DELETE", "UPDATE", "MERGE", "TRUNCATE", "OPTIMIZE", "REORG",
    "COMPUTE STATS", "RESTORE", "CLONE", "CONVERT", "Manual Update", "SET TBLPROPERTIES",
    "UPGRADE PROTOCOL", "REPLACE TABLE", "CREATE OR REPLACE TABLE", "REPLACE TABLE AS SELECT",
    "CREATE OR REPLACE TABLE AS SELECT", "CREATE TABLE AS SELECT", "ADD COLUMNS", "CLUSTER BY",
    "ROW TRACKING BACKFILL", "ROW TRACKING UNBACKFILL", "UPDATE SCHEMA", "CHANGE COLUMN", "FSCK",
)  # fmt: skip


def other_loser(pool: Pool, random: Random, case: Case) -> None:
    """Let another case's transaction lose to this case's winners."""
    other = pool.alike(random, case)
    for key in ("reads", "operation", "actions"):
        case[key] = other[key]


def other_reads(pool: Pool, random: Random, case: Case) -> None:
    case["reads"] = pool.alike(random, case)["reads"]


def more_winners(pool: Pool, random: Random, case: Case) -> None:
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


def fewer_winners(pool: Pool, random: Random, case: Case) -> None:
    if case["winners"]:
        del case["winners"][random.randrange(len(case["winners"]))]
        case.pop("winner_mtimes_ms", None)


def other_operation(pool: Pool, random: Random, case: Case) -> None:
    name = random.choice(OPERATIONS)
    case["operation"] = {"name": name, "parameters": {}}
    if name == "WRITE":
        case["operation"]["parameters"]["mode"] = random.choice(("Append", "Overwrite"))


def other_winning_operation(pool: Pool, random: Random, case: Case) -> None:
    for info in rows_of(case["winners"], "commitInfo"):
        info["operation"] = random.choice(OPERATIONS)


def blindness(pool: Pool, random: Random, case: Case) -> None:
    for info in rows_of(case["winners"], "commitInfo"):
        info["isBlindAppend"] = random.choice((True, False, None))
        if info["isBlindAppend"] is None:
            del info["isBlindAppend"]


def no_commit_info(pool: Pool, random: Random, case: Case) -> None:
    case["winners"] = [[row for row in rows if "commitInfo" not in row] for rows in case["winners"]]


def identity_tag(pool: Pool, random: Random, case: Case) -> None:
    if any('"metaData"' in json.dumps(rows) for rows in case["winners"]):
        # A reader that trusts a wrong tag writes what no other engine would.
        return
    for info in rows_of(case["winners"], "commitInfo"):
        info["tags"] = {"delta.identity.schemaUpdate": random.choice(("true", "false"))}


def data_change(pool: Pool, random: Random, case: Case) -> None:
    """Change `dataChange` of all files of the transaction or the winners, or of some."""
    rows = random.choice(([case["actions"]], case["winners"]))
    changed, every = random.random() < 0.3, random.random() < 0.7
    for kind in ("add", "remove"):
        for file in rows_of(rows, kind):
            if every or random.random() < 0.5:
                file["dataChange"] = changed


def whole_table(pool: Pool, random: Random, case: Case) -> None:
    case["reads"]["whole_table"] = not case["reads"]["whole_table"]


def files_by_path(pool: Pool, random: Random, case: Case) -> None:
    paths = [add["path"] for add in rows_of(case["table"]["base"], "add")]
    if paths:
        case["reads"]["files"] = random.sample(paths, random.randint(0, min(2, len(paths))))


def app_ids(pool: Pool, random: Random, case: Case) -> None:
    ids = [
        txn["appId"]
        for txn in (*rows_of([case["actions"]], "txn"), *rows_of(case["winners"], "txn"))
    ]
    case["reads"]["app_ids"] = sorted({random.choice([*ids, "other"])})


def with_txn(pool: Pool, random: Random, case: Case) -> None:
    txn = {"txn": {"appId": random.choice("ab"), "version": random.randint(0, 9)}}
    add_action(random.choice([case["actions"], *case["winners"]]), txn)


def with_domain(pool: Pool, random: Random, case: Case) -> None:
    name, text = random.choice(DOMAINS)
    removed = random.random() < 0.2 and name != "delta.rowTracking"
    domain = {"domain": name, "configuration": text, "removed": removed}
    add_action(random.choice([case["actions"], *case["winners"]]), {"domainMetadata": domain})


DOMAINS: Final = (
    ("acme.a", '{"a":1}'),
    ("acme.a", ""),
    ("acme.b", "{}"),
    ("delta.clustering", '{"clusteringColumns":[["x"]]}'),
    ("delta.rowTracking", '{"rowIdHighWaterMark":99}'),
)


def predicate(pool: Pool, random: Random, case: Case) -> None:
    """Replace the scan by one of partition columns and others."""
    columns = columns_of(case)
    partitions = case["table"]["metaData"]["partitionColumns"]
    if partitions and random.random() < 0.7:
        columns = {name: columns[name] for name in partitions}
    if not columns:
        return
    scans = [made_up(random, columns) for _ in range(random.choice((1, 1, 2)))]
    case["reads"]["predicates"] = [{"sql": sql_of(scan), "ast": scan} for scan in scans]


def partition_values(pool: Pool, random: Random, case: Case) -> None:
    """Move the winners' new files to other partitions."""
    kinds = columns_of(case)
    for add in rows_of(case["winners"], "add"):
        for name in add.get("partitionValues", {}):
            if name in kinds and random.random() < 0.7:
                drawn = random.choice((None, *SPELLINGS[kinds[name]]))
                add["partitionValues"][name] = drawn


def own_partition_values(pool: Pool, random: Random, case: Case) -> None:
    kinds = columns_of(case)
    for add in rows_of([case["actions"]], "add"):
        for name in add.get("partitionValues", {}):
            if name in kinds:
                drawn = random.choice((None, *SPELLINGS[kinds[name]]))
                add["partitionValues"][name] = drawn


def dynamic(pool: Pool, random: Random, case: Case) -> None:
    """Let the transaction overwrite the partitions of its files and read nothing else."""
    columns = case["table"]["metaData"]["partitionColumns"]
    kinds = columns_of(case)
    adds = list(rows_of([case["actions"]], "add"))
    if not (columns and adds and all(kinds.get(column) == "integer" for column in columns)):
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


def without_action(pool: Pool, random: Random, case: Case) -> None:
    rows = random.choice([case["actions"], *case["winners"]])
    if rows:
        del rows[random.randrange(len(rows))]


def action_of_other(pool: Pool, random: Random, case: Case) -> None:
    """Add an action of another commit on this table to a commit."""
    other = pool.alike(random, case)
    result = [row for rows in (other["actions"], *other["winners"]) for row in rows]
    result = [row for row in result if "commitInfo" not in row]
    if result:
        add_action(random.choice([case["actions"], *case["winners"]]), random.choice(result))


def own_as_winner(pool: Pool, random: Random, case: Case) -> None:
    """Let another case's transaction win too."""
    other = pool.alike(random, case)
    info = {"timestamp": 1_700_000_400_000, "operation": other["operation"]["name"]}
    blind = not any("add" not in row for row in other["actions"])
    info.update(operationParameters={}, isBlindAppend=blind)
    at = random.randint(0, len(case["winners"]))
    case["winners"].insert(at, [{"commitInfo": info}, *other["actions"]])
    case.pop("winner_mtimes_ms", None)


def statistics(pool: Pool, random: Random, case: Case) -> None:
    """Change or drop the statistics of one side's files."""
    for add in rows_of(random.choice(([case["actions"]], case["winners"])), "add"):
        drawn = random.random()
        if drawn < 0.3:
            add.pop("stats", None)
        elif drawn < 0.6:
            add["stats"] = '{"numRecords":7}'
        elif drawn < 0.7:
            add["stats"] = "{}"
        else:
            low = random.choice((-5, 100, 150, 1000))
            result = {"numRecords": 3, "minValues": {"x": low}, "maxValues": {"x": low + 9}}
            add["stats"] = json.dumps({**result, "nullCount": {"x": random.choice((0, 1, 3))}})

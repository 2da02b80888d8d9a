"""Transactions of every kind against winners of every kind, on tables with earlier versions."""

import copy
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Final

from tests.conformance.oracle_definition_operations import (
    backfills,
    changes_columns,
    clusters,
    drops,
    enables,
    maps_names,
    set_domain,
    unbackfills,
    upgrades,
)
from tests.conformance.oracle_predicates import sql_of
from tests.conformance.oracle_row_operations import (
    Doing,
    appends,
    compacts,
    counts,
    deletes,
    deletes_rows,
    numbers,
    overwrites,
    replaces,
    restores,
    selects,
    streams,
    updates,
)
from tests.conformance.oracle_table_changes import level_of
from tests.conformance.oracle_tables import (
    BEGIN_MS,
    BEGUN,
    TIMED,
    TRACKS,
    Table,
    domain,
    removal,
    table_of_some_kind,
)
from tests.conformance.oracle_vectors import Case, Row

ROW_TRACKING: Final = "delta.rowTracking"
OTHERS: Final = ("2", "3", "4", None)
"""Partitions that the transaction is not about; its own is `1`."""
DOINGS: Final[Sequence[Callable[[Table, str | None], Doing]]] = (
    appends, numbers, streams, selects, deletes, updates, deletes_rows, deletes_rows, compacts,
    compacts, counts, restores, overwrites, replaces, changes_columns, enables, enables, maps_names,
    upgrades, drops, backfills, unbackfills, clusters, set_domain,
)  # fmt: skip
LIGHT: Final = (appends, streams, deletes, updates, deletes_rows, compacts, counts, enables,
                set_domain, numbers, backfills)  # fmt: skip
"""What winners mostly do: much can be rebased over it."""


def meetings(seed: int) -> Iterator[Case]:
    """Yield an endless sequence of new cases; it depends on the seed only."""
    at = 0
    while True:
        yield _case(Random(f"meeting/{seed}/{at}"), f"meeting/{seed}-{at}")
        at += 1


def _case(random: Random, name: str) -> Case:
    table = table_of_some_kind(random)
    base = [_begun(table)]
    base += [_won(table, random, _place(random)) for _ in range(random.choice((0, 0, 0, 1, 2)))]
    chosen = random.choice(DOINGS)
    own = chosen(table, "1" if table.keys else None)
    case: Case = {
        "name": name,
        "table": {"protocol": table.protocol, "metaData": table.metadata, "base": base},
        "read_version": table.version,
    }
    winners: list[list[Row]] = []
    for _ in range(random.choice((1, 1, 2, 3, 4))):
        before = copy.deepcopy(table)
        winners.append(_won(table, random, _place(random)))
        if random.random() < 0.25:
            winners.append(_committed(table, random, _taken_back(before, winners[-1])))
    done = [rows[0]["commitInfo"]["operation"] for rows in winners]
    scans: list[Row] = [] if own.ast is None else [{"sql": sql_of(own.ast), "ast": own.ast}]
    if own.dynamic:
        scans = [{"sql": None, "ast": own.ast, "kind": "dynamic_overwrite"}]
    case["winners"] = winners
    case["reads"] = {"whole_table": own.whole, "predicates": scans, "files": list(own.by_path)}
    case["reads"].update(app_ids=list(own.app_ids), domains=[])
    parameters: Row = {"mode": own.mode} if own.mode else {}
    if own.feature is not None:
        parameters["featureName"] = own.feature
    case["operation"] = {"name": own.name, "parameters": parameters}
    case["actions"] = copy.deepcopy(list(own.rows))
    case["why"] = f"{table.kind}: {chosen.__name__} past {', '.join(done)}"
    case["winner_mtimes_ms"] = [BEGIN_MS + 9_000 * at for at in range(len(winners))]
    case["isolation"] = level_of(case)
    return case


def _place(random: Random) -> str | None:
    return "1" if random.random() < 0.15 else random.choice(OTHERS)


def _begun(table: Table) -> list[Row]:
    start: list[Row] = [{"protocol": table.protocol}, {"metaData": table.metadata}]
    if "delta.clustering" in table.domains:
        start.append(domain("delta.clustering", table.domains["delta.clustering"]))
    places = ("1", "1", "2", "3", "4", None) if table.keys else (None,) * 4
    held = None
    if TRACKS not in table.own and table.tracks and table.random.random() < 0.5:
        # The table's files are older than the feature.
        held, table.features = table.features, set(table.features or ()) - {"rowTracking"}
    files = [{"add": table.file(place)} for place in places]
    features = held or table.features
    rows = table.apply([row for row in [*start, *files] if "protocol" not in row])
    table.features = features
    return [_info(table, Doing("CREATE TABLE AS SELECT")), start[0], *rows]


def _won(table: Table, random: Random, place: str | None) -> list[Row]:
    """Return a winning commit of a random kind."""
    done = random.choice(LIGHT if random.random() < 0.75 else DOINGS)(table, place)
    return _committed(table, random, done)


def _taken_back(before: Table, rows: Sequence[Row]) -> Doing:
    """Return the operation that restores files, definition and domains after a commit."""
    back: list[Row] = []
    come = {row["add"]["path"] for row in rows if "add" in row}
    for row in rows:
        [(kind, result)] = row.items()
        if kind == "metaData":
            back.append({"metaData": before.metadata})
        elif kind == "protocol":
            back.append({"protocol": before.protocol})
        elif kind == "domainMetadata" and result["domain"] != ROW_TRACKING:
            said = before.domains.get(result["domain"])
            back.append(domain(result["domain"], said or "", removed=said is None))
        elif kind == "add" or (kind == "remove" and result["path"] not in come):
            file = before.files.get(result["path"])
            if kind == "add" and (
                file is None or file.get("deletionVector") != result.get("deletionVector")
            ):
                back.append(removal(result))
            if file is not None:
                back.append({"add": {**file, "dataChange": True}})
    return Doing("RESTORE", back)


def _committed(table: Table, random: Random, done: Doing) -> list[Row]:
    begins = TIMED not in table.own
    rows = copy.deepcopy(list(done.rows))
    for row in rows:
        own = row.get("metaData", {}).get("configuration", {})
        if begins and own.get(TIMED) == "true":
            own[f"{BEGUN}Version"] = str(table.version + 1)
            own[f"{BEGUN}Timestamp"] = str(table.at_ms + 60)
    rows = table.apply(rows)
    step = 60 if begins else random.choice((1, 50, 5_000))
    if table.own.get(TIMED) == "true":
        table.at_ms += step
    return [_info(table, done), *rows]


def _info(table: Table, done: Doing) -> Row:
    info: Row = {"timestamp": BEGIN_MS, "operation": done.name, "operationParameters": {}}
    info["isBlindAppend"] = done.is_blind
    if table.own.get(TIMED) == "true":
        info["inCommitTimestamp"] = table.at_ms
    if done.tags:
        info["tags"] = dict(done.tags)
    return {"commitInfo": info}

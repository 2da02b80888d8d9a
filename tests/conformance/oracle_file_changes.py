"""Changes of a case that concern its files: vectors, change files, path forms, bare removes."""

import copy
import json
from collections.abc import Iterator, Sequence
from random import Random
from typing import Final

from tests.conformance.oracle_table_changes import list_features
from tests.conformance.oracle_vectors import Case, Pool, Row, add_action, everywhere, rows_of

VECTORS: Final = ("ab^-aqEH.-t@S}K{vb[*k^", "ab^-aqEH.-t@S}K{vb[*k#", "vBn[lx{q8@P<9BNH/isA")
OPTIONAL_OF_REMOVE: Final = ("partitionValues", "size", "stats", "extendedFileMetadata")


def bare_removes(pool: Pool, random: Random, case: Case) -> None:
    """Strip the optional fields of removes, all or some."""
    for remove in rows_of(_some_side(random, case), "remove"):
        gone = OPTIONAL_OF_REMOVE if random.random() < 0.5 else OPTIONAL_OF_REMOVE[:1]
        for name in (*gone, "extendedFileMetadata"):
            remove.pop(name, None)


def with_remove(pool: Pool, random: Random, case: Case) -> None:
    """Add a remove of a table's file, or of one that another commit adds."""
    adds = _live(case)
    if random.random() < 0.2:
        adds = [*adds, *rows_of([*case["winners"], case["actions"]], "add")]
    if adds:
        add_action(_some_commit(random, case), {"remove": _removal(random.choice(adds))})


def with_add(pool: Pool, random: Random, case: Case) -> None:
    """Add a file like one of the table's, or the same again."""
    adds = _live(case)
    if not adds:
        return
    add = copy.deepcopy(random.choice(adds))
    if random.random() < 0.7:
        add["path"] = f"{add['path']}.{random.randint(0, 9)}"
        add.pop("baseRowId", None)
        add.pop("defaultRowCommitVersion", None)
    add["dataChange"] = random.random() < 0.8
    add_action(_some_commit(random, case), {"add": add})


def with_vector(pool: Pool, random: Random, case: Case) -> None:
    """Delete rows of a table's file by a deletion vector, as far as the table permits."""
    adds = _live(case)
    if not adds:
        return
    list_features(case, {"deletionVectors"})
    for protocol in everywhere(case, "protocol"):
        readers = {*protocol.get("readerFeatures", ()), "deletionVectors"}
        known = readers & set(protocol["writerFeatures"])
        protocol.update(minReaderVersion=3, readerFeatures=sorted(known))
    if random.random() < 0.9:
        for metadata in everywhere(case, "metaData"):
            metadata.setdefault("configuration", {})["delta.enableDeletionVectors"] = "true"
    commits = [case["actions"], *case["winners"]]
    for rows in random.sample(commits, min(len(commits), random.choice((1, 1, 2)))):
        add = copy.deepcopy(random.choice(adds))
        remove = _removal(add)
        add["deletionVector"] = _vector(random)
        result = json.loads(add.get("stats") or '{"numRecords":10}')
        add["stats"] = json.dumps({**result, "tightBounds": random.random() < 0.1})
        rows[:] = [
            row
            for row in rows
            if (row.get("add") or row.get("remove") or {}).get("path") != add["path"]
        ]
        rows.extend(({"remove": remove}, {"add": add}))


def with_change_file(pool: Pool, random: Random, case: Case) -> None:
    """Add change files, whether the table needs them or not."""
    if random.random() < 0.4:
        for metadata in everywhere(case, "metaData"):
            metadata.setdefault("configuration", {})["delta.enableChangeDataFeed"] = "true"
        list_features(case, {"changeDataFeed"})
    commits = [
        rows for rows in (case["actions"], *case["winners"]) if any("add" in row for row in rows)
    ]
    if not commits:
        return
    rows = random.choice(commits)
    for add in list(rows_of([rows], "add")):
        name = add["path"].rpartition("/")[2]
        result = {"path": f"_change_data/cdc-{name}", "partitionValues": add["partitionValues"]}
        add_action(rows, {"cdc": {**result, "size": 900, "dataChange": False}})


def duplicate_action(pool: Pool, random: Random, case: Case) -> None:
    """Duplicate an action of the transaction, or let it both remove and add one file."""
    files = [row for row in case["actions"] if {"add", "remove", "txn"} & row.keys()]
    if not files:
        return
    row = copy.deepcopy(random.choice(files))
    if "add" in row and random.random() < 0.4:
        row = {"remove": _removal(row["add"])}
    case["actions"].append(row)


def other_spelling(pool: Pool, random: Random, case: Case) -> None:
    """Use a path that needs escaping, written alike everywhere."""
    paths = sorted({add["path"] for add in _files(case)})
    if not paths:
        return
    path = random.choice(paths)
    other = path.replace("part-", random.choice(("part%20", "part%25", "p%C3%A9rt-", "part=")))
    for file in _files(case):
        if file["path"] == path:
            file["path"] = other
    case["reads"]["files"] = [other if item == path else item for item in case["reads"]["files"]]


def more_of_files(pool: Pool, random: Random, case: Case) -> None:
    """Add tags or a clustering provider to new files, or make their statistics null."""
    for add in rows_of(_some_side(random, case), "add"):
        drawn = random.random()
        if drawn < 0.3:
            add["tags"] = {"ZCUBE_ID": "1"}
        elif drawn < 0.5:
            add["clusteringProvider"] = "liquid"
        elif drawn < 0.7:
            add["stats"] = None
        else:
            add["tags"] = {}


def nothing(pool: Pool, random: Random, case: Case) -> None:
    """Leave the transaction without actions, or with a txn only."""
    case["actions"] = [row for row in case["actions"] if "txn" in row]


def nobody(pool: Pool, random: Random, case: Case) -> None:
    """Remove all winners."""
    case["winners"] = []
    case.pop("winner_mtimes_ms", None)


def undated(pool: Pool, random: Random, case: Case) -> None:
    for remove in rows_of([case["actions"]], "remove"):
        remove.pop("deletionTimestamp", None)
    for txn in rows_of([case["actions"], *case["winners"]], "txn"):
        txn.pop("lastUpdated", None)


def _some_side(random: Random, case: Case) -> Sequence[list[Row]]:
    return random.choice(([case["actions"]], [case["actions"]], case["winners"]))


def _some_commit(random: Random, case: Case) -> list[Row]:
    result: list[Row] = random.choice([case["actions"], case["actions"], *case["winners"]])
    return result


def _files(case: Case) -> Iterator[Row]:
    commits = [*case["table"]["base"], *case["winners"], case["actions"]]
    for kind in ("add", "remove"):
        yield from rows_of(commits, kind)


def _live(case: Case) -> list[Row]:
    result: dict[str, Row] = {}
    for row in (row for rows in case["table"]["base"] for row in rows):
        if "add" in row:
            result[row["add"]["path"]] = row["add"]
        elif "remove" in row:
            result.pop(row["remove"]["path"], None)
    return list(result.values())


def _removal(add: Row) -> Row:
    kept = ("path", "partitionValues", "size", "deletionVector", "baseRowId", "stats",
            "defaultRowCommitVersion")  # fmt: skip
    result = {name: copy.deepcopy(add[name]) for name in kept if name in add}
    more = {"deletionTimestamp": 1_700_000_200_000, "dataChange": True}
    return {**result, **more, "extendedFileMetadata": True}


def _vector(random: Random) -> Row:
    result = {"storageType": "u", "pathOrInlineDv": random.choice(VECTORS), "offset": 1}
    return {**result, "sizeInBytes": 36, "cardinality": random.randint(1, 3)}

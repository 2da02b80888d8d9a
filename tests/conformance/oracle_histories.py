"""New coherent cases: a table, what several commits did to it, and a transaction begun before.

Cases made of the vectors (`oracle_cases`) do much that no writer does. Here each winner does what a
writer may do to the table at that version, so that most transactions can be rebased over all of
them, and the written entry is compared.
"""

import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final

from tests.conformance.oracle_predicates import sql_of
from tests.conformance.oracle_table_changes import level_of
from tests.conformance.oracle_vectors import Case, Row

BEGIN_MS: Final = 1_700_000_000_000
PARTITIONS: Final = ("1", "1", "2", "3", "4", None)
"""Partitions of the table's files; the transaction is about those of the first two."""

COLUMNS: Final = (("id", "long"), ("x", "integer"), ("s", "string"), ("p", "integer"))
OF_READERS: Final = frozenset({"columnMapping", "deletionVectors", "v2Checkpoint"})
MAY_HAVE: Final[Sequence[tuple[str, ...]]] = (
    ("domainMetadata",),
    ("rowTracking", "domainMetadata"),
    ("inCommitTimestamp",),
    ("deletionVectors",),
    ("v2Checkpoint",),
    ("columnMapping",),
)
TRACKED: Final[Mapping[str, str]] = {
    "delta.enableRowTracking": "true",
    "delta.rowTracking.materializedRowIdColumnName": "_r",
    "delta.rowTracking.materializedRowCommitVersionColumnName": "_c",
}
TIMED: Final = "delta.enableInCommitTimestamps"
VECTORS: Final = "delta.enableDeletionVectors"
SUSPENDED: Final = "delta.rowTrackingSuspended"
IDS: Final = ("baseRowId", "defaultRowCommitVersion")
DELETED: Final = ("ab^-aqEH.-t@S}K{vb[*k^", "ab^-aqEH.-t@S}K{vb[*k#", "vBn[lx{q8@P<9BNH/isA")


def histories(seed: int) -> Iterator[Case]:
    """Yield an endless sequence of new cases; it depends on the seed only."""
    at = 0
    while True:
        yield _case_of(History(Random(f"history/{seed}/{at}")), f"history/{seed}-{at}")
        at += 1


class History:
    """A table that grows version by version."""

    def __init__(self, random: Random) -> None:
        """Create a table that has some features, and uses some of them."""
        self.random, self.version, self.mark, self.count = random, 0, -1, 0
        self.at_ms, self.files = BEGIN_MS + 1_000, dict[str, Row]()
        self.features = {"appendOnly", "invariants"}
        for names in MAY_HAVE:
            if random.random() < 0.5:
                self.features.update(names)
        self.own: dict[str, str] = {}
        if "rowTracking" in self.features and random.random() < 0.6:
            self.own.update(random.choice((TRACKED, TRACKED, {SUSPENDED: "true"})))
        for feature, key in (("inCommitTimestamp", TIMED), ("deletionVectors", VECTORS)):
            if feature in self.features and random.random() < 0.5:
                self.own[key] = "true"
        if random.random() < 0.3:
            self.own["delta.isolationLevel"] = "WriteSerializable"
        self.is_bare = TIMED not in self.own and "delta.enableRowTracking" not in self.own

    @property
    def tracks(self) -> bool:
        """Whether new files get row ids."""
        return "rowTracking" in self.features and SUSPENDED not in self.own

    def protocol(self, *more: str) -> Row:
        """Return the table's protocol with further features."""
        names = self.features.union(more)
        readers = sorted(names & OF_READERS)
        result: Row = {"minReaderVersion": 3 if readers else 1, "minWriterVersion": 7}
        result["writerFeatures"] = sorted(names)
        return {**result, "readerFeatures": readers} if readers else result

    def metadata(self, **more: str) -> Row:
        """Return the table's metadata with further properties."""
        fields = [
            {"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in COLUMNS
        ]
        return {
            "id": "11111111-1111-4111-8111-111111111111",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": fields}),
            "partitionColumns": ["p"],
            "configuration": {**self.own, **more},
            "createdTime": BEGIN_MS,
        }

    def file(self, partition: str | None, *, is_bare: bool = False, **more: Any) -> Row:
        """Add a file, with row ids if the table assigns them."""
        self.count += 1
        rows = self.random.choice((1, 3, 10))
        add = _file(f"w{self.count}", partition, rows, self.random.choice((0, 100)), **more)
        if self.tracks and not is_bare:
            add.update(zip(IDS, (self.mark + 1, self.version), strict=True))
            self.mark += rows
        self.files[add["path"]] = add
        return {"add": add}

    def pick(self) -> Row | None:
        """Return a file of the table, mostly one that the transaction is not about."""
        far = [file for file in self.files.values() if file["partitionValues"]["p"] != "1"]
        result = list(self.files.values()) if self.random.random() < 0.1 else far
        return self.random.choice(result) if result else None

    def commit(self, operation: str, *rows: Row, **more: Any) -> list[Row]:
        """Return a commit of some actions."""
        info = {"timestamp": BEGIN_MS, "operation": operation, "operationParameters": {}}
        info["isBlindAppend"] = all("add" in row and row["add"]["dataChange"] for row in rows)
        if self.own.get(TIMED) == "true":
            self.at_ms += self.random.choice((1, 50, 5_000))
            info["inCommitTimestamp"] = self.at_ms
        return copy.deepcopy([{"commitInfo": {**info, **more}}, *rows])

    def winner(self) -> list[Row]:
        """Return a winning commit of a random kind."""
        self.version += 1
        before = self.mark
        rows = self.random.choice(WINNERS)(self)
        if self.mark != before:
            result = json.dumps({"rowIdHighWaterMark": self.mark})
            rows.append(_domain("delta.rowTracking", result))
        return rows


def _appends(history: History) -> list[Row]:
    places = history.random.choices(("2", "3", "5", "1", None), (5, 5, 5, 2, 2), k=2)
    return history.commit("WRITE", *map(history.file, places))


def _streams(history: History) -> list[Row]:
    txn = {"appId": history.random.choice("ab"), "version": history.version}
    return history.commit("STREAMING UPDATE", {"txn": txn}, history.file("2"))


def _deletes(history: History) -> list[Row]:
    file = history.pick()
    return history.commit("DELETE", *([] if file is None else [_gone(history, file)]))


def _updates(history: History) -> list[Row]:
    file = history.pick()
    if file is None:
        return history.commit("UPDATE")
    gone = _gone(history, file)
    return history.commit("UPDATE", gone, history.file(file["partitionValues"]["p"]))


def _compacts(history: History) -> list[Row]:
    file = history.pick()
    if file is None:
        return history.commit("OPTIMIZE")
    gone = _gone(history, file, dataChange=False)
    new = history.file(file["partitionValues"]["p"], dataChange=False)
    return history.commit("OPTIMIZE", gone, new)


def _deletes_rows(history: History) -> list[Row]:
    file = history.pick()
    if file is None or VECTORS not in history.own or "deletionVector" in file:
        return _deletes(history)
    rows = _less(file, history.random.choice(DELETED))
    history.files[file["path"]] = rows[1]["add"]
    return history.commit("DELETE", *rows)


def _set_domain(history: History) -> list[Row]:
    if "domainMetadata" not in history.features:
        return history.commit("Empty Commit")
    name = history.random.choice(("acme.a", "acme.b"))
    return history.commit("X", _domain(name, "{}", removed=history.random.random() < 0.3))


def _counts_anew(history: History) -> list[Row]:
    file = history.pick()
    rows = [] if file is None else [{"add": {**file, "dataChange": False}}]
    return history.commit("COMPUTE STATS", *rows)


def _enables(history: History) -> list[Row]:
    features, own, at_ms = history.features, history.own, history.at_ms
    choices = [{"io.unitycatalog.tableId": "u"}]
    choices += [{VECTORS: "true"}] if "deletionVectors" in features else []
    choices += [{"delta.checkpointPolicy": "v2"}] if "v2Checkpoint" in features else []
    if history.tracks and all(IDS[0] in file for file in history.files.values()):
        choices.append(dict(TRACKED))
    if "inCommitTimestamp" in features and TIMED not in own:
        begun = f"{TIMED.replace('enableI', 'i').removesuffix('s')}Enablement"
        since = {f"{begun}Version": str(history.version), f"{begun}Timestamp": str(at_ms + 60)}
        choices.append({TIMED: "true", **since})
    if history.random.random() < 0.05:
        choices = [{"acme.owner": "you"}]
    chosen = history.random.choice(choices)
    own.update(chosen)
    result = {"metaData": history.metadata()}
    if TIMED in chosen:
        return history.commit("SET TBLPROPERTIES", result, inCommitTimestamp=at_ms + 60)
    return history.commit("SET TBLPROPERTIES", result)


def _upgrades(history: History) -> list[Row]:
    history.features.update(history.random.choice(MAY_HAVE))
    return history.commit("UPGRADE PROTOCOL", {"protocol": history.protocol()})


def _backfills(history: History) -> list[Row]:
    rows = []
    for path, file in list(history.files.items()) if history.tracks else ():
        if IDS[0] in file:
            continue
        given = dict(zip(IDS, (history.mark + 1, history.version), strict=True))
        history.mark += json.loads(file["stats"])["numRecords"]
        history.files[path] = {**file, **given, "dataChange": False}
        rows.append({"add": history.files[path]})
    return history.commit("ROW TRACKING BACKFILL" if rows else "WRITE", *rows)


WINNERS: Final[Sequence[Callable[[History], list[Row]]]] = (
    _appends, _appends, _streams, _deletes, _updates, _compacts, _deletes_rows, _set_domain,
    _counts_anew, _enables, _enables, _upgrades, _backfills,
)  # fmt: skip


def _case_of(history: History, name: str) -> Case:
    is_bare = "rowTracking" in history.features and history.is_bare
    files = [history.file(partition, is_bare=is_bare) for partition in PARTITIONS]
    start = [{"protocol": history.protocol()}, {"metaData": history.metadata()}, *files]
    if history.mark >= 0:
        result = json.dumps({"rowIdHighWaterMark": history.mark})
        start.append(_domain("delta.rowTracking", result))
    case: Case = {
        "name": name,
        "table": {
            "protocol": history.protocol(),
            "metaData": history.metadata(),
            "base": [history.commit("CREATE TABLE AS SELECT", *start)],
        },
        "read_version": 0,
    }
    before, live = copy.deepcopy(history), [copy.deepcopy(row["add"]) for row in files]
    case["winners"] = [history.winner() for _ in range(history.random.choice((1, 2, 2, 3, 4)))]
    made = _transactions(before, live)
    chosen = history.random.choice(sorted(made))
    operation, actions, ast = made[chosen]
    scans = [] if ast is None else [{"sql": sql_of(ast), "ast": ast}]
    case["reads"] = {"whole_table": False, "predicates": scans, "files": [], "app_ids": []}
    case["reads"].update(domains=[], app_ids=["a"] if chosen == "streams" else [])
    mode = {"mode": "Append"} if operation == "WRITE" else {}
    case.update(operation={"name": operation, "parameters": mode}, actions=actions, why=chosen)
    case["winner_mtimes_ms"] = [BEGIN_MS + 9_000 * at for at in range(len(case["winners"]))]
    case["isolation"] = level_of(case)
    return case


def _transactions(table: History, live: Sequence[Row]) -> dict[str, tuple[str, list[Row], Any]]:
    """Return possible transactions: operation, actions, and the rows that it read."""
    first, second = live[:2]
    near = {"op": "=", "column": ["p"], "value": 1, "type": "integer"}
    new, other = {"add": _file("q", "1", 5, 0)}, {"add": _file("r", "2", 2, 0)}
    same = [{"add": {**file, "dataChange": False}} for file in live]
    moved = [_removal(file, dataChange=False) for file in (first, second)]
    compact = [*moved, {"add": _file("q", "1", 5, 0, dataChange=False)}]
    changed = {"metaData": table.metadata(**{"acme.owner": "me"})}
    txn = {"txn": {"appId": "a", "version": 9}}
    result: dict[str, tuple[str, list[Row], Any]] = {
        "appends": ("WRITE", [new, other], None),
        "selects": ("WRITE", [other], near),
        "deletes": ("DELETE", [_removal(first)], near),
        "updates": ("UPDATE", [_removal(first), new], near),
        "replaces": ("REPLACE TABLE AS SELECT", [changed, *map(_removal, live), new], None),
        "compacts": ("OPTIMIZE", compact, near),
        "streams": ("STREAMING UPDATE", [txn, new], None),
        "sets": ("SET TBLPROPERTIES", [changed], None),
        "upgrades": ("UPGRADE PROTOCOL", [{"protocol": table.protocol("changeDataFeed")}], None),
        "counts": ("COMPUTE STATS", same[:2], near),
        "looks": ("WRITE", [], near),
    }
    if "domainMetadata" in table.features:
        result["says"] = ("X", [_domain("acme.a", "{}"), new], None)
    if VECTORS in table.own:
        result["deletes rows"] = ("DELETE", _less(first, DELETED[0]), near)
    if "inCommitTimestamp" in table.features and TIMED not in table.own:
        result["times"] = (
            "SET TBLPROPERTIES",
            [{"metaData": table.metadata(**{TIMED: "true"})}],
            None,
        )
    if table.tracks and IDS[0] not in first:
        result["backfills"] = ("ROW TRACKING BACKFILL", same, None)
    if SUSPENDED in table.own:
        result["unbackfills"] = ("ROW TRACKING UNBACKFILL", same, None)
    if table.tracks and IDS[0] in first:
        kept = {**new["add"], **{name: first[name] for name in IDS}}
        result["copies"] = ("UPDATE", [_removal(first), {"add": kept}], near)
    return result


def _file(name: str, partition: str | None, rows: int, low: int, **more: Any) -> Row:
    stats = {"numRecords": rows, "minValues": {"x": low}, "maxValues": {"x": low + 9}}
    return {
        "path": f"p={partition}/part-{name}-c000.snappy.parquet",
        "partitionValues": {"p": partition},
        "size": 1_000 + rows,
        "modificationTime": BEGIN_MS + 100_000,
        "dataChange": True,
        "stats": json.dumps({**stats, "nullCount": {"x": 0}}),
        **more,
    }


def _removal(file: Row, **more: Any) -> Row:
    kept = ("path", "partitionValues", "size", "deletionVector", "stats", *IDS)
    result = {name: file[name] for name in kept if name in file}
    result.update(deletionTimestamp=BEGIN_MS, dataChange=True, extendedFileMetadata=True)
    return {"remove": {**result, **more}}


def _gone(history: History, file: Row, **more: Any) -> Row:
    return _removal(history.files.pop(file["path"]), **more)


def _less(file: Row, name: str) -> list[Row]:
    vector = {"storageType": "u", "pathOrInlineDv": name, "offset": 1, "sizeInBytes": 36}
    wide = json.dumps({**json.loads(file["stats"]), "tightBounds": False})
    less = {**file, "deletionVector": {**vector, "cardinality": 1}, "stats": wide}
    return [_removal(file), {"add": {**less, "dataChange": True}}]


def _domain(name: str, text: str, *, removed: bool = False) -> Row:
    return {"domainMetadata": {"domain": name, "configuration": text, "removed": removed}}

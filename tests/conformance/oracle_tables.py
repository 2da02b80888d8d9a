"""Tables of many kinds for the oracle, and how commits change them.

Nested and mapped columns, clustering, identity and generated columns, old protocols, widened types,
timestamps enabled midway, several versions. The operations on them are in `oracle_row_doings` and
`oracle_definition_doings`.
"""

import copy
import json
from collections.abc import Sequence
from random import Random
from typing import Any, Final

from tests.conformance.oracle_vectors import Row

BEGIN_MS: Final = 1_700_000_000_000
IDS: Final = ("baseRowId", "defaultRowCommitVersion")
TIMED: Final = "delta.enableInCommitTimestamps"
BEGUN: Final = "delta.inCommitTimestampEnablement"
VECTORS: Final = "delta.enableDeletionVectors"
TRACKS: Final = "delta.enableRowTracking"
SUSPENDED: Final = "delta.rowTrackingSuspended"
LEVEL: Final = "delta.isolationLevel"
MAPPING: Final = "delta.columnMapping."
FEED: Final = "delta.enableChangeDataFeed"
OF_READERS: Final = frozenset(
    {"columnMapping", "deletionVectors", "v2Checkpoint", "typeWidening", "typeWidening-preview",
     "timestampNtz", "vacuumProtocolCheck"}
)  # fmt: skip
NAMES: Final = {
    "delta.rowTracking.materializedRowIdColumnName": "_r",
    "delta.rowTracking.materializedRowCommitVersionColumnName": "_c",
}
INNER: Final = {"name": "c", "type": "short", "nullable": True, "metadata": {}}
ITEMS: Final = {
    "type": "array",
    "elementType": {"type": "struct", "fields": [INNER]},
    "containsNull": True,
}
NESTED: Final = {
    "type": "struct",
    "fields": [
        {"name": "a", "type": "integer", "nullable": True, "metadata": {}},
        {"name": "b", "type": ITEMS, "nullable": True, "metadata": {"comment": "inside"}},
    ],
}
PAIRS: Final = {
    "type": "map",
    "keyType": "integer",
    "valueType": "decimal(10,2)",
    "valueContainsNull": False,
}


class Table:
    """A table at some version: its state, and how it evolves."""

    def __init__(self, random: Random) -> None:
        """Create a plain table, partitioned by `p`, without any commit."""
        self.random, self.version, self.mark, self.count = random, -1, -1, 0
        self.at_ms, self.files, self.gone = BEGIN_MS, dict[str, Row](), dict[str, Row]()
        self.features: set[str] | None = {"appendOnly", "invariants"}
        self.legacy = (1, 2)
        self.own: dict[str, str] = {}
        self.domains: dict[str, str] = {}
        self.keys, self.fields = (
            ["p"],
            [
                field("id", "long"),
                field("x", "integer"),
                field("s", "string"),
                field("p", "integer"),
            ],
        )
        self.about: Row = {}
        self.kind = "plain"

    def support(self, *names: str) -> None:
        """Add support of some features, and of those that they require."""
        if self.features is None:
            self.features = {"appendOnly", "invariants"}
            if self.legacy[1] > 2:
                self.features |= {"checkConstraints"}
            if self.legacy[1] > 3:
                self.features |= {"changeDataFeed", "generatedColumns"}
            if self.legacy[1] > 4:
                self.features |= {"columnMapping"}
            if self.legacy[1] > 5:
                self.features |= {"identityColumns"}
        self.features.update(names)
        if self.features & {"rowTracking", "clustering"}:
            self.features.add("domainMetadata")

    def has(self, name: str) -> bool:
        """Return whether the protocol lists a feature."""
        return self.features is not None and name in self.features

    @property
    def tracks(self) -> bool:
        """Whether new files get row ids."""
        return self.has("rowTracking") and self.own.get(SUSPENDED) != "true"

    @property
    def protocol(self) -> Row:
        """The table's protocol."""
        if self.features is None:
            return dict(zip(("minReaderVersion", "minWriterVersion"), self.legacy, strict=True))
        readers = sorted(self.features & OF_READERS)
        result: Row = {"minReaderVersion": 3 if readers else 1, "minWriterVersion": 7}
        result["writerFeatures"] = sorted(self.features)
        return {**result, "readerFeatures": readers} if readers else result

    @property
    def metadata(self) -> Row:
        """The table's metadata."""
        return {
            "id": "11111111-1111-4111-8111-111111111111",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": self.fields}),
            "partitionColumns": list(self.keys),
            "configuration": dict(self.own),
            "createdTime": BEGIN_MS,
            **self.about,
        }

    def physical(self, name: str) -> str:
        """Return a column's physical name."""
        [found] = [field for field in self.fields if field["name"] == name]
        result: str = found["metadata"].get(f"{MAPPING}physicalName", name)
        return result

    def map_names(self, *, again: bool) -> None:
        """Map columns by name, with new physical names or the present names."""
        self.support("columnMapping")
        at = [0]

        def mapped(node: Any) -> None:
            if isinstance(node, list):
                for item in node:
                    mapped(item)
            elif isinstance(node, dict):
                if "name" in node:
                    at[0] += 1
                    result = f"col-{at[0]}" if again else node["name"]
                    node["metadata"].update(
                        {f"{MAPPING}id": at[0], f"{MAPPING}physicalName": result}
                    )
                for key in ("fields", "type", "elementType", "valueType"):
                    mapped(node.get(key))

        mapped(self.fields)
        self.own.update({f"{MAPPING}mode": "name", f"{MAPPING}maxColumnId": str(at[0])})

    def file(self, partition: str | None, **more: Any) -> Row:
        """Return a new file as a writer adds it."""
        self.count += 1
        rows, low = self.random.choice((1, 3, 10)), self.random.choice((0, 100))
        name = self.physical("x")
        stats = {"numRecords": rows, "minValues": {name: low}, "maxValues": {name: low + 9}}
        values = {self.physical(key): partition for key in self.keys}
        folder = "".join(f"{key}={partition}/" for key in self.keys)
        return {
            "path": f"{folder}part-{self.version}-{self.count}.snappy.parquet",
            "partitionValues": values,
            "size": 1_000 + rows,
            "modificationTime": BEGIN_MS + 100_000,
            "dataChange": True,
            "stats": json.dumps({**stats, "nullCount": {name: 0}}),
            **more,
        }

    def partition_of(self, file: Row) -> str | None:
        """Return a file's partition."""
        return next(iter(file["partitionValues"].values()), None)

    def near(self, partition: str | None) -> list[Row]:
        """Return the files of a partition."""
        return [file for file in self.files.values() if self.partition_of(file) == partition]

    def apply(self, rows: Sequence[Row], at_ms: int | None = None) -> list[Row]:
        """Apply a winning transaction; return its actions with what is assigned at commit."""
        self.version += 1
        done, before = copy.deepcopy(list(rows)), self.mark
        for row in done:
            if "metaData" in row:
                self._define(row["metaData"])
            if "protocol" in row:
                result = row["protocol"]
                self.features = (
                    set(result["writerFeatures"]) if "writerFeatures" in result else None
                )
                self.legacy = (result["minReaderVersion"], result["minWriterVersion"])
        for row in done:
            self._keep(row)
        if self.mark != before:
            result = json.dumps({"rowIdHighWaterMark": self.mark})
            done.append(domain("delta.rowTracking", result))
        if at_ms is not None:
            self.at_ms = at_ms
        return done

    def _define(self, told: Row) -> None:
        self.own = dict(told["configuration"])
        self.fields = json.loads(told["schemaString"])["fields"]
        self.keys = list(told["partitionColumns"])
        self.about = {name: told[name] for name in ("name", "description") if name in told}

    def _keep(self, row: Row) -> None:
        if "add" in row:
            add = row["add"]
            if self.tracks and IDS[0] not in add:
                add.update(zip(IDS, (self.mark + 1, self.version), strict=True))
                self.mark += json.loads(add["stats"])["numRecords"]
            self.files[add["path"]] = add
        elif "remove" in row and row["remove"]["path"] in self.files:
            gone = self.files[row["remove"]["path"]]
            if gone.get("deletionVector") == row["remove"].get("deletionVector"):
                self.gone[gone["path"]] = self.files.pop(gone["path"])
        elif "domainMetadata" in row:
            result = row["domainMetadata"]
            self.domains[result["domain"]] = result["configuration"]
            if result["removed"]:
                del self.domains[result["domain"]]


def field(name: str, kind: Any, **about: Any) -> Row:
    """Return a column."""
    return {"name": name, "type": copy.deepcopy(kind), "nullable": True, "metadata": about}


def domain(name: str, text: str, *, removed: bool = False) -> Row:
    """Return a domainMetadata action."""
    return {"domainMetadata": {"domain": name, "configuration": text, "removed": removed}}


def removal(file: Row, **more: Any) -> Row:
    """Return the remove of a file."""
    kept = ("path", "partitionValues", "size", "deletionVector", "stats", *IDS)
    result = {name: file[name] for name in kept if name in file}
    result.update(deletionTimestamp=BEGIN_MS, dataChange=True, extendedFileMetadata=True)
    return {"remove": {**result, **more}}


def nested(table: Table) -> None:
    """Nested columns."""
    table.fields[2:2] = [field("n", NESTED), field("m", PAIRS)]


def mapped(table: Table) -> None:
    """Columns with physical names of their own, nested ones too."""
    nested(table)
    table.map_names(again=True)


def clustered(table: Table) -> None:
    """Clustered instead of partitioned."""
    table.keys = []
    table.support("clustering")
    table.domains["delta.clustering"] = json.dumps({"clusteringColumns": [["x"]]})


def counted(table: Table) -> None:
    """An identity column and a generated column."""
    table.support("identityColumns", "generatedColumns")
    result = {"start": 1, "step": 1, "allowExplicitInsert": True, "highWaterMark": 7}
    table.fields[0]["metadata"] = {f"delta.identity.{name}": one for name, one in result.items()}
    table.fields[2]["metadata"] = {"delta.generationExpression": "CAST(x AS STRING)"}


def legacy(table: Table) -> None:
    """A protocol without table features."""
    table.legacy = table.random.choice(((1, 2), (1, 3), (1, 4), (2, 5), (2, 6)))
    table.features = None
    if table.legacy[1] > 2 and table.random.random() < 0.4:
        table.own["delta.constraints.c"] = "x > -100"
    if table.legacy[1] > 3 and table.random.random() < 0.4:
        table.own[FEED] = "true"
    if table.legacy[1] > 4 and table.random.random() < 0.5:
        table.map_names(again=False)
        table.features = None


def widened(table: Table) -> None:
    """Columns whose types have changed."""
    nested(table)
    name = table.random.choice(("typeWidening", "typeWidening", "typeWidening-preview"))
    table.support(name)
    table.own["delta.enableTypeWidening"] = "true"
    change: Row = {"fromType": "short", "toType": "integer"}
    if name.endswith("preview"):
        change["tableVersion"] = 0
    table.fields[1]["metadata"]["delta.typeChanges"] = [change]


def with_defaults(table: Table) -> None:
    """A column with a default value."""
    table.support("allowColumnDefaults")
    table.fields[2]["metadata"] = {"CURRENT_DEFAULT": "'a'", "EXISTS_DEFAULT": "'a'"}


def in_two_columns(table: Table) -> None:
    """Partitioned by two columns."""
    table.keys = ["p", "q"]
    table.fields.append(field("q", "string"))


def plain(table: Table) -> None:
    """No further properties."""


def unpartitioned(table: Table) -> None:
    """Not partitioned."""
    table.keys = []


KINDS: Final = (
    nested, mapped, clustered, counted, legacy, widened, with_defaults, in_two_columns, plain,
    unpartitioned,
)  # fmt: skip


def table_of_some_kind(random: Random) -> Table:
    """Return a table of a random kind with further features, and uses of some of them."""
    table = Table(random)
    kind = random.choice(KINDS)
    kind(table)
    table.kind = kind.__name__
    if kind is not legacy:
        for names in ("rowTracking", "inCommitTimestamp", "deletionVectors", "v2Checkpoint"):
            if random.random() < 0.5:
                table.support(names)
        if random.random() < 0.2:
            table.support("checkpointProtection")
        if random.random() < 0.2:
            table.support("vacuumProtocolCheck")
        if table.has("rowTracking"):
            chosen = random.choice((0, 1, 2, 2, 3))
            if chosen == 1:
                table.own[SUSPENDED] = "true"
            elif chosen > 1:
                table.own.update({TRACKS: "true", **NAMES})
        if table.has("deletionVectors") and random.random() < 0.8:
            table.own[VECTORS] = "true"
        if table.has("inCommitTimestamp") and random.random() < 0.5:
            table.own[TIMED] = "true"
    if random.random() < 0.3:
        table.own[LEVEL] = "WriteSerializable"
    return table

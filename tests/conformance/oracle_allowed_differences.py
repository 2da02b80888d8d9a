"""Where our committer may decide otherwise than delta-spark, and why: docs/adr/0015, as code.

It uses no code of the committer: it shows the finer decisions by looking at rows.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Final

Case = Mapping[str, Any]
Told = Mapping[str, Any]
Truth = bool | None

BINDING: Final = frozenset(
    {
        "invariants", "checkConstraints", "generatedColumns", "identityColumns", "clustering",
        "allowColumnDefaults", "materializePartitionColumns", "checkpointProtection",
        "variantType", "variantType-preview", "variantShredding", "collations-preview",
    }
)  # fmt: skip
"""Features that, when added, fail earlier readers: delta-spark's own check, off by default."""

NOT_WRITTEN: Final = frozenset(
    {"materializePartitionColumns", "catalogManaged", "collations-preview"}
)
FILES_OF_ANOTHER_STATE: Final = frozenset(
    {"added_file_live", "removed_file_not_live", "rows_from_nowhere"}
)
OWN_FLAWS: Final = FILES_OF_ANOTHER_STATE | {
    "DELTA_DOMAIN_METADATA_NOT_SUPPORTED",
    "DELTA_FEATURES_PROTOCOL_METADATA_MISMATCH",
    "DELTA_FEATURE_DROP_CONFLICT_REVALIDATION_FAIL",
    "DELTA_FEATURE_DROP_UNSUPPORTED_CLIENT_FEATURE",
    "DELTA_INVALID_PROTOCOL_DOWNGRADE",
    "bad_metadata",
    "reserved_domain",
}
DECLINED: Final[Mapping[str, str]] = {
    "declined": "a feature that this release does not write",
    "BrokenLog": "a winner says of the table two things at once",
}
ROWS_MAX: Final = 200
DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")


def excuse(case: Case, theirs: Told, ours: Told) -> str | None:
    """Return why two decisions on a case may differ, or None if one of them is wrong."""
    said = (ours.get("error_class") or "").partition(".")[0]
    if said in DECLINED:
        return DECLINED[said]
    if theirs["verdict"] != "committed" and theirs["winner_version"] is None:
        return "the table or the transaction is broken by itself" if _is_odd(theirs) else None
    if theirs.get("exception") == "MetadataChangedException" and _tagged(case):
        return "identity values that were given out change nothing for what comes after"
    if _is_append(theirs) and not may_miss(case, theirs) and _goes_on(theirs, ours):
        return "no row was missed"
    if theirs.get("error_class") == "CAST_INVALID_INPUT" and _is_empty_alone(case, theirs):
        return "an empty text is null, whatever the type"
    if ours["verdict"] == "committed":
        is_asserted = theirs.get("exception") == "AssertionError" and _names_row_ids(case)
        return "a winner says it gave row ids to a table that has none" if is_asserted else None
    if theirs["verdict"] == "committed" and said in FILES_OF_ANOTHER_STATE:
        return "the log would say of files what is not so"
    if theirs.get("error_class") == "CAST_INVALID_INPUT" and '"opaque"' in json.dumps(
        case["reads"]
    ):
        return "both refuse: delta-spark evaluates what it takes for true, too"
    if theirs["verdict"] != "committed" and said in OWN_FLAWS:
        return "both refuse: it is told what is wrong with itself before what others did"
    return next((why for name, holds, why in STRICTER if said == name and holds(case)), None)


def _is_odd(theirs: Told) -> bool:
    """Return whether delta-spark failed before deciding, so that its result does not count."""
    return theirs["error_class"] == "DELTA_FEATURES_PROTOCOL_METADATA_MISMATCH" or (
        theirs["exception"] in ("IllegalStateException", "NoSuchElementException")
    )


def _is_append(theirs: Told) -> bool:
    return bool(theirs.get("exception") == "ConcurrentAppendException")


def _names_row_ids(case: Case) -> bool:
    infos = (row["commitInfo"] for row in _winning(case) if "commitInfo" in row)
    return any(info.get("operation", "").startswith("ROW TRACKING") for info in infos)


def _goes_on(theirs: Told, ours: Told) -> bool:
    """Return whether we found no conflict before the winner that delta-spark names."""
    result = ours.get("winner_version")
    return ours["verdict"] == "committed" or bool((result or 0) >= theirs["winner_version"])


def _is_empty_alone(case: Case, theirs: Told) -> bool:
    """Return whether a winner's partition values are whole numbers except for empty ones."""
    rows = case["winners"][theirs["winner_version"] - case["read_version"] - 1]
    result = {
        text for row in rows for text in row.get("add", {}).get("partitionValues", {}).values()
    }
    return "" in result and all(text.lstrip("+-").isdecimal() for text in result - {"", None})


def _names_an_empty_text(adds: Iterable[Mapping[str, Any]]) -> bool:
    return any("" in (add.get("partitionValues") or {}).values() for add in adds)


def _named_by_winners(case: Case) -> frozenset[str]:
    known = set(case["table"]["protocol"].get("writerFeatures", ()))
    result = (row["protocol"] for row in _winning(case) if "protocol" in row)
    return frozenset(name for item in result for name in item.get("writerFeatures", ())) - known


def _hidden_from_readers(case: Case) -> frozenset[str]:
    binding = {"columnMapping", "deletionVectors", "v2Checkpoint", "catalogManaged"}
    return frozenset(
        name
        for item in _own(case, "protocol")
        for name in binding.intersection(item.get("writerFeatures", ()))
        if name not in item.get("readerFeatures", ())
    )


def _scales_otherwise(case: Case) -> bool:
    """Return whether a new file's decimal partition value has another scale than its column."""
    fields = json.loads(case["table"]["metaData"]["schemaString"])["fields"]
    places = {
        field["name"]: int(found[1])
        for field in fields
        if (found := re.fullmatch(r"decimal\(\d+, ?(\d+)\)", str(field["type"])))
    }
    return any(
        len(text.partition(".")[2]) != places[name]
        for add in _own(case, "add")
        for name, text in add.get("partitionValues", {}).items()
        if name in places and text
    )


def _changes_partition(case: Case) -> bool:
    """Return whether a file is removed and added again with other partition values."""
    left = {item["path"]: item.get("partitionValues") for item in _own(case, "remove")}
    return any(
        left.get(add["path"]) and left[add["path"]] != add.get("partitionValues")
        for add in _own(case, "add")
    )


def _timed_otherwise(case: Case) -> bool:
    """Return whether a new file's timestamp_ntz partition value has a T in it."""
    fields = json.loads(case["table"]["metaData"]["schemaString"])["fields"]
    names = {field["name"] for field in fields if field["type"] == "timestamp_ntz"}
    values = (add.get("partitionValues", {}) for add in _own(case, "add"))
    return any("T" in (value.get(name) or "") for value in values for name in names)


def _tracks_rows_namelessly(metadata: Mapping[str, Any]) -> bool:
    configuration = metadata.get("configuration", {})
    is_on = configuration.get("delta.enableRowTracking") == "true"
    return is_on and sum("materializedRow" in name for name in configuration) < 2


def _is_iceberg_alone(protocol: Mapping[str, Any]) -> bool:
    listed = protocol.get("writerFeatures", ())
    is_iceberg = any(name.startswith("icebergCompat") for name in listed)
    return is_iceberg and "columnMapping" not in listed


def _own(case: Case, kind: str) -> Iterator[Mapping[str, Any]]:
    return (row[kind] for row in case["actions"] if kind in row)


def _tagged(case: Case) -> bool:
    infos = (row["commitInfo"] for row in _winning(case) if "commitInfo" in row)
    return any("delta.identity.schemaUpdate" in (info.get("tags") or {}) for info in infos)


def _own_stats(case: Case) -> Iterator[str]:
    return (add["stats"] for add in _own(case, "add") if add.get("stats") is not None)


def _winning(case: Case) -> Iterator[Mapping[str, Any]]:
    return (row for rows in case["winners"] for row in rows)


STRICTER: Final[Sequence[tuple[str, Callable[[Case], bool], str]]] = (
    (
        "DELTA_PROTOCOL_CHANGED",
        lambda case: bool(_named_by_winners(case) & BINDING),
        "a winner asks something of files that are written",
    ),
    (
        "DELTA_UNSUPPORTED_FEATURES_FOR_WRITE",
        lambda case: bool(_named_by_winners(case) & NOT_WRITTEN),
        "a feature that this release does not write",
    ),
    (
        "DELTA_INVALID_PROTOCOL_DOWNGRADE",
        lambda case: bool(_hidden_from_readers(case)),
        "what binds readers is listed for writers alone",
    ),
    ("DELTA_METADATA_CHANGED", lambda case: _tagged(case), "a tag is not believed"),
    (
        "DELTA_CONCURRENT_APPEND",
        lambda case: "opaque_str" in json.dumps(case["reads"]),
        "a function that is a conjunct can't be run",
    ),
    (
        "DELTA_FEATURE_DROP_CONFLICT_REVALIDATION_FAIL",
        lambda case: True,
        "a feature in use is not dropped",
    ),
    (
        "DELTA_NOT_NULL_CONSTRAINT_VIOLATED",
        lambda case: (
            '"nullable":false' in case["table"]["metaData"]["schemaString"].replace(" ", "")
        ),
        "null where the schema has none",
    ),
    (
        "malformed",
        lambda case: any("numRecords" not in text for text in _own_stats(case)),
        "statistics without a count",
    ),
    (
        "DELTA_INVALID_PARTITIONING_SCHEMA",
        lambda case: _scales_otherwise(case),
        "delta-rs reads no table with a decimal of another scale among its partition values",
    ),
    (
        "DELTA_INVALID_PARTITIONING_SCHEMA",
        lambda case: _names_an_empty_text(_own(case, "add")),
        "null is written as null: an empty text is a value to delta-spark alone",
    ),
    (
        "DELTA_CONCURRENT_APPEND",
        lambda case: _names_an_empty_text(row["add"] for row in _winning(case) if "add" in row),
        "a winner's empty text is null to every reader but delta-spark",
    ),
    (
        "DELTA_INVALID_PARTITIONING_SCHEMA",
        lambda case: _changes_partition(case),
        "rows stay in the partition in which their file lies",
    ),
    (
        "DELTA_INVALID_PARTITIONING_SCHEMA",
        lambda case: _timed_otherwise(case),
        "a time without a zone is spelt with a blank",
    ),
    (
        "DELTA_MATERIALIZED_ROW_TRACKING_COLUMN_NAME_MISSING",
        lambda case: any(_tracks_rows_namelessly(one) for one in _own(case, "metaData")),
        "who turns row tracking on names the columns that keep the ids",
    ),
    (
        "constraint_not_validated",
        lambda case: not case["reads"]["whole_table"],
        "a constraint that is new, on rows that nobody has looked at",
    ),
    (
        "DELTA_FEATURES_PROTOCOL_METADATA_MISMATCH",
        lambda case: any(
            "CURRENT_DEFAULT" in one["schemaString"] for one in _own(case, "metaData")
        ),
        "a column default without its feature, which delta-spark's commands ask for",
    ),
    (
        "DELTA_UNSUPPORTED_COLUMN_MAPPING_MODE_CHANGE",
        lambda case: any("add" in row for row in _winning(case)),
        "files that stay would have their columns under other names",
    ),
    (
        "DELTA_ICEBERG_COMPAT_VIOLATION",
        lambda case: any(_is_iceberg_alone(one) for one in _own(case, "protocol")),
        "a protocol that lists Iceberg compatibility lists what that needs",
    ),
)
"""Our error class, the cases in which it is allowed, and the reason."""


def may_miss(case: Case, theirs: Told) -> bool:
    """Return whether a file of the winner may hold a row that a scan matches."""
    reads = case["reads"]
    if reads["whole_table"]:
        return True
    rows = case["winners"][theirs["winner_version"] - case["read_version"] - 1]
    adds = [row["add"] for row in rows if "add" in row]
    scans = [read["ast"] for read in reads["predicates"]]
    return any(
        True in truths(scan, row) for add in adds for row in _rows(case, add) for scan in scans
    )


def _rows(case: Case, add: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the possible rows of a file, as far as known; `...` stands for any value."""
    metadata = case["table"]["metaData"]
    fields = json.loads(metadata["schemaString"])["fields"]
    stated = json.loads(add.get("stats") or "{}")
    columns: dict[str, list[Any]] = {}
    for field in fields:
        own = field["metadata"].get("delta.columnMapping.physicalName", field["name"])
        name = field["name"].lower()
        if field["name"] in metadata["partitionColumns"]:
            columns[name] = [_partition(add["partitionValues"].get(own), field["type"])]
        else:
            columns[name] = _values(stated, own, field["type"])
    for values in product(*columns.values()):
        yield dict(zip(columns, values, strict=True))


def _partition(text: str | None, kind: str) -> Any:
    if not text or kind == "string":
        # Readers take an empty string for null.
        return text or None
    if kind in ("integer", "long", "short", "byte"):
        return int(text)
    if kind == "date" and DATE.fullmatch(text):
        # Complete ISO dates are ordered as their strings are.
        return text
    return ...


def _values(stated: Mapping[str, Any], name: str, kind: str) -> list[Any]:
    low, high = (stated.get(side, {}).get(name) for side in ("minValues", "maxValues"))
    nulls, count = stated.get("nullCount", {}).get(name), stated.get("numRecords")
    if nulls is not None and nulls == count:
        return [None]
    if kind != "integer" or low is None or high is None or high - low > ROWS_MAX:
        return [...]
    return [*range(low, high + 1), *([] if nulls == 0 else [None])]


def truths(node: Mapping[str, Any], row: Mapping[str, Any]) -> set[Truth]:
    """Return the possible results of a predicate on a row."""
    match node["op"]:
        case "true":
            return {True}
        case "opaque":
            return {True, False, None}
        case "not":
            return {None if truth is None else not truth for truth in truths(node["arg"], row)}
        case "and" | "or" as op:
            parts = [truths(arg, row) for arg in node["args"]]
            return {_joined(op, chosen) for chosen in product(*parts)}
    value = row.get(node["column"][0].lower(), ...)
    if value is ...:
        return {None} if _is_never_true(node) else {True, False, None}
    return {_truth(node, value)}


def _is_never_true(node: Mapping[str, Any]) -> bool:
    """Return whether a predicate compares only with null."""
    if node["op"] == "in":
        return all(item is None for item in node["values"])
    return node["op"] not in ("is_null", "is_not_null", "<=>") and node["value"] is None


def _joined(op: str, chosen: tuple[Truth, ...]) -> Truth:
    decides = op == "or"
    if decides in chosen:
        return decides
    return None if None in chosen else not decides


def _truth(node: Mapping[str, Any], value: Any) -> Truth:
    op = node["op"]
    if op == "is_null":
        return value is None
    if op == "is_not_null":
        return value is not None
    if op == "in":
        result = [_compared("=", value, item) for item in node["values"]]
        return True if True in result else None if None in result else False
    return _compared(op, value, node["value"])


def _compared(op: str, one: Any, other: Any) -> Truth:
    if op == "<=>":
        return bool(one == other)
    if one is None or other is None:
        return None
    return bool(
        {
            "=": one == other,
            "!=": one != other,
            "<": one < other,
            "<=": one <= other,
            ">": one > other,
            ">=": one >= other,
        }[op]
    )

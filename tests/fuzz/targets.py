"""The fuzz targets: each parser of foreign bytes, with valid inputs.

A target takes any bytes. It returns, or raises an error that is a finding: any error but ours, and
but the ValueError that the log's primitive decoders document (z85, bitmaps, partition values).
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from uuid import UUID

import orjson
import pyarrow as pa

from tests import builders
from tests.builders import add, metadata, protocol, schema, to_bytes
from tests.checkpoints import Form
from tests.fuzz import tables
from tests.fuzz.tables import DATA, HEAD, KINDS, VECTOR, allowed, holding, silent, use
from tidegate_committer.intake.proposal_reader import read_record
from tidegate_committer.policy import Policy
from tidegate_delta.change_feed import plan
from tidegate_delta.checkpoints import last_checkpoint, version_checksum
from tidegate_delta.checkpoints.parsed_stats import parsed_of
from tidegate_delta.constraints.column_defaults import column_defaults
from tidegate_delta.constraints.generated_columns import generated_columns
from tidegate_delta.constraints.identity_columns import identity_columns
from tidegate_delta.constraints.row_constraints import requirements
from tidegate_delta.data_skipping.partition_predicates import evaluate, may_match_partition, prune
from tidegate_delta.data_skipping.predicate_tree import predicate_problem
from tidegate_delta.definitions.definition import Definition
from tidegate_delta.definitions.definition_changes import check_change
from tidegate_delta.definitions.definition_checks import check_definition
from tidegate_delta.deletion_vectors import descriptors, roaring_bitmap
from tidegate_delta.features.supported_features import (
    check_readable,
    check_writable,
    minimum_protocol,
)
from tidegate_delta.log import file_paths
from tidegate_delta.log.actions import DeletionVector, Metadata
from tidegate_delta.log.commit import Commit
from tidegate_delta.log.file_names import commit_name, compacted_name, in_log, parse
from tidegate_delta.properties import table_properties
from tidegate_delta.schema import partition_values
from tidegate_delta.schema.arrow_types import to_arrow
from tidegate_delta.schema.types import format_schema, parse_schema, parse_type
from tidegate_delta.snapshots.replay import (
    BYTES_MIN,
    is_reconciled,
    parse_log_file,
    parse_log_files,
)
from tidegate_messages import codec, commit_provenance, record_headers, stream_position
from tidegate_runtime.table_io.data_file_reader import read_table
from tidegate_runtime.table_io.open_table import open_snapshot
from tidegate_runtime.table_io.table_files import open_table_file

Feed = Callable[[bytes], object]


@dataclass(frozen=True)
class Target:
    """A target: `feed` takes any bytes; `samples` returns some valid ones."""

    feed: Feed
    samples: Callable[[], tuple[bytes, ...]]


def promised(call: Callable[..., Any], *args: Any) -> Any:
    """Return the result of a primitive decoder, or None if it refuses as documented."""
    try:
        return allowed(call, *args)
    except ValueError as error:
        return silent(error)


def text_of(data: bytes) -> str:
    """Return bytes as text that JSON or a file name could hold."""
    return data.decode("utf-8", "replace")


def commits(data: bytes) -> None:
    """A commit, parsed as objects, as columns and as a plan of changes."""
    commit = allowed(Commit.decode, 1, data)
    if commit is not None:
        allowed(Commit.decode, 1, commit.encode())
        allowed(plan, commit, 0)
        commit_provenance.of(commit)
        commit.is_blind_append, commit.removed, commit.txns  # noqa: B018 - reading is what is tried
    part = allowed(parse_log_file, commit_name(1), data)
    if part is not None:
        is_reconciled(part)


def many_adds(data: bytes) -> None:
    """The bulk reader of a commit's adds agrees with the reader of single lines."""
    alone = allowed(parse_log_file, commit_name(1), data)
    several = allowed(parse_log_files, [(commit_name(1), data)])
    assert (alone is None) == (several is None), "one way of reading refuses, the other does not"
    if alone is not None:
        result, wanted = (sorted(map(str, item.files.to_pylist())) for item in (several[0], alone))
        assert result == wanted


def in_table(files: Callable[[], tables.Files], path: str) -> Feed:
    """One file of a table has the fuzzed bytes; the table is used."""
    return lambda data: use(holding(files(), path, data))


def in_v2(form: Form, *, is_sidecar: bool) -> Feed:
    """The checkpoint of a cleaned-up log, or its first sidecar, has the fuzzed bytes."""

    def feed(data: bytes) -> None:
        files, name = tables.with_v2(form)
        sidecar = min(path for path in files if "_sidecars/" in path)
        use(holding(files, sidecar if is_sidecar else name, data))

    return feed


def v2_sample(form: Form, *, is_sidecar: bool) -> tuple[bytes, ...]:
    files, name = tables.with_v2(form)
    sidecar = min(path for path in files if "_sidecars/" in path)
    return (files[sidecar if is_sidecar else name],)


def names(data: bytes) -> None:
    """A file of the log has the fuzzed name."""
    name = text_of(data).replace("/", "").strip(".")
    parse(name)
    if name:
        use(holding(tables.template(), in_log(name), tables.template()[in_log(commit_name(1))]))


def schemas(data: bytes) -> None:
    """A schemaString, in a table and alone."""
    text = text_of(data)
    result = allowed(parse_schema, text)
    about = Metadata.model_validate({**metadata()["metaData"], "schemaString": text})
    for check in (check_readable, check_writable):
        allowed(check, open_snapshot(holding(tables.template(), "x", b"")).protocol, about, "here")
    if result is not None:
        to_arrow(result)
        allowed(parse_schema, format_schema(result))
    row = metadata()
    row["metaData"]["schemaString"] = text
    use(holding(tables.template(), in_log(commit_name(2)), to_bytes([row])))


def definitions(data: bytes) -> None:
    """A table's metaData and protocol, one row each, through all their checks."""
    result = allowed(parse_log_file, commit_name(0), data)
    if result is None or result.metadata is None or result.protocol is None:
        return
    one = Definition(result.metadata, result.protocol)
    known = allowed(parse_schema, one.metadata.schema_string)
    if known is None:
        return
    for check in (check_readable, check_writable):
        allowed(check, one.protocol, one.metadata, "here")
    allowed(check_definition, one)
    allowed(check_change, one, one)
    allowed(table_properties.validate, one.metadata.configuration)
    allowed(minimum_protocol, one.metadata)
    allowed(requirements, one.metadata, one.protocol)
    for read in (generated_columns, identity_columns, column_defaults):
        allowed(read, one.metadata, one.protocol)
    for every in table_properties.ALL:
        allowed(every, one.metadata)
    allowed(parsed_of, one.metadata)


def values(data: bytes) -> None:
    """A partition value of each type, in a table and alone."""
    text = text_of(data)
    for name in KINDS:
        kind = parse_type(name)
        value = promised(partition_values.parse, text, kind)
        promised(partition_values.serialize, value, kind)
        promised(partition_values.column, [text, None], kind)
    columns = {name.partition("(")[0]: name for name in KINDS}
    about = metadata()["metaData"]
    about |= {"schemaString": schema(x="long", **columns), "partitionColumns": list(columns)}
    row = add(DATA, partitionValues=dict.fromkeys(columns, text))
    rows = [protocol(), {"metaData": about}, row]
    store = holding({DATA: tables.template()[DATA]}, in_log(commit_name(0)), to_bytes(rows))
    head = open_snapshot(store)
    for column, name in columns.items():
        allowed(read_table, store, head, [column])
        leaf = {"op": "<", "column": [column], "type": name, "value": LITERALS[column]}
        allowed(prune, leaf, head.files, head.metadata)
    tables.summarise(store, head)


def statistics(data: bytes) -> None:
    """A file's statistics, used by predicates over columns of each type."""
    about = metadata()
    columns = {name.partition("(")[0]: name for name in KINDS}
    about["metaData"]["schemaString"] = schema(**columns)
    row = add("a.parquet", stats=text_of(data))
    store = builders.table_in_memory([protocol(), about, row])
    snapshot = open_snapshot(store)
    for column, kind in columns.items():
        for op in ("=", "!=", "<", ">="):
            leaf = {"op": op, "column": [column], "type": kind, "value": LITERALS[column]}
            allowed(prune, leaf, snapshot.files, snapshot.metadata)
        asked = {"op": "is_null", "column": [column]}
        allowed(prune, asked, snapshot.files, snapshot.metadata)
    use(store)


def predicates(data: bytes) -> None:
    """A predicate that the committer accepts is evaluated without an error."""
    try:
        tree = orjson.loads(data)
    except orjson.JSONDecodeError:
        return
    if predicate_problem([tree], 1_000) is not None:
        return
    about = Metadata.model_validate(metadata(["p"])["metaData"])
    result = parse_schema(about.schema_string)
    for value in ("1", "x", None, ""):
        promised(may_match_partition, tree, {"p": value}, result, ["p"])
    files = open_snapshot(holding(tables.template(), "x", b"")).files
    allowed(prune, tree, files, about)
    rows = pa.table({"x": pa.array([1, None]), "s": ["a", None], "p": pa.array([1, 2], pa.int32())})
    allowed(evaluate, tree, rows)


def vectors(data: bytes) -> None:
    """The bytes of a deletion vector, framed, inline and bare."""
    result = promised(roaring_bitmap.decode, data)
    if result is not None and len(result) < 1 << 22 and roaring_bitmap.last(result) < 1 << 48:
        assert roaring_bitmap.decode(roaring_bitmap.encode(result)) == result
    text = text_of(data)
    promised(descriptors.z85_decode, text)
    for kind in ("i", "u", "p", text[:1] or "x"):
        vector = DeletionVector(
            storage_type=kind, path_or_inline_dv=text, size_in_bytes=len(data), cardinality=1
        )
        promised(descriptors.inline_rows, vector)
        promised(descriptors.path_of, vector)
        promised(descriptors.framed_rows, vector, data)


def inline_vectors(data: bytes) -> None:
    """A file's deletion vector descriptor is the fuzzed value."""
    row = to_bytes([add(DATA, deletionVector="(vector)")])
    body = data.translate(None, b"\r\n")
    use(holding(tables.template(), in_log(commit_name(2)), row.replace(b'"(vector)"', body)))


def table_paths(data: bytes) -> None:
    """A data file's path is the fuzzed value."""
    text = text_of(data)
    file_paths.decode_path(text)
    file_paths.canonical_path(text)
    file_paths.canonical_paths(pa.chunked_array([[text, "a"]]))
    store = holding(tables.template(), in_log(commit_name(2)), to_bytes([add(text or "a")]))
    use(store)
    try:
        allowed(open_table_file, store, text)
    except FileNotFoundError:
        return


def hints(data: bytes) -> None:
    """`_last_checkpoint` alone."""
    last_checkpoint.decode(data)
    promised(last_checkpoint.checksum, text_of(data))


def checksums(data: bytes) -> None:
    """A version checksum alone."""
    result = allowed(version_checksum.decode, data)
    if result is not None:
        allowed(version_checksum.decode, version_checksum.encode(result))


def records(data: bytes) -> None:
    """A record of each topic."""
    for kind in codec.FORMATS:
        result = allowed(codec.decode, kind, data)
        if result is not None:
            again = codec.encode(result)
            assert codec.encode(codec.decode(kind, again)) == again
            codec.headers(result)
    allowed(stream_position.decode, data, UUID(int=1))
    stream_position.positions_of({data: data, b"00000000-0000-0000-0000-000000000001": data})
    record_headers.passed_on([(record_headers.TRACEPARENT, data), (text_of(data), data)])
    read_record(data, 0, Policy())


LITERALS: Final[Mapping[str, Any]] = {
    "string": "m",
    **dict.fromkeys(("byte", "short", "integer", "long", "float", "double"), 1),
    "boolean": True,
    "binary": "AA==",
    "date": "2024-01-01",
    **dict.fromkeys(("timestamp", "timestamp_ntz", "timestamp_nanos"), "2024-01-01 00:00:00"),
    "decimal": "1.5",
}


def _json(*samples: Any) -> Callable[[], tuple[bytes, ...]]:
    return lambda: tuple(json.dumps(sample).encode() for sample in samples)


def _texts(*samples: str) -> Callable[[], tuple[bytes, ...]]:
    return lambda: tuple(sample.encode() for sample in samples)


def _file(files: Callable[[], tables.Files], path: str) -> Callable[[], tuple[bytes, ...]]:
    return lambda: (files()[path],)


def _summary(name: str) -> Target:
    path = tables.SUMMARIES[name]

    def cleaned() -> tables.Files:
        return tables.without_commits(tables.summarised())

    return Target(in_table(cleaned, path), _file(cleaned, path))


def _v2(form: Form, *, is_sidecar: bool) -> Target:
    sample = partial(v2_sample, form, is_sidecar=is_sidecar)
    return Target(in_v2(form, is_sidecar=is_sidecar), sample)


_LEAF: Final = {"op": "=", "column": ["p"], "value": 1, "type": "integer"}
_PREDICATE: Final = {
    "op": "or",
    "args": [
        {"op": "not", "arg": _LEAF},
        {"op": "in", "column": ["x"], "values": [1, None, 3], "type": "long"},
        {"op": "and", "args": [{"op": "is_null", "column": "s"}, {**_LEAF, "op": "<=>"}]},
        {"op": "<", "column": ["x"], "value": "1.5", "type": "decimal(38,2)"},
        {"op": "opaque", "columns": [["x"]], "text": "udf(x)"},
    ],
}
_NESTED: Final = {
    "type": "struct",
    "fields": [
        {
            "name": "a",
            "type": {"type": "array", "elementType": "decimal(38,2)", "containsNull": True},
            "nullable": True,
            "metadata": {"delta.typeChanges": [{"fromType": "byte", "toType": "short"}]},
        },
        {
            "name": "m",
            "type": {
                "type": "map",
                "keyType": "string",
                "valueType": {"type": "struct", "fields": []},
                "valueContainsNull": True,
            },
            "nullable": False,
            "metadata": {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "c"},
        },
    ],
}
_STATISTICS: Final = {
    "numRecords": 3,
    "tightBounds": True,
    "minValues": {**LITERALS, "decimal": 1.5},
    "maxValues": {**LITERALS, "decimal": 1e3},
    "nullCount": dict.fromkeys(LITERALS, 0),
}
_INLINE: Final = {
    "storageType": "i",
    "pathOrInlineDv": descriptors.inline(roaring_bitmap.of_rows([1])).path_or_inline_dv,
    "sizeInBytes": descriptors.inline(roaring_bitmap.of_rows([1])).size_in_bytes,
    "cardinality": 1,
}


def _commits() -> tuple[bytes, ...]:
    return tuple(tables.template()[in_log(commit_name(version))] for version in range(HEAD + 1))


_OF_WRITERS: Final = ("rowTracking", "identityColumns", "allowColumnDefaults", "generatedColumns")


def _definitions() -> tuple[bytes, ...]:
    about = metadata(
        ["p"],
        **{
            "columnMapping.mode": "name",
            "columnMapping.maxColumnId": "2",
            "logRetentionDuration": "interval 30 days",
            "checkpointInterval": "10",
            "constraints.positive": "x > 0",
            "enableRowTracking": "true",
            "dataSkippingStatsColumns": "x,`m`",
            "checkpoint.writeStatsAsStruct": "true",
            "inCommitTimestampEnablementVersion": "1",
        },
    )
    column = {
        "delta.identity.start": 1,
        "delta.identity.step": 2,
        "delta.identity.allowExplicitInsert": True,
        "delta.generationExpression": "x + 1",
        "CURRENT_DEFAULT": "1",
        "delta.invariants": json.dumps({"expression": {"expression": "x > 1"}}),
        "__CHAR_VARCHAR_TYPE_STRING": "varchar(3)",
    }
    fields = [{"name": name, "type": "long", "nullable": True, "metadata": column} for name in "xp"]
    about["metaData"]["schemaString"] = json.dumps({"type": "struct", "fields": fields})
    both = [*tables.FEATURES, "columnMapping"]
    under = protocol(3, 7, readerFeatures=both, writerFeatures=[*both, *_OF_WRITERS])
    nested = metadata()
    nested["metaData"]["schemaString"] = json.dumps(_NESTED)
    return (to_bytes([under, about]), to_bytes([protocol(1, 4), nested]))


def _adds() -> tuple[bytes, ...]:
    compact = [
        json.dumps(add(f"p={at}/f", tags={"a": "b"}), separators=(",", ":")).encode() + b"\n"
        for at in range(1 + BYTES_MIN // 150)
    ]
    return (b"".join(compact), to_bytes([builders.info()]) + b"".join(compact))


def _records() -> tuple[bytes, ...]:
    known = builders.proposal(add("a"), reads={"predicates": [_PREDICATE], "files": ["a"]})
    return (codec.encode(known), codec.encode(builders.create()))


TARGETS: Final[Mapping[str, Target]] = {
    "commit": Target(commits, _commits),
    "many adds": Target(many_adds, _adds),
    "commit in a table": Target(in_table(tables.template, in_log(commit_name(2))), _commits),
    **{f"{name} in a table": _summary(name) for name in tables.SUMMARIES},
    "partial compaction in a table": Target(
        in_table(tables.template, in_log(compacted_name(1, 2))), _commits
    ),
    "V2 checkpoint in JSON": _v2(Form.JSON, is_sidecar=False),
    "V2 checkpoint in Parquet": _v2(Form.PARQUET, is_sidecar=False),
    "sidecar": _v2(Form.JSON, is_sidecar=True),
    "file name": Target(names, _texts(*tables.SUMMARIES.values(), commit_name(1))),
    "hint": Target(hints, _file(tables.summarised, tables.SUMMARIES["hint"])),
    "checksum": Target(checksums, _file(tables.summarised, tables.SUMMARIES["version checksum"])),
    "data file": Target(in_table(tables.template, DATA), _file(tables.template, DATA)),
    "vector file": Target(in_table(tables.template, VECTOR), _file(tables.template, VECTOR)),
    "vector": Target(vectors, _file(tables.template, VECTOR)),
    "vector in the log": Target(inline_vectors, _json(_INLINE)),
    "schema": Target(schemas, _json(_NESTED)),
    "definition": Target(definitions, _definitions),
    "partition value": Target(values, _texts("1", "-1.5", "2024-02-29 12:00:00.5", "a/b", "NaN")),
    "statistics": Target(statistics, _json(_STATISTICS)),
    "predicate": Target(predicates, _json(_PREDICATE)),
    "path": Target(table_paths, _texts("p=1/a%20b", "s3://b/c", "file:/a/../b", "/a", "a//b%")),
    "record": Target(records, _records),
}
"""All targets, by the name of their input."""

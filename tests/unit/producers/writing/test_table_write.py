"""A write from plan to outcome, in a real folder, with a committer that accepts everything."""

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.unit.producers.answering_bus import Gate, ManualClock, committed, rejected
from tidegate_delta.deletion_vectors.descriptors import inline_rows
from tidegate_delta.errors import InvalidRequest, Unavailable, UnsupportedFeature
from tidegate_delta.log.actions import Add, DeletionVector, Metadata
from tidegate_delta.schema.types import (
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP_NTZ,
    VOID,
    DataType,
    StructField,
    StructType,
)
from tidegate_messages.codec import decode, encode, headers
from tidegate_messages.outcome import Outcome, Rejection
from tidegate_messages.proposal import Proposal
from tidegate_messages.topics import Topics
from tidegate_producers.history.table_history import history
from tidegate_producers.options import WriteOptions, for_writing
from tidegate_producers.parquet.data_file_writer import FileWriter
from tidegate_producers.parquet.file_rewrite import Rewriter, Rewritten
from tidegate_producers.writing.column_checks import in_table_already
from tidegate_producers.writing.partial_overwrite import ReplaceWhere
from tidegate_producers.writing.row_delete import (
    Rewriting,
    count_matches,
    delete,
    delete_rows,
    rewrite_here,
)
from tidegate_producers.writing.table_requests import register
from tidegate_producers.writing.table_write import (
    WriteMode,
    WritePlan,
    WriteRequest,
    check_mode,
    check_served,
    commit,
    creating,
    creation,
    plan,
)
from tidegate_runtime.client import proposal_builders
from tidegate_runtime.client.client import Client, Rejected
from tidegate_runtime.client.proposal_builders import StreamBatch
from tidegate_runtime.conditions.sql_condition import predicate_of
from tidegate_runtime.kafka.client_protocols import TopicPartition
from tidegate_runtime.storage.local_store import LocalStore
from tidegate_runtime.table_io.data_file_reader import read_table
from tidegate_runtime.table_io.open_table import head_version, open_snapshot

SERVERS = "localhost:1"
FRAME = StructType((StructField("k", LONG), StructField("p", STRING)))
SEEN = Rejection(rule="app_txn_seen", reason="it is in", exception="ConcurrentTransactionException")


class Yes:
    """Writes every proposal into the log, unless its application version is already there."""

    def __init__(self, root: Path) -> None:
        self.store = LocalStore(root.as_uri())
        self.gate: Gate | None = None

    def __call__(self, sent: Proposal, digest: str) -> Iterable[Outcome]:
        assert self.gate is not None
        if sent.kind == "register":
            return [committed(sent, digest, sent.read_version)]
        head = head_version(self.store)
        version = 0 if head is None else head + 1
        if sent.app_txn is not None and head is not None:
            seen = open_snapshot(self.store).app_transactions.get(sent.app_txn.app_id)
            if seen is not None and seen.version >= sent.app_txn.version:
                return [rejected(sent, digest, SEEN)]
        if sent.is_create:
            record = self.gate.register(root=self.store.root)
            assert record.table_root == sent.table_root
        actions = list(sent.actions)
        if sent.claim_check is not None:
            content = self.store.read(sent.claim_check.path) or b""
            actions = [json.loads(line) for line in content.splitlines()]
        info: dict[str, object] = {
            "operation": sent.operation.name,
            "timestamp": sent.created_ms,
            "tidegate": {},
        }
        rows = [{"commitInfo": info}, *actions]
        applications = [(txn.app_id, txn.version) for txn in sent.app_txns]
        if sent.app_txn is not None:
            applications.append((sent.app_txn.app_id, sent.app_txn.version))
        rows += [{"txn": {"appId": name, "version": number}} for name, number in applications]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        self.store.put_if_absent(f"_delta_log/{version:020d}.json", lines.encode(), 5)
        return [committed(sent, digest, version)]


class Line:
    """A client, a committer, and a folder with one table."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "t"
        self.yes = Yes(self.root)
        self.gate = Gate(Topics(), self.yes)
        self.yes.gate = self.gate
        self.client = Client(self.gate, Topics(), ManualClock())

    def options(self, **given: str) -> WriteOptions:
        return for_writing({"path": str(self.root), **given})

    def write(
        self,
        rows: pa.Table,
        mode: WriteMode = "append",
        batch: StreamBatch | None = None,
        frame: StructType = FRAME,
        **given: str,
    ) -> Outcome | None:
        options = self.options(**given)
        made = plan(self.client, frame, mode, options)
        saying = (
            WriteRequest.of(options) if batch is None else WriteRequest.of_batch(options, batch)
        )
        return commit(self.client, made, self.files(made, [rows]), saying)

    def files(self, made: WritePlan, batches: Sequence[pa.Table]) -> list[Add]:
        files = FileWriter(self.yes.store, made.layout, self.client.clock)
        for batch in batches:
            files.write(batch)
        return files.finish()

    def rows(self) -> list[dict[str, object]]:
        table = read_table(self.yes.store, open_snapshot(self.yes.store))
        result: list[dict[str, object]] = table.sort_by("k").to_pylist()
        return result

    def delete(self, condition: str) -> Outcome | None:
        place = self.options().place
        return delete(self.client, place, condition, WriteRequest(10), self.rewrite)

    def rewrite(
        self, rewriting: Rewriting, files: Sequence[Mapping[str, Any]]
    ) -> Sequence[Rewritten]:
        rewriter = Rewriter(
            self.yes.store, rewriting.metadata, rewriting.predicate, self.client.clock, 0
        )
        handle = rewriter.mark if rewriting.by == "vectors" else rewriter.rewrite
        return [handle(file) for file in files]

    def last(self) -> Proposal:
        return decode(Proposal, self.gate.sent[-1][1])


@pytest.fixture
def line(tmp_path: Path) -> Line:
    return Line(tmp_path)


def overwritten(line: Line, new: pa.Table, frame: StructType = FRAME, **given: str) -> Proposal:
    """Overwrite some rows as the data source does, and return what was proposed."""
    options = line.options(**given)
    made = plan(line.client, frame, "overwrite", options)
    text = options.replace_where
    if text is not None:
        where = ReplaceWhere(text, predicate_of(text, made.layout.schema))
        made = replace(made, replace_where=where)
    writer = FileWriter(line.yes.store, made.layout, line.client.clock)
    writer.write(new, made.replace_where)
    saying, by_partition = WriteRequest.of(options), text is None
    commit(line.client, made, writer.finish(), saying, by_partition=by_partition)
    return line.last()


def test_an_overwrite_of_no_partition_may_add_a_column(line: Line) -> None:
    line.write(rows(1, 2, p="a"), partitioncolumns="p")
    wider = StructType((*FRAME.fields, StructField("new", LONG)))
    sent = overwritten(line, rows(), wider, mergeschema="true")
    assert [row["k"] for row in line.rows()] == [1, 2]
    assert "new" in open_snapshot(line.yes.store).metadata.schema_string
    assert sent.reads is not None
    assert sent.reads.predicates == ({"op": "not", "arg": {"op": "true"}},)
    assert not sent.reads.files


def test_only_partitions_that_are_written_to_are_replaced_and_read(line: Line) -> None:
    line.write(rows(1, 2, p="a"), partitioncolumns="p")
    line.write(rows(3, p="b"))
    line.write(pa.table({"k": pa.array([4]), "p": pa.array([None], pa.string())}))
    sent = overwritten(line, rows(5, p="a"))
    assert [row["k"] for row in line.rows()] == [3, 4, 5]
    assert sent.reads is not None
    [read] = sent.reads.predicates
    assert read["args"] == [
        {"op": "and", "args": [{"op": "=", "column": ["p"], "value": "a", "type": "string"}]}
    ]
    assert len(sent.reads.files) == 1
    assert sent.operation.parameters["isDynamicPartitionOverwrite"] == "true"
    overwritten(line, pa.table({"k": pa.array([6]), "p": pa.array([None], pa.string())}))
    assert [row["k"] for row in line.rows()] == [3, 5, 6]


def test_partitions_of_mapped_columns_are_those_of_their_values(line: Line) -> None:
    mapped = {"partitioncolumns": "p", "delta.columnmapping.mode": "name"}
    line.write(rows(1, 2, p="a"), "append", None, FRAME, **mapped)
    line.write(rows(3, p="b"))
    overwritten(line, rows(5, p="a"))
    assert [row["k"] for row in line.rows()] == [3, 5]


def test_a_partition_that_another_writer_spelt_in_its_own_way_is_replaced(line: Line) -> None:
    """delta-rs writes the fraction of a whole second, too."""
    day = pa.array([0], pa.timestamp("us"))
    first = pa.table({"k": pa.array([1]), "p": day})
    timed = StructType((StructField("k", LONG), StructField("p", TIMESTAMP_NTZ)))
    line.write(first, frame=timed, partitioncolumns="p")
    head = line.yes.store.read(f"_delta_log/{0:020d}.json") or b""
    add = next(json.loads(text)["add"] for text in head.splitlines() if b'"add"' in text)
    other = {**add, "path": add["path"].replace("c000", "c001")}
    other["partitionValues"] = {"p": "1970-01-01 00:00:00.000000"}
    content = line.yes.store.read(unquote(add["path"])) or b""
    line.yes.store.put(unquote(other["path"]), content)
    entry = json.dumps({"add": other}).encode() + b"\n"
    line.yes.store.put_if_absent(f"_delta_log/{1:020d}.json", entry, 5)
    assert len(line.rows()) == 2
    overwritten(line, pa.table({"k": pa.array([9]), "p": day}), frame=timed)
    assert [row["k"] for row in line.rows()] == [9]


def test_rows_that_match_are_replaced_and_the_others_of_their_files_kept(line: Line) -> None:
    line.write(rows(1, 2, 3, 4))
    line.write(rows(9))
    sent = overwritten(line, rows(3), replacewhere="k > 2 AND k < 5")
    assert [row["k"] for row in line.rows()] == [1, 2, 3, 9]
    assert sent.reads is not None
    assert len(sent.reads.files) == 1
    assert sent.operation.parameters == {"mode": "Overwrite", "predicate": "k > 2 AND k < 5"}
    assert sent.operation.metrics["numCopiedRows"] == "2"
    assert sent.cdc_mode is None
    with pytest.raises(InvalidRequest, match="'k': 7") as raised:
        overwritten(line, rows(3, 7), replacewhere="k > 2 AND k < 5")
    assert raised.value.error_class == "DELTA_REPLACE_WHERE_MISMATCH"


def test_rows_that_match_are_marked_where_the_table_takes_vectors(line: Line) -> None:
    with_vectors(line)
    line.write(rows(1, 2, 3))
    sent = overwritten(line, rows(2), replacewhere="k = 2")
    assert [intent.num_records for intent in sent.dv_intents] == [3]
    assert not [row for row in sent.actions if "remove" in row]
    assert sent.cdc_mode == "implicit"


def test_new_columns_come_with_the_rows_that_have_them(line: Line) -> None:
    line.write(rows(1))
    inner = StructType((StructField("a", LONG),))
    wide = StructType((StructField("K", LONG), StructField("n", STRING), StructField("s", inner)))
    with pytest.raises(InvalidRequest, match="mergeSchema=true"):
        plan(line.client, wide, "append", line.options())
    options = line.options(mergeschema="true")
    made = plan(line.client, wide, "append", options)
    assert made.layout.schema.names == ("k", "p", "n", "s")
    new = pa.table({"K": [2], "n": ["x"], "s": [{"a": 1}]})
    commit(line.client, made, line.files(made, [new]), WriteRequest.of(options))
    assert [row["n"] for row in line.rows()] == [None, "x"]
    same = plan(line.client, FRAME, "append", options)
    assert same.definition == ()
    narrow = StructType((StructField("k", INTEGER),))
    assert plan(line.client, narrow, "append", options).definition == ()


def test_an_overwrite_may_replace_the_columns_too(line: Line) -> None:
    line.write(rows(1), partitioncolumns="p")
    other = StructType((StructField("k", STRING), StructField("q", LONG)))
    options = line.options(overwriteschema="true")
    made = plan(line.client, other, "overwrite", options)
    new = pa.table({"k": ["x"], "q": pa.array([1], pa.int64())})
    commit(line.client, made, line.files(made, [new]), WriteRequest.of(options))
    assert line.rows() == [{"k": "x", "q": 1}]
    assert open_snapshot(line.yes.store).metadata.partition_columns == ()
    void = StructType((StructField("k", STRING), StructField("v", VOID)))
    with pytest.raises(InvalidRequest, match="'v' has type void"):
        plan(line.client, void, "overwrite", options)


@pytest.mark.parametrize(
    "given",
    [{"replacewhere": "k = 1"}, {"overwriteschema": "true"}, {"partitionoverwritemode": "dynamic"}],
    ids=str,
)
def test_options_of_an_overwrite_are_refused_by_an_append(
    line: Line, given: dict[str, str]
) -> None:
    with pytest.raises(InvalidRequest, match="for an overwrite"):
        check_mode(line.options(**given), "append")
    check_mode(line.options(**given), "overwrite")


def rows(*keys: int, p: str = "x") -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int64()), "p": [p] * len(keys)})


def test_a_first_write_creates_the_table_with_its_rows(line: Line) -> None:
    outcome = line.write(rows(1, 2), partitioncolumns="P", name="mine")
    assert outcome is not None
    assert outcome.version == 0
    sent = line.last()
    assert sent.is_create
    assert sent.name == "mine"
    snapshot = open_snapshot(line.yes.store)
    assert snapshot.metadata.partition_columns == ("p",)
    assert [row["k"] for row in line.rows()] == [1, 2]


def test_an_append_is_blind_and_made_for_the_version_that_was_read(line: Line) -> None:
    line.write(rows(1))
    line.write(rows(2))
    sent = line.last()
    assert (sent.read_version, sent.table_id) == (0, open_snapshot(line.yes.store).metadata.id)
    assert sent.reads is not None
    assert sent.reads.is_empty
    assert sent.files_since_ms is not None
    assert sent.deadline_ms is not None
    assert sent.deadline_ms > (sent.created_ms or 0)
    assert [row["k"] for row in line.rows()] == [1, 2]


def test_an_overwrite_leaves_only_its_own_rows(line: Line) -> None:
    line.write(rows(1, 2))
    line.write(rows(3), "overwrite")
    assert [row["k"] for row in line.rows()] == [3]
    line.write(rows(), "overwrite")
    assert line.rows() == []


def test_rows_computed_from_the_table_record_its_version(line: Line) -> None:
    line.write(rows(1))
    line.write(rows(2))
    line.write(rows(3), readversion="0")
    sent = line.last()
    assert sent.read_version == 0
    assert sent.reads is not None
    assert sent.reads.whole_table
    # An overwrite removes only files it read; the committer decides whether newer ones conflict.
    line.write(rows(9), "overwrite", readversion="0")
    sent = line.last()
    assert sent.read_version == 0
    assert [row["k"] for row in line.rows()] == [2, 3, 9]
    with pytest.raises(InvalidRequest, match="17"):
        line.write(rows(9), readversion="17")


def test_an_append_without_rows_proposes_nothing(line: Line) -> None:
    line.write(rows(1))
    assert line.write(rows()) is None
    assert len(line.gate.sent) == 1


def test_a_micro_batch_written_twice_is_in_the_table_once(line: Line) -> None:
    batch = StreamBatch("query", 0)
    first = line.write(rows(1), batch=batch)
    again = line.write(rows(1), batch=batch)
    line.write(rows(2), batch=StreamBatch("query", 1))
    assert first is not None
    assert again is not None
    assert (first.status, again.status) == ("committed", "rejected")
    assert [row["k"] for row in line.rows()] == [1, 2]
    assert open_snapshot(line.yes.store).app_transactions["query"].version == 1


def test_a_stream_may_name_its_own_application(line: Line) -> None:
    line.write(rows(1), batch=StreamBatch("query", 4), txnappid="mine")
    assert open_snapshot(line.yes.store).app_transactions["mine"].version == 4


def test_a_batch_that_its_application_has_left_behind_is_not_taken_for_a_repeat(line: Line) -> None:
    for number in range(3):
        line.write(rows(number), batch=StreamBatch("query", number), txnappid="mine")
    again = line.write(rows(2), batch=StreamBatch("query", 2), txnappid="mine")
    assert again is not None
    with pytest.raises(InvalidRequest, match=r"older than version 2.*'mine': another stream"):
        line.write(rows(7), batch=StreamBatch("other", 0), txnappid="mine")
    # Repeating a batch under its own name is a restart from an old checkpoint, so it is skipped.
    for number in (3, 4, 3):
        line.write(rows(number), batch=StreamBatch("query", number))
    assert [row["k"] for row in line.rows()] == [0, 1, 2, 3, 4]


def test_any_other_rejection_is_raised(line: Line) -> None:
    line.write(rows(1))
    reason = Rejection(rule="metadata_changed", reason="version 1 changed the schema")
    line.gate.answers = lambda sent, digest: [rejected(sent, digest, reason)]
    with pytest.raises(Rejected, match="metadata_changed"):
        line.write(rows(2), batch=StreamBatch("query", 0))


def test_a_create_that_finds_the_batch_already_there_has_succeeded(line: Line) -> None:
    batch, options = StreamBatch("query", 0), line.options()
    late = plan(line.client, FRAME, "append", options)
    line.write(rows(1), batch=batch)
    there = Rejection(rule="table_exists", reason="there is a table")
    line.gate.answers = lambda sent, digest: [rejected(sent, digest, there)]
    saying = WriteRequest.of_batch(options, batch)
    outcome = commit(line.client, late, line.files(late, [rows(1)]), saying)
    assert outcome is not None
    with pytest.raises(Rejected, match="table_exists"):
        commit(line.client, late, [], WriteRequest.of_batch(options, StreamBatch("query", 1)))


def test_a_table_whose_folder_is_gone_is_distinguished_from_one_that_is_there(line: Line) -> None:
    there = Rejection(rule="table_exists", reason="registered", error_class="DELTA_X")
    line.gate.answers = lambda sent, digest: [rejected(sent, digest, there)]
    for batch in (None, StreamBatch("query", 0)):
        with pytest.raises(InvalidRequest, match="its folder was removed") as refused:
            line.write(rows(1), batch=batch)
        assert refused.value.error_class == "DELTA_X"


def test_what_does_not_fit_is_refused_before_a_file_is_written(line: Line) -> None:
    line.write(rows(1))
    before = sorted(line.root.rglob("*"))
    bad: list[tuple[DataType, str, dict[str, str]]] = [
        (STRING, "'k' has type long", {}),
        (LONG, "partitioned by", {"partitioncolumns": "p"}),
    ]
    for kind, like, given in bad:
        frame = StructType((StructField("k", kind), StructField("p", STRING)))
        with pytest.raises(InvalidRequest, match=like):
            plan(line.client, frame, "append", line.options(**given))
    assert sorted(line.root.rglob("*")) == before
    assert len(line.gate.sent) == 1


def test_an_unregistered_table_is_an_error_that_explains_registration(line: Line) -> None:
    line.write(rows(1))
    table_state = next(at for at in line.gate.logs if at.topic.endswith("table-state"))
    line.gate.logs[table_state].clear()
    stranger = Client(line.gate, Topics(), ManualClock())
    made = plan(stranger, FRAME, "append", line.options())
    with pytest.raises(InvalidRequest, match="tidegate table register"):
        commit(stranger, made, line.files(made, [rows(2)]), WriteRequest(10))
    register(stranger, line.options().place, "again", 10)
    assert (line.last().kind, line.last().name) == ("register", "again")


def test_a_created_table_keeps_not_null_and_its_properties(line: Line) -> None:
    strict = StructType((StructField("k", LONG, nullable=False), StructField("p", STRING)))
    options = line.options()
    made = creation(line.client, strict, ["p"], options, {"delta.appendOnly": "true"})
    commit(line.client, creating(made, options.place), (), WriteRequest.of(options))
    metadata: Metadata = open_snapshot(line.yes.store).metadata
    assert metadata.configuration == {"delta.appendOnly": "true"}
    nulls = pa.table({"k": pa.array([None], pa.int64()), "p": ["x"]})
    with pytest.raises(InvalidRequest, match="'k' is NOT NULL"):
        line.write(nulls)
    line.write(rows(1))
    with pytest.raises(InvalidRequest, match="append-only"):
        line.delete("k = 1")
    with pytest.raises(InvalidRequest, match="append-only"):
        line.write(rows(2), "overwrite")


def test_a_delete_rewrites_only_files_with_matching_rows_and_reads_only_candidates(
    line: Line,
) -> None:
    line.write(rows(1, 2, 3), partitioncolumns="p")
    line.write(rows(10, 20))
    line.write(rows(5, 6, p="y"))
    files = {add["path"]: add for add in open_snapshot(line.yes.store).files.to_pylist()}
    outcome = line.delete("p = 'x' AND k <= 2")
    assert outcome is not None
    sent = line.last()
    assert sent.reads is not None
    assert len(sent.reads.files) == 1
    assert set(sent.reads.files) < set(files)
    assert sent.operation.metrics == {
        "numRemovedFiles": "1",
        "numAddedFiles": "1",
        "numDeletedRows": "2",
        "numCopiedRows": "1",
        "numDeletionVectorsAdded": "0",
        "numDeletionVectorsRemoved": "0",
        "numDeletionVectorsUpdated": "0",
    }
    assert [row["k"] for row in line.rows()] == [3, 5, 6, 10, 20]
    line.delete("p = 'y'")
    assert line.last().operation.metrics["numDeletedRows"] == "2"


def test_a_delete_keeps_strings_that_are_longer_than_they_should_be(line: Line) -> None:
    line.write(rows(1, 2, p="long"))
    log = line.root / "_delta_log" / f"{0:020d}.json"
    text = log.read_text()
    plain = '\\"name\\":\\"p\\",\\"type\\":\\"string\\",\\"nullable\\":true,\\"metadata\\":{'
    assert plain in text
    log.write_text(text.replace(plain, plain + '\\"__CHAR_VARCHAR_TYPE_STRING\\":\\"varchar(3)\\"'))
    with pytest.raises(InvalidRequest, match=r"'p' is a varchar\(3\)"):
        line.write(rows(3, p="long"))
    assert line.delete("k = 1") is not None
    assert line.rows() == [{"k": 2, "p": "long"}]


def with_vectors(line: Line) -> None:
    options = line.options()
    made = creation(line.client, FRAME, (), options, {"delta.enableDeletionVectors": "true"})
    commit(line.client, creating(made, options.place), (), WriteRequest.of(options))


def test_a_delete_proposes_rows_where_the_table_takes_vectors(line: Line) -> None:
    with_vectors(line)
    line.write(rows(1, 2, 3))
    line.write(rows(4))
    before = {path for path in line.root.iterdir() if path.is_file()}
    line.delete("k >= 2 AND k <= 3")
    sent = line.last()
    assert sent.actions == ()
    [intent] = sent.dv_intents
    assert list(inline_rows(DeletionVector.model_validate(intent.rows))) == [1, 2]
    assert (intent.num_records, intent.base, intent.op) == (3, None, "delete")
    assert sent.reads is not None
    assert sent.reads.delete_insensitive
    assert sent.reads.files == (intent.path,)
    assert sent.operation.metrics["numDeletedRows"] == "2"
    assert {path for path in line.root.iterdir() if path.is_file()} == before


def test_a_delete_of_whole_partitions_opens_no_file(line: Line) -> None:
    line.write(rows(1, 2), partitioncolumns="p")
    line.write(rows(5, p="y"))
    line.rewrite = lambda rewriting, files: pytest.fail("a file was opened")  # type: ignore[method-assign]  # must not be called
    line.delete("p = 'x'")
    sent = line.last()
    assert [next(iter(row)) for row in sent.actions] == ["remove"]
    assert sent.reads is not None
    assert list(sent.reads.files) == [row["remove"]["path"] for row in sent.actions]
    assert [row["k"] for row in line.rows()] == [5]


def test_a_delete_in_this_process_counts_the_rows_it_deleted(line: Line) -> None:
    line.write(rows(1, 2), partitioncolumns="p")
    line.write(rows(5, 6, 7, p="y"))
    place = line.options().place
    before = set(line.root.rglob("*"))
    assert sorted(count_matches(place, "k = 1 OR k >= 6").values()) == [1, 2]
    assert sorted(count_matches(place, "p = 'y'").values()) == [3]
    assert set(line.root.rglob("*")) == before, "counting writes nothing"
    result = [
        delete_rows(line.client, place, condition, WriteRequest(10), rewrite_here)
        for condition in ("k >= 6", "p = 'x'", "k = 6")
    ]
    assert [item and item.rows for item in result] == [2, 2, None]
    assert [row["k"] for row in line.rows()] == [5]


def test_a_delete_without_a_match_proposes_nothing(line: Line) -> None:
    line.write(rows(1, 3))
    assert line.delete("k = 2") is None
    assert line.delete("k = 99") is None
    assert line.delete("p = 'zzz'") is None
    assert len(line.gate.sent) == 1


def test_a_delete_that_statistics_leave_no_file_for_proposes_nothing(line: Line) -> None:
    with_vectors(line)
    assert line.delete("k = 99") is None
    line.write(rows(1, 3))
    assert line.delete("k = 99") is None
    assert len(line.gate.sent) == 2


def test_a_write_of_very_many_files_goes_by_claim_check(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proposal_builders, "INLINE_BYTES_MAX", 5_000)
    many = pa.table({"k": pa.array(range(30), pa.int64()), "p": [f"v{n}" for n in range(30)]})
    line.write(many, partitioncolumns="p")
    assert line.last().claim_check is not None
    assert len(line.rows()) == 30


def test_history_lists_versions_newest_first(line: Line) -> None:
    line.write(rows(1))
    line.write(rows(2))
    line.delete("k = 1")
    result = list(history(line.yes.store))
    assert [(item.version, item.operation) for item in result] == [
        (2, "DELETE"),
        (1, "WRITE"),
        (0, "WRITE"),
    ]
    assert [one.version for one in history(line.yes.store, 1)] == [2]
    with pytest.raises(InvalidRequest, match="no Delta table"):
        next(history(LocalStore(line.root.parent.as_uri() + "/none")))


def test_data_files_are_plain_parquet_without_partition_columns(line: Line) -> None:
    line.write(rows(1), partitioncolumns="p", compression="snappy")
    (file,) = line.root.rglob("*.snappy.parquet")
    assert pq.read_table(io.BytesIO(file.read_bytes())).column_names == ["k"]


def test_a_table_that_needs_what_we_do_not_write_is_refused_before_a_file_is_written(
    line: Line,
) -> None:
    with pytest.raises(UnsupportedFeature):
        creation(line.client, FRAME, [], line.options(), {"delta.enableIcebergCompatV2": "true"})
    with pytest.raises(UnsupportedFeature, match=r"delta\.feature\.x"):
        creation(line.client, FRAME, [], line.options(), {"delta.feature.x": "supported"})
    with pytest.raises(InvalidRequest, match="checkpointInterval"):
        creation(line.client, FRAME, [], line.options(), {"delta.checkpointInterval": "often"})
    assert line.gate.sent == []


def constrained(line: Line) -> list[str]:
    """Create a table with a change feed and a constraint, and return the constraint's hash."""
    properties = {"delta.enableChangeDataFeed": "true", "delta.constraints.few": "k < 100"}
    options = line.options()
    made = creation(line.client, FRAME, [], options, properties)
    commit(line.client, creating(made, options.place), [], WriteRequest.of(options))
    return list(in_table_already(made.metadata, made.protocol))


def test_rows_are_not_written_where_nobody_held_them_to_the_constraints(line: Line) -> None:
    [held] = constrained(line)
    before = sorted(line.root.rglob("*"))
    given: list[dict[str, Any]] = [{}, {"constraintsenforced": "0" * 64}]
    for wrong in given:
        with pytest.raises(UnsupportedFeature, match=r"CHECK few \(k < 100\).*Table\.append"):
            line.write(rows(1), **wrong)
    assert sorted(line.root.rglob("*")) == before
    line.write(rows(1), constraintsenforced=f" {held} ,")
    assert line.last().constraints_enforced == (held,)


def test_an_overwrite_reaches_readers_of_the_change_feed_by_its_files(line: Line) -> None:
    [held] = constrained(line)
    line.write(rows(1), constraintsenforced=held)
    line.write(rows(2), "overwrite", constraintsenforced=held)
    assert line.last().cdc_mode == "implicit"


@pytest.mark.parametrize("text", ["x", "A" * 64, "a" * 63])
def test_what_is_no_hash_is_refused(line: Line, text: str) -> None:
    with pytest.raises(InvalidRequest, match="constraintsEnforced"):
        line.options(constraintsenforced=text)


def test_a_write_to_a_table_that_the_gate_does_not_serve_ends_before_its_rows(
    tmp_path: Path,
) -> None:
    line = Line(tmp_path)
    check_served(line.client, plan(line.client, FRAME, "append", line.options()), SERVERS)
    line.write(rows(1))
    made = plan(line.client, FRAME, "append", line.options())
    check_served(line.client, made, SERVERS)
    at = TopicPartition(Topics().table_state, 0)
    record = line.client.require(line.yes.store.root)
    dropped = record.model_copy(update={"status": "dropped"})
    line.gate.append(at, str(record.table).encode(), encode(dropped), headers(dropped))
    with pytest.raises(InvalidRequest, match="was dropped"):
        check_served(Client(line.gate, Topics(), ManualClock()), made, SERVERS)
    line.gate.create_topic(Topics().table_state, 1)
    with pytest.raises(InvalidRequest, match="tidegate table register"):
        check_served(Client(line.gate, Topics(), ManualClock()), made, SERVERS)


@pytest.mark.parametrize("is_creation", [True, False])
def test_brokers_that_are_away_are_found_before_any_row_is_written(
    tmp_path: Path, is_creation: bool
) -> None:
    line = Line(tmp_path)
    if not is_creation:
        line.write(rows(1))
    made = plan(line.client, FRAME, "append", line.options())
    fresh = Client(line.gate, Topics(), ManualClock())
    away = mock.patch.object(fresh, "tables", side_effect=Unavailable("away"))
    with away, pytest.raises(Unavailable, match=r"answers at localhost:1.*option kafka\.bootstrap"):
        check_served(fresh, made, SERVERS)


OVERTAKEN = Rejection(
    rule="concurrent_append", reason="version 1 added a file", advice="rerun", winner_version=1
)


class Overtaken:
    """Refuses a number of proposals, each after a commit of another writer, then accepts."""

    def __init__(self, line: Line, times: int) -> None:
        self.line, self.left = line, times
        self.answers = line.gate.answers
        line.gate.answers = self

    def __call__(self, sent: Proposal, digest: str) -> Iterable[Outcome]:
        if self.left == 0 or sent.operation.name == "DELETE":
            return self.answers(sent, digest)
        self.left -= 1
        self.line.gate.answers = self.answers
        self.line.write(rows(100 + self.left))
        self.line.gate.answers = self
        return [rejected(sent, digest, OVERTAKEN)]


@pytest.mark.parametrize("given", [{}, {"replacewhere": "k > 50"}])
def test_an_overwrite_that_was_overtaken_replaces_the_rows_of_the_newest_version(
    line: Line, given: Mapping[str, str]
) -> None:
    line.write(rows(1))
    Overtaken(line, 2)
    overwritten_whole(line, rows(60), **given)
    kept = [1] if given else []
    assert [row["k"] for row in line.rows()] == [*kept, 60]
    assert line.last().read_version == 2


def test_an_overwrite_of_rows_that_were_read_of_the_table_is_refused_when_overtaken(
    line: Line,
) -> None:
    line.write(rows(1))
    Overtaken(line, 1)
    with pytest.raises(Rejected):
        overwritten_whole(line, rows(60), readversion="0")


def test_an_overwrite_that_was_overtaken_by_other_columns_is_refused(line: Line) -> None:
    line.write(rows(1))
    Overtaken(line, 1)
    made = plan(line.client, FRAME, "overwrite", line.options())
    adds = line.files(made, [rows(60)])
    columns = (*made.layout.schema.fields, StructField("v", LONG))
    other = replace(made, layout=replace(made.layout, schema=StructType(columns)))
    with pytest.raises(InvalidRequest, match="other columns"):
        commit(line.client, other, adds, WriteRequest.of(line.options()))


def overwritten_whole(line: Line, new: pa.Table, **given: str) -> None:
    options = line.options(**given)
    made = plan(line.client, FRAME, "overwrite", options)
    if options.replace_where is not None:
        predicate = predicate_of(options.replace_where, made.layout.schema)
        made = replace(made, replace_where=ReplaceWhere(options.replace_where, predicate))
    commit(line.client, made, line.files(made, [new]), WriteRequest.of(options))


def with_properties(line: Line, number: int, properties: Mapping[str, str]) -> None:
    options = for_writing({"path": str(line.root), **properties})
    made = plan(line.client, FRAME, "append", options)
    commit(line.client, made, line.files(made, [rows(number)]), WriteRequest.of(options))


def test_properties_are_options_of_a_write_that_makes_the_table(line: Line) -> None:
    given = {"delta.appendonly": "true", "delta.Feature.deletionVectors": "supported"}
    with_properties(line, 1, given)
    metadata = open_snapshot(line.yes.store).metadata
    assert metadata.configuration["delta.appendOnly"] == "true"
    with_properties(line, 2, given)
    with pytest.raises(InvalidRequest, match=r"delta\.appendOnly=false.*Table\.alter"):
        with_properties(line, 3, {"delta.appendonly": "false"})
    assert [row["k"] for row in line.rows()] == [1, 2]


def test_an_unknown_property_of_a_new_table_is_refused_with_the_nearest(line: Line) -> None:
    with pytest.raises(InvalidRequest, match=r"delta\.appendOnly"):
        with_properties(line, 1, {"delta.appendonyl": "true"})

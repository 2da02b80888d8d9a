"""The corpus's vectors: the meaning of single elements of the log."""

import json
import shutil
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tidegate_delta.checkpoints import last_checkpoint, version_checksum
from tidegate_delta.checkpoints.checkpoint_rows import classic_schema
from tidegate_delta.deletion_vectors import descriptors, roaring_bitmap
from tidegate_delta.log.actions import Add, DeletionVector, Metadata
from tidegate_delta.log.commit import Commit
from tidegate_delta.log.file_names import Version, in_log
from tidegate_delta.log.file_paths import decode_path
from tidegate_delta.schema.arrow_types import from_arrow
from tidegate_delta.schema.partition_values import parse, serialize
from tidegate_delta.schema.types import StructType, format_schema, parse_schema
from tidegate_delta.snapshots.replay import LogPart, is_reconciled, parse_log_file, replay
from tidegate_runtime.storage.local_store import LocalStore
from tidegate_runtime.storage.log_store import LogStore, Put
from tidegate_runtime.storage.open_store import open_store
from tidegate_runtime.table_io.data_file_reader import read_table
from tidegate_runtime.table_io.deletion_vector_reader import read_vector
from tidegate_runtime.table_io.open_table import open_snapshot, refresh, stated_checksum

CONTRADICTING = {"tables/delta-rs/cdc_ict_table/_delta_log/00000000000000000001.crc"}
"""Checksums in the corpus that contradict a valid log."""
CHECKSUMS = 127
"""Checksum files of the vectors that have protocol and metadata."""

TESTED = {
    "checkpoint_schema.json",
    "deletion_vectors.json",
    "last_checkpoint.json",
    "log_compaction.json",
    "partition_values.json",
    "paths.json",
    "schema.json",
    "version_checksums.json",
    "workloads",
}

NOT_KEPT = {("remove", "tags")}
"""Optional fields that our checkpoints omit: nothing needs them once a file is removed."""


def vectors(corpus: Path, name: str) -> list[dict[str, Any]]:
    content = json.loads((corpus / "vectors" / name).read_text(encoding="utf-8"))
    result: list[dict[str, Any]] = content["vectors"]
    assert result
    return result


def test_paths_name_the_files_that_are_there(corpus: Path) -> None:
    for vector in vectors(corpus, "paths.json"):
        assert decode_path(vector["log_path"]) == vector["file"]


def test_partition_values_mean_what_other_readers_say(corpus: Path) -> None:
    for vector in vectors(corpus, "partition_values.json"):
        field = {"name": "p", "type": vector["type"], "nullable": True, "metadata": {}}
        kind = parse_schema(json.dumps({"type": "struct", "fields": [field]})).fields[0].kind
        value = parse(vector["serialized"], kind)
        assert (value is None) == (vector["value"] is None)
        if value is not None:
            assert str(value) == str(vector["value"])
        assert parse(serialize(value, kind), kind) == value


def test_log_compactions_equal_their_commits(corpus: Path) -> None:
    for vector in vectors(corpus, "log_compaction.json"):
        path = corpus / vector["compacted"]
        part = parse_log_file(path.name, path.read_bytes())
        assert is_reconciled(part) == vector["matches_reconciliation"]
        if not vector["matches_reconciliation"]:
            continue
        assert part.files.num_rows == vector["live_files"]
        assert part.tombstones.num_rows == vector["tombstones"]
        store = open_store(str(corpus / vector["table"]))
        before = None if vector["start"] == 0 else opened(store, vector["start"] - 1)
        commits = [corpus / path for path in vector["commits"]]
        one_by_one = replay(
            [parse_log_file(path.name, path.read_bytes()) for path in commits], before
        )
        at_once = replay([part], before)
        assert sorted(at_once.file_keys.to_pylist()) == sorted(one_by_one.file_keys.to_pylist())
        assert at_once.app_transactions == one_by_one.app_transactions
        assert at_once.domains == one_by_one.domains
        assert (at_once.metadata, at_once.protocol) == (one_by_one.metadata, one_by_one.protocol)


def opened(store: LogStore, version: int) -> LogPart:
    """Return the state at a version, as its checkpoint has it."""
    result = open_snapshot(store, version)
    return LogPart(
        files=result.files,
        tombstones=result.tombstones,
        protocol=result.protocol,
        metadata=result.metadata,
        txns=tuple(result.app_transactions.values()),
        domains=tuple(result.domains.values()),
    )


def test_deletion_vectors_delete_the_rows_that_other_readers_leave_out(corpus: Path) -> None:
    for vector in vectors(corpus, "deletion_vectors.json"):
        if "do not require it" in vector.get("note", ""):
            continue
        result = DeletionVector.model_validate(vector["descriptor"])
        assert result.unique_id == vector["unique_id"]
        store = LocalStore(f"file://{corpus / vector.get('table', '')}")
        if "resolves_to" in vector:
            assert descriptors.path_of(result) == vector["resolves_to"]
            continue
        if "file" in vector:
            table = store.root.removeprefix("file://")
            there = f"{table}/{descriptors.path_of(result)}"
            assert there == str(corpus / vector["file"])
        assert list(read_vector(store, result)) == vector["deleted_rows"]


def test_deletion_vectors_have_the_bytes_that_delta_spark_gave_them(corpus: Path) -> None:
    for vector in vectors(corpus, "deletion_vectors.json"):
        if "file" not in vector:
            continue
        result = DeletionVector.model_validate(vector["descriptor"])
        frame = descriptors.frame_of(result)
        content = (corpus / vector["file"]).read_bytes()[frame.start : frame.stop]
        written, _ = descriptors.in_file(
            [roaring_bitmap.of_rows(vector["deleted_rows"])], UUID(int=0)
        )
        assert content == written[len(descriptors.FILE_VERSION) :]


def test_version_checksums_count_deletions_as_delta_spark_does(own_corpus: Path) -> None:
    compared = 0
    for table in sorted((own_corpus / "tables" / "spark44").iterdir()):
        store = LocalStore(f"file://{table}")
        for path in sorted((table / "_delta_log").glob("*.crc")):
            body = json.loads(path.read_bytes())
            if not body.get("numDeletionVectorsOpt"):
                continue
            result = version_checksum.of(open_snapshot(store, int(path.stem)))
            assert (
                version_checksum.differences(version_checksum.decode(path.read_bytes()), result)
                == ()
            ), path
            compared += 1
    assert compared > 20


def test_histograms_of_file_sizes_are_those_of_delta_spark(own_corpus: Path) -> None:
    compared = 0
    for table in sorted((own_corpus / "tables" / "spark44").iterdir())[::4]:
        store = LocalStore(f"file://{table}")
        for path in sorted((table / "_delta_log").glob("*.crc"))[-3:]:
            stated = version_checksum.decode(path.read_bytes()).sizes
            if stated is None:
                continue
            assert stated == version_checksum.of(open_snapshot(store, int(path.stem))).sizes, path
            compared += 1
    assert compared > 20


def test_the_checksums_of_hints_are_those_of_their_writers(corpus: Path) -> None:
    for vector in vectors(corpus, "last_checkpoint.json"):
        named = vector.get("file")
        content = (corpus / named).read_bytes() if named else vector["json"].encode()
        if "canonical" in vector:
            assert last_checkpoint.canonical(content.decode()) == vector["canonical"]
        if not vector.get("valid_json", True):
            assert last_checkpoint.decode(content) is None
            continue
        if "computed" in vector:
            assert last_checkpoint.checksum(content.decode()) == vector["computed"]
        if "canonical_length" in vector:
            assert len(last_checkpoint.canonical(content.decode())) == vector["canonical_length"]
        if named:
            result = last_checkpoint.decode(content)
            assert result is not None
            assert result.version == vector["version"]


def test_version_checksums_agree_with_the_log(corpus: Path) -> None:
    compared = 0
    for vector in vectors(corpus, "version_checksums.json"):
        table, _, name = vector["file"].partition("/_delta_log/")
        store, version = open_store(str(corpus / table)), int(name[:20])
        stated = stated_checksum(store, version)
        if stated is None:
            assert "protocol" not in vector["keys"]
            continue
        assert stated.num_files == vector["num_files"]
        assert stated.table_size_bytes == vector["table_size_bytes"]
        found = open_snapshot(store, version)
        result = set(version_checksum.differences(stated, version_checksum.of(found)))
        doubted = found.checksum.is_doubtful
        assert doubted == (vector["file"] in CONTRADICTING), found.checksum
        assert not result & {"num_files", "table_size_bytes"} or not vector["agrees_with_log"]
        compared += 1
    assert compared == CHECKSUMS


def test_every_vector_is_tested(corpus: Path) -> None:
    assert {path.name for path in (corpus / "vectors").iterdir()} == TESTED


@pytest.mark.parametrize("name", ["schema.json", "checkpoint_schema.json"])
def test_schemas_survive_us(corpus: Path, name: str) -> None:
    text = (corpus / "vectors" / name).read_text(encoding="utf-8")
    schema = parse_schema(text)
    assert [item.name for item in schema] == [one["name"] for one in json.loads(text)["fields"]]
    assert parse_schema(format_schema(schema)) == schema
    if name == "schema.json":
        assert json.loads(format_schema(schema)) == json.loads(text)


def test_our_checkpoints_have_the_columns_that_other_readers_need(corpus: Path) -> None:
    wanted = parse_schema((corpus / "vectors" / "checkpoint_schema.json").read_text("utf-8"))
    plain = Metadata(id="1", schema_string=format_schema(StructType()))
    written = from_arrow(classic_schema(plain))
    assert missing_from(written, wanted) == NOT_KEPT


def missing_from(written: StructType, wanted: StructType) -> set[tuple[str, ...]]:
    """Return the paths of the columns that are missing, or have another type."""
    missing: set[tuple[str, ...]] = set()
    for item in wanted:
        there = written.get(item.name)
        if there is not None and isinstance(item.kind, StructType):
            assert isinstance(there.kind, StructType)
            missing |= {(item.name, *path) for path in missing_from(there.kind, item.kind)}
        elif there is None or there.kind != item.kind:
            missing.add((item.name,))
    return missing


def test_the_workload_of_others_is_read_and_appended_to(corpus: Path, tmp_path: Path) -> None:
    workload = corpus / "vectors" / "workloads" / "basic_append"
    about = json.loads((workload / "table_info.json").read_text(encoding="utf-8"))
    table = tmp_path / about["name"]
    shutil.copytree(corpus / "tables" / "dat" / about["name"], table)
    store = open_store(str(table))
    done = {run(store, path) for path in sorted(workload.glob("specs/*/spec.json"))}
    assert done == {"snapshot_construction", "read", "write"}


def run(store: LogStore, path: Path) -> str:
    """Run one specification of a workload; return its kind."""
    spec = json.loads(path.read_text(encoding="utf-8"))
    before = open_snapshot(store, spec.get("version"))
    assert before.version == spec.get("version", before.version)
    if spec["type"] == "read":
        rows = read_table(store, before)
        assert rows.column_names == ["letter", "number", "a_float"]
        assert rows.num_rows == 3 if spec.get("version") == 0 else rows.num_rows == 5
    for item in spec.get("commits", ()):
        data_files = json.loads((path.parent / item["data_files_path"]).read_text("utf-8"))["adds"]
        adds = [Add(partition_values={}, data_change=True, **add) for add in data_files]
        commit = Commit(Version(before.version + 1), tuple(adds))
        assert store.put_if_absent(in_log(commit.name), commit.encode(), 10.0) is Put.WON
        after = refresh(store, before)
        assert after.files.num_rows == before.files.num_rows + len(adds)
        assert version_checksum.of(after) == version_checksum.of(open_snapshot(store))
        before = after
    return str(spec["type"])

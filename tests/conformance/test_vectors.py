"""The corpus's vectors: what single words of the log mean."""

import json
from pathlib import Path
from typing import Any
from uuid import UUID

from tidegate.delta.actions import DeletionVector
from tidegate.delta.checkpoints import checksum, hint
from tidegate.delta.errors import InvalidRequest, UnsupportedFeature
from tidegate.delta.files import bitmap, deletion_vectors
from tidegate.delta.paths import decode_path
from tidegate.delta.replay import read_part, replay
from tidegate.delta.schema.partitions import parse, serialize
from tidegate.delta.schema.types import parse_schema
from tidegate.runtime.integrity import stated_checksum
from tidegate.runtime.local_store import LocalStore
from tidegate.runtime.open_table import open_snapshot
from tidegate.runtime.stores import open_store
from tidegate.runtime.vector_files import read_vector

COMPARED_MIN = 36
"""Version checksums that were compared when the table of features last changed."""


def vectors(corpus: Path, name: str) -> list[dict[str, Any]]:
    content = json.loads((corpus / "vectors" / name).read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = content["vectors"]
    assert found
    return found


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


def test_log_compactions_say_what_their_commits_say(corpus: Path) -> None:
    for vector in vectors(corpus, "log_compaction.json"):
        if not vector["matches_reconciliation"] or vector["start"] != 0:
            continue
        commits = [corpus / path for path in vector["commits"]]
        one_by_one = replay([read_part(path.name, path.read_bytes()) for path in commits], None)
        path = corpus / vector["compacted"]
        at_once = replay([read_part(path.name, path.read_bytes())], None)
        assert sorted(at_once.file_keys.to_pylist()) == sorted(one_by_one.file_keys.to_pylist())
        assert at_once.file_keys.length() == vector["live_files"]
        assert at_once.app_transactions == one_by_one.app_transactions
        assert at_once.metadata == one_by_one.metadata


def test_deletion_vectors_delete_the_rows_that_other_readers_leave_out(corpus: Path) -> None:
    for vector in vectors(corpus, "deletion_vectors.json"):
        if "do not require it" in vector.get("note", ""):
            continue
        found = DeletionVector.model_validate(vector["descriptor"])
        assert found.unique_id == vector["unique_id"]
        store = LocalStore(f"file://{corpus / vector.get('table', '')}")
        if "resolves_to" in vector:
            assert deletion_vectors.path_of(found) == vector["resolves_to"]
            continue
        if "file" in vector:
            table = store.root.removeprefix("file://")
            there = f"{table}/{deletion_vectors.path_of(found)}"
            assert there == str(corpus / vector["file"])
        assert list(read_vector(store, found)) == vector["deleted_rows"]


def test_deletion_vectors_have_the_bytes_that_delta_spark_gave_them(corpus: Path) -> None:
    for vector in vectors(corpus, "deletion_vectors.json"):
        if "file" not in vector:
            continue
        found = DeletionVector.model_validate(vector["descriptor"])
        frame = deletion_vectors.frame_of(found)
        content = (corpus / vector["file"]).read_bytes()[frame.start : frame.stop]
        written, _ = deletion_vectors.in_file([bitmap.of_rows(vector["deleted_rows"])], UUID(int=0))
        assert content == written[len(deletion_vectors.FILE_VERSION) :]


def test_version_checksums_count_deletions_as_delta_spark_does(corpus: Path) -> None:
    compared = 0
    for table in sorted((corpus / "tables" / "spark44").iterdir()):
        store = LocalStore(f"file://{table}")
        for path in sorted((table / "_delta_log").glob("*.crc")):
            body = json.loads(path.read_bytes())
            if not body.get("numDeletionVectorsOpt"):
                continue
            try:
                snapshot = open_snapshot(store, int(path.stem))
            except UnsupportedFeature:
                continue
            found = checksum.of(snapshot)
            assert checksum.differences(checksum.decode(path.read_bytes()), found) == (), path
            compared += 1
    assert compared > 20


def test_the_checksums_of_hints_are_those_of_their_writers(corpus: Path) -> None:
    for vector in vectors(corpus, "last_checkpoint.json"):
        named = vector.get("file")
        content = (corpus / named).read_bytes() if named else vector["json"].encode()
        if "canonical" in vector:
            assert hint.canonical(content.decode()) == vector["canonical"]
        if not vector.get("valid_json", True):
            assert hint.decode(content) is None
            continue
        if "computed" in vector:
            assert hint.checksum(content.decode()) == vector["computed"]
        if named:
            found = hint.decode(content)
            assert found is not None
            assert found.version == vector["version"]


def test_version_checksums_say_what_the_log_says(corpus: Path) -> None:
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
        try:
            snapshot = open_snapshot(store, version)
        except (UnsupportedFeature, InvalidRequest):
            continue
        told = set(checksum.differences(stated, checksum.of(snapshot)))
        assert not told & {"num_files", "table_size_bytes"} or not vector["agrees_with_log"]
        compared += 1
    assert compared > COMPARED_MIN

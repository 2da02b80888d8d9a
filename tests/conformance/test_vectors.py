"""The corpus's vectors: what single words of the log mean."""

import json
from pathlib import Path
from typing import Any

from tidegate.delta.checkpoints import checksum, hint
from tidegate.delta.errors import InvalidRequest, UnsupportedFeature
from tidegate.delta.paths import decode_path
from tidegate.delta.replay import read_part, replay
from tidegate.delta.schema.partitions import parse, serialize
from tidegate.delta.schema.types import parse_schema
from tidegate.runtime.integrity import stated_checksum
from tidegate.runtime.open_table import open_snapshot
from tidegate.runtime.stores import open_store

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

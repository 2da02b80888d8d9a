import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.builders import NOW_MS, add, info, metadata, protocol
from tests.builders import commit as to_commit
from tidegate_delta.checkpoints import version_checksum
from tidegate_delta.checkpoints.file_totals import no_deletions_in
from tidegate_delta.checkpoints.version_checksum import (
    decode,
    encode,
    evolve,
    of,
    validate_checksum,
)
from tidegate_delta.errors import BrokenLog
from tidegate_delta.log.actions import Add, DomainMetadata, Metadata, Protocol, Txn
from tidegate_delta.log.commit import Commit
from tidegate_delta.log.file_names import Version
from tidegate_delta.snapshots.file_action_columns import REMOVE_SCHEMA, adds_to_columns
from tidegate_delta.snapshots.replay import parse_log_file, replay
from tidegate_delta.snapshots.snapshot import AGREES, UNREADABLE, Checked, Snapshot, from_replay

ADD = {"partitionValues": {}, "modificationTime": 0}


def snapshot(configuration: dict[str, str] | None = None, **more: Any) -> Snapshot:
    adds = [Add.model_validate({"path": p, "size": 5, "dataChange": True, **ADD}) for p in "ab"]
    return Snapshot(
        version=Version(3),
        protocol=Protocol(min_reader_version=1, min_writer_version=2),
        metadata=Metadata(
            id="t", schema_string='{"type":"struct","fields":[]}', configuration=configuration or {}
        ),
        files=adds_to_columns(adds),
        tombstones=REMOVE_SCHEMA.empty_table(),
        **more,
    )


def commit(*rows: dict[str, Any]) -> Commit:
    return Commit.decode(4, "\n".join(json.dumps(row) for row in rows).encode())


def file(path: str, size: int | None, **more: Any) -> dict[str, Any]:
    body = {"path": path, "size": size, "dataChange": True, **ADD, **more}
    return {name: value for name, value in body.items() if value is not None}


def encoded(of_snapshot: Snapshot) -> dict[str, Any]:
    result = json.loads(encode(of(of_snapshot, "id")))
    assert isinstance(result, dict)
    return result


def test_the_file_holds_what_the_protocol_requires() -> None:
    result = encoded(snapshot())
    assert result["numFiles"] == 2
    assert result["tableSizeBytes"] == 10
    assert result["numMetadata"] == result["numProtocol"] == 1
    assert result["protocol"] == {"minReaderVersion": 1, "minWriterVersion": 2}
    assert result["metadata"]["schemaString"] == '{"type":"struct","fields":[]}'
    assert result["setTransactions"] == result["domainMetadata"] == []
    assert result["txnId"] == "id"
    assert "inCommitTimestampOpt" not in result


def test_the_timestamp_is_there_if_and_only_if_the_table_has_them() -> None:
    enabled = {"delta.enableInCommitTimestamps": "true"}
    assert encoded(snapshot(enabled, in_commit_timestamp=7))["inCommitTimestampOpt"] == 7
    assert "inCommitTimestampOpt" not in encoded(snapshot(in_commit_timestamp=7))


def test_long_lists_are_left_out_and_mean_unknown() -> None:
    txns = {str(at): Txn(app_id=str(at), version=at) for at in range(101)}
    domains = {str(at): DomainMetadata(domain=str(at), configuration="") for at in range(11)}
    result = encoded(snapshot(app_transactions=txns, domains=domains))
    assert "setTransactions" not in result
    assert "domainMetadata" not in result
    assert decode(json.dumps(result).encode()).app_transactions is None
    kept = {"delta.setTransactionRetentionDuration": "interval 1 day"}
    assert "setTransactions" not in encoded(snapshot(kept))


def test_a_commit_without_complete_sizes_gives_no_totals() -> None:
    base = of(snapshot())
    assert evolve(base, commit({"remove": file("a", None)})) is None
    assert evolve(base, commit({"add": file("a", 5, dataChange=False)})) is None
    assert evolve(base, commit({"add": file("a", 5)}, {"add": file("a", 6)})) is None
    assert evolve(base, commit(*({"remove": file(path, 5)} for path in "abc"))) is None
    by_hand = {"commitInfo": {"operation": "Manual Update"}}
    assert evolve(base, commit(by_hand, {"remove": file("not-there", 5)})) is None
    optimized = commit(
        {"remove": file("a", 5, dataChange=False)},
        {"remove": file("b", 5, dataChange=False)},
        {"add": file("c", 9, dataChange=False)},
    )
    after = evolve(base, optimized)
    assert after is not None
    assert (after.num_files, after.table_size_bytes) == (1, 9)


def test_what_is_unknown_stays_unknown() -> None:
    plain = json.loads(encode(of(snapshot())))
    del plain["setTransactions"]
    after = evolve(
        decode(json.dumps(plain).encode()), commit({"txn": {"appId": "a", "version": 1}})
    )
    assert after is not None
    assert after.app_transactions is None


VECTORS = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("deletionVectors",),
    writer_features=("deletionVectors",),
)


def test_deletions_are_stated_of_tables_that_may_have_some() -> None:
    assert "numDeletionVectorsOpt" not in encoded(snapshot())
    result = encoded(replace(snapshot(), protocol=VECTORS))
    assert (result["numDeletedRecordsOpt"], result["numDeletionVectorsOpt"]) == (0, 0)
    assert result["deletedRecordCountsHistogramOpt"]["deletedRecordCounts"] == [2, *[0] * 9]


def test_deletions_that_a_file_does_not_state_are_none_where_no_vector_may_be() -> None:
    plain = decode(encode(of(snapshot())))
    assert plain.deletions == no_deletions_in(2)
    after = evolve(plain, commit({"remove": file("a", 5)}))
    assert after is not None
    assert after.deletions == no_deletions_in(1)
    silent = replace(of(replace(snapshot(), protocol=VECTORS)), deletions=None)
    assert decode(encode(silent)) == silent
    assert evolve(silent, commit({"remove": file("a", 5)})) is None


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"tableSizeBytes":1}'])
def test_a_torn_file_is_named_corrupt(content: bytes) -> None:
    with pytest.raises(BrokenLog) as caught:
        decode(content)
    assert caught.value.error_class == "CorruptChecksum"


def test_files_of_other_writers_are_read(corpus: Path) -> None:
    vectors = json.loads((corpus / "vectors" / "version_checksums.json").read_text())["vectors"]
    read = 0
    whole = [
        vector for vector in vectors if {"protocol", "metadata"} <= set(vector.get("keys", ()))
    ]
    for item in whole:
        stated = decode((corpus / item["file"]).read_bytes())
        assert stated.num_files == item["num_files"], item["file"]
        assert stated.table_size_bytes == item["table_size_bytes"]
        read += 1
    assert read > 100


@pytest.mark.parametrize("size", [2**63 - 1, 2**62, -1, -(2**63)])
def test_sizes_past_a_long_or_below_zero_make_a_checksum_that_can_be_read(size: int) -> None:
    adds = [Add.model_validate({"path": p, "size": size, "dataChange": True, **ADD}) for p in "abc"]
    before = of(replace(snapshot(), files=adds_to_columns(adds)))
    assert decode(encode(before)).table_size_bytes == (2**63 - 1 if size > 0 else 0)
    for size_before in (before, of(snapshot())):
        for rows in (
            [{"add": file("d", size)}],
            [{"add": file("d", size)}, {"remove": file("a", size)}],
        ):
            after = evolve(size_before, commit(*rows))
            assert after is None or decode(encode(after)).table_size_bytes < 2**63 - 1


@pytest.mark.parametrize("cardinality", [2**63 - 1, 2**62, -1, -(2**63)])
def test_vectors_past_a_long_or_below_zero_make_a_checksum_that_can_be_read(
    cardinality: int,
) -> None:
    vector = {
        "storageType": "u",
        "pathOrInlineDv": "0" * 20,
        "sizeInBytes": 1,
        "cardinality": cardinality,
    }
    rows = [{"add": file(path, 5, deletionVector=vector)} for path in "cdef"]
    adds = [Add.model_validate(row["add"]) for row in rows]
    features = ("deletionVectors",)
    protocol = Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=features,
        writer_features=features,
    )
    has_vectors = replace(snapshot(), protocol=protocol)
    decode(encode(of(replace(has_vectors, files=adds_to_columns(adds)))))
    after = evolve(of(has_vectors), commit(*rows))
    assert after is None or decode(encode(after))


FEATURES = ("deletionVectors", "v2Checkpoint")
VECTOR = {"storageType": "u", "pathOrInlineDv": "x" * 20, "offset": 1, "sizeInBytes": 40}


def built_snapshot(*rows: dict[str, Any]) -> Snapshot:
    one = to_commit(
        0,
        info(inCommitTimestamp=NOW_MS),
        protocol(3, 7, readerFeatures=FEATURES, writerFeatures=FEATURES),
        metadata(enableInCommitTimestamps="true"),
        {"txn": {"appId": "app", "version": 7}},
        {"domainMetadata": {"domain": "d", "configuration": "{}", "removed": False}},
        add("a", deletionVector={**VECTOR, "cardinality": 3}),
        add("b"),
        *rows,
    )
    return from_replay(0, replay([parse_log_file("0", one.encode())], None), NOW_MS)


def stated(**changed: Any) -> bytes:
    body = json.loads(version_checksum.encode(version_checksum.of(built_snapshot())))
    for name, value in changed.items():
        if value is None:
            body.pop(name)
        else:
            body[name] = value
    return json.dumps(body).encode()


def test_what_a_snapshot_states_agrees_with_it() -> None:
    assert validate_checksum(stated(), built_snapshot()) == AGREES


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("numFiles", 3),
        ("tableSizeBytes", 1),
        ("numMetadata", 2),
        ("numProtocol", 0),
        ("setTransactions", []),
        ("domainMetadata", []),
        ("inCommitTimestampOpt", 5),
        ("protocol", {"minReaderVersion": 1, "minWriterVersion": 2}),
        ("metadata", {"id": "another", "schemaString": "{}"}),
        ("deletedRecordCountsHistogramOpt", {"deletedRecordCounts": [2, *[0] * 9]}),
    ],
)
def test_a_field_that_contradicts_is_named_as_the_file_names_it(name: str, value: Any) -> None:
    verdict = validate_checksum(stated(**{name: value}), built_snapshot())
    assert (verdict.checked, verdict.fields) == (Checked.CONTRADICTS, (name,))
    assert name in str(verdict)


@pytest.mark.parametrize("name", ["numDeletedRecordsOpt", "numDeletionVectorsOpt"])
def test_a_total_of_vectors_is_held_against_the_log_without_the_histogram_too(name: str) -> None:
    for rest in ({}, {"deletedRecordCountsHistogramOpt": None}):
        assert validate_checksum(stated(**{name: 9}, **rest), built_snapshot()).fields == (name,)
        assert validate_checksum(stated(**rest), built_snapshot()) == AGREES


def test_features_are_in_no_order() -> None:
    names = list(reversed(FEATURES))
    result: dict[str, Any] = {"minReaderVersion": 3, "minWriterVersion": 7}
    result |= {"readerFeatures": names, "writerFeatures": names}
    assert validate_checksum(stated(protocol=result), built_snapshot()) == AGREES


def test_what_the_file_leaves_out_is_not_required() -> None:
    names = ("setTransactions", "domainMetadata", "inCommitTimestampOpt")
    assert validate_checksum(stated(**dict.fromkeys(names)), built_snapshot()) == AGREES


def test_the_totals_of_an_old_writer_are_held_against_the_log() -> None:
    old = {"tableSizeBytes": 200, "numFiles": 2, "numMetadata": 1, "numProtocol": 1}
    assert validate_checksum(json.dumps(old).encode(), built_snapshot()) == AGREES
    wrong = {**old, "numFiles": 3}
    assert validate_checksum(json.dumps(wrong).encode(), built_snapshot()).fields == ("numFiles",)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"metadata":{},"protocol":{}}', b'{"protocol":1,"numFiles":2}']
)
def test_what_cannot_be_read_is_doubted_and_ignored(content: bytes) -> None:
    assert validate_checksum(content, built_snapshot()) == UNREADABLE
    assert UNREADABLE.is_doubtful
    assert not AGREES.is_doubtful

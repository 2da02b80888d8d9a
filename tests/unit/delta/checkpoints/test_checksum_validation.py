"""A version against its version checksum file."""

import json
from typing import Any

import pytest

from tests.builders import NOW_MS, add, info, metadata, protocol
from tests.builders import commit as to_commit
from tidegate_delta.checkpoints import version_checksum
from tidegate_delta.checkpoints.version_checksum import validate_checksum
from tidegate_delta.snapshots.replay import parse_log_file, replay
from tidegate_delta.snapshots.snapshot import AGREES, UNREADABLE, Checked, Snapshot, from_replay

FEATURES = ("deletionVectors", "v2Checkpoint")
VECTOR = {"storageType": "u", "pathOrInlineDv": "x" * 20, "offset": 1, "sizeInBytes": 40}


def snapshot(*rows: dict[str, Any]) -> Snapshot:
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
    body = json.loads(version_checksum.encode(version_checksum.of(snapshot())))
    for name, value in changed.items():
        if value is None:
            body.pop(name)
        else:
            body[name] = value
    return json.dumps(body).encode()


def test_what_a_snapshot_states_agrees_with_it() -> None:
    assert validate_checksum(stated(), snapshot()) == AGREES


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
    verdict = validate_checksum(stated(**{name: value}), snapshot())
    assert (verdict.checked, verdict.fields) == (Checked.CONTRADICTS, (name,))
    assert name in str(verdict)


@pytest.mark.parametrize("name", ["numDeletedRecordsOpt", "numDeletionVectorsOpt"])
def test_a_total_of_vectors_is_held_against_the_log_without_the_histogram_too(name: str) -> None:
    for rest in ({}, {"deletedRecordCountsHistogramOpt": None}):
        assert validate_checksum(stated(**{name: 9}, **rest), snapshot()).fields == (name,)
        assert validate_checksum(stated(**rest), snapshot()) == AGREES


def test_features_are_in_no_order() -> None:
    names = list(reversed(FEATURES))
    result: dict[str, Any] = {"minReaderVersion": 3, "minWriterVersion": 7}
    result |= {"readerFeatures": names, "writerFeatures": names}
    assert validate_checksum(stated(protocol=result), snapshot()) == AGREES


def test_what_the_file_leaves_out_is_not_required() -> None:
    names = ("setTransactions", "domainMetadata", "inCommitTimestampOpt")
    assert validate_checksum(stated(**dict.fromkeys(names)), snapshot()) == AGREES


def test_the_totals_of_an_old_writer_are_held_against_the_log() -> None:
    old = {"tableSizeBytes": 200, "numFiles": 2, "numMetadata": 1, "numProtocol": 1}
    assert validate_checksum(json.dumps(old).encode(), snapshot()) == AGREES
    wrong = {**old, "numFiles": 3}
    assert validate_checksum(json.dumps(wrong).encode(), snapshot()).fields == ("numFiles",)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"metadata":{},"protocol":{}}', b'{"protocol":1,"numFiles":2}']
)
def test_what_cannot_be_read_is_doubted_and_ignored(content: bytes) -> None:
    assert validate_checksum(content, snapshot()) == UNREADABLE
    assert UNREADABLE.is_doubtful
    assert not AGREES.is_doubtful

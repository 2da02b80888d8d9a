import pytest

from tests.definitions import one_file
from tidegate_delta.errors import BrokenLog
from tidegate_delta.log.actions import CommitInfo, Metadata, Protocol, Remove, Txn
from tidegate_delta.log.commit import Commit, sha256
from tidegate_delta.log.file_names import Version

ACTIONS = (
    CommitInfo(operation="WRITE", is_blind_append=False),
    Protocol(min_reader_version=1, min_writer_version=2),
    Metadata(id="t", schema_string="{}"),
    Txn(app_id="a", version=3),
    one_file("x", modification_time=2),
    Remove(path="y", data_change=True, deletion_timestamp=5),
)
COMMIT = Commit(Version(4), ACTIONS)


def test_every_line_ends_in_a_newline_and_none_is_empty() -> None:
    lines = COMMIT.encode().split(b"\n")
    assert lines[-1] == b""
    assert all(line.startswith(b"{") for line in lines[:-1])
    assert len(lines) == len(ACTIONS) + 1


def test_a_commit_survives_its_file() -> None:
    assert Commit.decode(4, COMMIT.encode()) == COMMIT


def test_a_last_line_without_a_newline_is_read_too() -> None:
    assert Commit.decode(4, COMMIT.encode().rstrip(b"\n")) == COMMIT


def test_actions_are_found_by_kind() -> None:
    assert COMMIT.info == ACTIONS[0]
    assert COMMIT.protocol == ACTIONS[1]
    assert COMMIT.metadata == ACTIONS[2]
    assert list(COMMIT.txns) == [ACTIONS[3]]
    assert list(COMMIT.adds) == [ACTIONS[4]]
    assert {file.path for file in COMMIT.removed} == {"y"}
    assert COMMIT.name == "00000000000000000004.json"


def test_a_commit_that_claims_nothing_is_no_blind_append() -> None:
    assert not Commit(Version(0), ()).is_blind_append
    assert Commit(Version(0), (CommitInfo(is_blind_append=True),)).is_blind_append


@pytest.mark.parametrize("content", [b'{"add":', b"[]\n", b'"text"\n', b'{"add":1}\n'])
def test_a_torn_commit_is_refused(content: bytes) -> None:
    with pytest.raises(BrokenLog) as caught:
        Commit.decode(4, content)
    assert caught.value.error_class == "CorruptCommit"


def test_the_hash_is_of_the_bytes() -> None:
    assert sha256(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

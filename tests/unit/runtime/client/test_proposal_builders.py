"""What a proposal says: actions, read set, operation."""

import json
from uuid import UUID

from tidegate_delta.deletion_vectors.descriptors import frame_of, framed_rows, inline
from tidegate_delta.deletion_vectors.roaring_bitmap import of_rows
from tidegate_delta.log.actions import Add, Metadata, Protocol, from_row
from tidegate_delta.log.commit import sha256
from tidegate_messages.codec import decode, encode
from tidegate_messages.proposal import AppTxn, Predicate, Proposal, RowIntent
from tidegate_producers.writing import table_requests
from tidegate_runtime.client import proposal_builders
from tidegate_runtime.client.proposal_builders import Deletion, Stamp, StreamBatch, Target

TARGET = Target(UUID(int=1), "file:///data/t", 4, "meta")
STAMP = Stamp(UUID(int=2), created_ms=10, deadline_ms=20, files_since_ms=5, engine_info="test")
METADATA = Metadata(id="meta", schema_string="{}", partition_columns=("p",))
PROTOCOL = Protocol(min_reader_version=1, min_writer_version=2)


def add(path: str, rows: int = 3) -> Add:
    return Add(
        path=path,
        partition_values={"p": "1"},
        size=100,
        modification_time=7,
        data_change=True,
        stats=json.dumps({"numRecords": rows}),
    )


def test_an_append_read_nothing() -> None:
    proposal = proposal_builders.append(TARGET, STAMP, [add("a"), add("b")])
    assert proposal.reads is not None
    assert proposal.reads.is_empty
    assert [from_row(row) for row in proposal.actions] == [add("a"), add("b")]
    assert proposal.operation.name == "WRITE"
    assert proposal.operation.metrics == {
        "numFiles": "2",
        "numOutputRows": "6",
        "numOutputBytes": "200",
    }
    assert (proposal.read_version, proposal.table_id) == (4, "meta")
    assert (proposal.created_ms, proposal.deadline_ms, proposal.files_since_ms) == (10, 20, 5)


def test_a_micro_batch_says_which_stream_it_is_of() -> None:
    stamp = Stamp(UUID(int=2), 10, app_txn=AppTxn(app_id="q", version=3))
    proposal = proposal_builders.append(TARGET, stamp, [add("a")], StreamBatch("q", 3))
    assert proposal.operation.name == "STREAMING UPDATE"
    assert proposal.operation.parameters["epochId"] == "3"
    assert proposal.app_txn == AppTxn(app_id="q", version=3)


def marked(*files: tuple[Add, list[int]]) -> Deletion:
    result = [(one, of_rows(rows)) for one, rows in files]
    paths = [one.path for one, _ in files]
    return Deletion("k = 1", {"op": "true"}, paths, (), (), {"numDeletedRows": 3}, result)


def test_rows_that_leave_are_proposed_apart_from_their_files() -> None:
    gone = inline(of_rows([0]))
    deletion = marked((add("a"), [1]), (add("b").with_(deletion_vector=gone), [2]))
    vectors, content = proposal_builders.vectors_of(deletion, UUID(int=9))
    assert content is None
    proposal = proposal_builders.delete(TARGET, STAMP, deletion, vectors)
    assert proposal.actions == ()
    assert proposal.reads is not None
    assert proposal.reads.delete_insensitive
    assert [
        (dv_intent.path, dv_intent.base, dv_intent.num_records) for dv_intent in proposal.dv_intents
    ] == [("a", None, 3), ("b", gone.unique_id, 3)]
    assert decode(Proposal, encode(proposal)) == proposal


def test_many_rows_go_to_a_file_of_vectors() -> None:
    many = list(range(0, 4_000, 2))
    deletion = marked((add("a", 9_000), many), (add("b"), [1]), (add("c", 9_000), many))
    vectors, written = proposal_builders.vectors_of(deletion, UUID(int=9))
    assert written is not None
    path, content = written
    assert path == f"deletion_vector_{UUID(int=9)}.bin"
    assert [vector.storage_type for vector in vectors] == ["u", "i", "u"]
    for item in (vectors[0], vectors[2]):
        frame = content[slice(frame_of(item).start, frame_of(item).stop)]
        assert framed_rows(item, frame) == of_rows(many)


def test_row_intents_go_into_the_claim_check_with_the_actions() -> None:
    deletion = marked(*((add(f"{'a' * 90}{place}"), [1]) for place in range(3_000)))
    vectors, _ = proposal_builders.vectors_of(deletion, UUID(int=9))
    proposal = proposal_builders.delete(TARGET, STAMP, deletion, vectors)
    sent, content = proposal_builders.with_claim_check(proposal)
    assert content is not None
    assert sent.dv_intents == ()
    result = [json.loads(line)["dv_intent"] for line in content.splitlines()]
    assert [RowIntent.model_validate(item) for item in result] == list(proposal.dv_intents)


def test_an_overwrite_read_all_and_removes_all() -> None:
    live = [add("old1"), add("old2")]
    proposal = proposal_builders.overwrite(TARGET, STAMP, [add("new")], live)
    assert [next(iter(row)) for row in proposal.actions] == ["remove", "remove", "add"]
    assert proposal.reads is not None
    assert proposal.reads.predicates == ({"op": "true"},)
    assert proposal.reads.files == ("old1", "old2")
    assert proposal.operation.parameters == {"mode": "Overwrite"}


def test_a_removal_carries_all_that_is_known_of_the_file() -> None:
    remove = proposal_builders.removal(add("a%20b"), 99)
    assert remove.to_row() == {
        "remove": {
            "path": "a%20b",
            "dataChange": True,
            "deletionTimestamp": 99,
            "extendedFileMetadata": True,
            "partitionValues": {"p": "1"},
            "size": 100,
        }
    }


def test_a_delete_read_its_predicate_and_exactly_the_files_it_scanned() -> None:
    predicate: Predicate = {"op": "is_null", "column": ["x"]}
    deletion = Deletion("x IS NULL", predicate, ["a", "b"], [add("a")], [add("c")], {"n": 1})
    proposal = proposal_builders.delete(TARGET, STAMP, deletion)
    assert proposal.reads is not None
    assert not proposal.reads.whole_table
    assert proposal.reads.predicates == (predicate,)
    assert proposal.reads.files == ("a", "b")
    assert proposal.operation.name == "DELETE"
    assert proposal.operation.parameters == {"predicate": '["x IS NULL"]'}
    assert proposal.operation.metrics == {"n": "1"}


def test_a_create_brings_protocol_and_metadata_and_perhaps_files() -> None:
    target = Target(UUID(int=1), "file:///data/t", name="flights")
    empty = proposal_builders.create(target, STAMP, PROTOCOL, METADATA)
    assert empty.is_create
    assert [next(iter(row)) for row in empty.actions] == ["protocol", "metaData"]
    assert (empty.operation.name, empty.name) == ("CREATE TABLE", "flights")
    first = proposal_builders.create(target, STAMP, PROTOCOL, METADATA, [add("a")])
    assert [next(iter(row)) for row in first.actions] == ["protocol", "metaData", "add"]
    assert first.operation.name == "WRITE"


def test_a_registration_and_a_cancel_bring_no_actions() -> None:
    assert table_requests.request("register", TARGET, STAMP).actions == ()
    proposal = proposal_builders.append(TARGET, STAMP, [add("a")])
    cancelling = proposal_builders.cancel(proposal, Stamp(UUID(int=3), 11))
    assert (cancelling.actions, cancelling.cancels) == ((), proposal.proposal_id)


def test_a_small_proposal_is_sent_as_it_is() -> None:
    proposal = proposal_builders.append(TARGET, STAMP, [add("a")])
    assert proposal_builders.with_claim_check(proposal) == (proposal, None)


def test_the_claim_check_of_a_large_proposal_names_the_file_with_its_actions() -> None:
    adds = [add(f"part-{n}-{'x' * 400}") for n in range(1200)]
    proposal = proposal_builders.append(TARGET, STAMP, adds)
    sent, content = proposal_builders.with_claim_check(proposal)
    assert content is not None
    check = sent.claim_check
    assert check is not None
    assert check.path == f"_tidegate/proposals/{proposal.proposal_id}.ndjson"
    assert (check.size, check.sha256) == (len(content), sha256(content))
    assert [from_row(json.loads(line)) for line in content.splitlines()] == adds
    assert sent.actions == ()
    assert decode(Proposal, encode(sent)) == sent
    assert len(encode(sent)) < 2000


def test_a_read_set_too_large_for_a_record_becomes_the_whole_table() -> None:
    live = [add(f"part-{n}-{'x' * 400}") for n in range(1500)]
    sent, _ = proposal_builders.with_claim_check(
        proposal_builders.overwrite(TARGET, STAMP, [], live)
    )
    assert sent.reads is not None
    assert sent.reads.whole_table
    assert sent.reads.files == ()
    assert len(encode(sent)) < proposal_builders.INLINE_BYTES_MAX

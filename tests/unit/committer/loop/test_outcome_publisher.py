"""Published records fit into their topics whatever was proposed: dead letters, outcomes,
notifications and registry records.
"""

import json

import pytest

from tests.builders import (
    ROOT,
    TABLE,
    Gate,
    add,
    create,
    info,
    metadata,
    proposal,
    protocol,
    row_delete,
    rows_of,
    to_bytes,
)
from tests.support.claim_checks import claiming
from tests.support.tables import creating
from tidegate_committer.loop.outcome_publisher import LETTER_BYTES_MAX, LETTER_HEADERS_BYTES_MAX
from tidegate_delta.log.file_names import commit_name, in_log
from tidegate_messages.outcome import Outcome
from tidegate_messages.proposal import IdentityDemand, Proposal
from tidegate_runtime.kafka.client_protocols import Headers, Record, TopicPartition

MIB = 1024 * 1024
TOPIC_BYTES_MAX = 4 * MIB
BROKER_BYTES_MAX = 1_048_588
"""Kafka's default limit on a record."""

OVERHEAD = 20
"""An upper bound of the length fields that Kafka writes beside each header, and beside key and
value. Units: bytes.
"""


def size_of(record: Record) -> int:
    headers = sum(len(name.encode()) + len(value) + OVERHEAD for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers + 2 * OVERHEAD


def dead_letter_of(key: bytes | None, value: bytes | None, headers: Headers) -> Record:
    gate = Gate()
    gate.bus.append(TopicPartition(gate.topics.proposals, 0), key, value, headers)
    gate.settle()
    [letter] = gate.letters()
    return letter


@pytest.mark.parametrize(
    ("key", "value", "headers"),
    [
        (b"k" * 4 * MIB, b"{", ()),
        (b"k", None, ()),
        (None, b"[" * 4 * MIB, ()),
        (None, b"{", tuple((f"h{number}", b"") for number in range(200_000))),
        (None, b"{", (("h", b"x" * 4 * MIB),)),
        (b"k" * 4 * MIB, b"[" * 4 * MIB, tuple(("h" * 90, b"x" * 900) for _ in range(4_000))),
    ],
)
def test_a_dead_letter_fits_into_its_topic(
    key: bytes | None, value: bytes | None, headers: Headers
) -> None:
    letter = dead_letter_of(key, value, headers)
    assert size_of(letter) < TOPIC_BYTES_MAX
    assert (letter.value or b"") == (value or b"")[:LETTER_BYTES_MAX]
    assert (key or b"").startswith(letter.key or b"")
    result = dict(letter.headers)
    assert result["rule"] == b"malformed"
    assert {"reason", "source", "sha256"} <= result.keys()


def test_what_is_small_is_kept_whole() -> None:
    headers = (("format", b"proposal/1"), ("large", b"x" * (LETTER_HEADERS_BYTES_MAX // 2)))
    letter = dead_letter_of(b"key", b"{", headers)
    assert (letter.key, letter.value, letter.headers[:2]) == (b"key", b"{", headers)


MANY = 6_000
LONG = (
    "part-00000-00000000-0000-4000-8000-00000000000a-c000-of-a-table-with-long-names-of-its-files-"
)


def fits(gate: Gate) -> bool:
    topics = (gate.topics.outcomes, gate.topics.commits, gate.topics.table_state)
    result = [record for topic in topics for record in gate.records(topic)]
    return max(map(size_of, result)) < BROKER_BYTES_MAX


def gate_of(features: list[str], **properties: str) -> Gate:
    """Return a committer with a table that has some features."""
    gate = Gate()
    readers = [name for name in features if name == "deletionVectors"]
    listed = protocol(3, 7, readerFeatures=readers, writerFeatures=features)
    made = metadata(**properties)
    [result] = gate.ask(creating(listed, made))
    assert result.status == "committed", result.rejection
    return gate


def send_twice(gate: Gate, one: Proposal) -> list[Outcome]:
    """Send a proposal, restart the committer, and send it again; return all outcomes.

    The restarted committer publishes what the log holds, and then answers the repeat.
    """
    first = gate.ask(one)
    gate.restart()
    return [*first, *gate.ask(one)]


def test_the_outcome_of_many_files_with_row_ids_fits() -> None:
    features = ["rowTracking", "domainMetadata", "deletionVectors"]
    columns = {
        f"rowTracking.materializedRow{name}ColumnName": f"_row-{name}"
        for name in ("Id", "CommitVersion")
    }
    gate = gate_of(features, enableRowTracking="true", **columns)
    files = [add(f"{LONG}{number:05}" + "x" * 100) for number in range(MANY)]
    first, *more = send_twice(gate, claiming(gate, *files))
    assert (first.status, first.version) == ("committed", 1)
    assert first.assigned == {"left_out": ["base_row_ids"]}
    assert {(item.status, item.version) for item in more} == {("committed", 1)}
    assert fits(gate)


def test_the_outcome_of_a_delete_from_many_files_fits() -> None:
    gate = gate_of(["deletionVectors"], enableDeletionVectors="true")
    paths = [f"{LONG}{number:05}" for number in range(MANY)]
    [result] = gate.ask(claiming(gate, *(add(path) for path in paths)))
    assert result.status == "committed", result.rejection
    whole = row_delete(*(rows_of(path, [1]) for path in paths), read_version=1)
    lines = [
        {"dv_intent": dv_intent.model_dump(mode="json", exclude_none=True)}
        for dv_intent in whole.dv_intents
    ]
    many = claiming(gate, *lines, read_version=1, reads=whole.reads, operation=whole.operation)
    first, *more = send_twice(gate, many)
    assert (first.status, first.version) == ("committed", 2), first.rejection
    assert first.assigned == {"rows_deleted": MANY, "left_out": ["deletion_vectors"]}
    assert {
        (outcome.status, outcome.version)
        for outcome in more
        if outcome.proposal_id == many.proposal_id
    } == {("committed", 2)}
    assert fits(gate)


def test_the_outcome_of_many_leases_fits() -> None:
    gate = gate_of(["identityColumns"])
    identity = {"start": 1, "step": 1, "allowExplicitInsert": True}
    column = {f"delta.identity.{name}": value for name, value in identity.items()}
    fields = [{"name": "x", "type": "long", "nullable": True, "metadata": column}]
    body = metadata()["metaData"]
    body["schemaString"] = json.dumps({"type": "struct", "fields": fields})
    [result] = gate.ask(proposal({"metaData": body}))
    assert result.status == "committed", result.rejection
    leases = (IdentityDemand(column="x", count=1),) * 20_000
    first, *more = send_twice(gate, proposal(identity_leases=leases, read_version=1))
    assert (first.status, first.version) == ("committed", 2), first.rejection
    assert first.assigned == {"left_out": ["identity"]}
    assert {(item.status, item.version) for item in more} == {("committed", 2)}
    assert fits(gate)


def test_the_record_of_a_version_with_a_long_name_fits() -> None:
    gate = Gate()
    gate.ask(create())
    gate.stores[ROOT].put(in_log(commit_name(1)), to_bytes([info("x" * 2 * MIB)]))
    gate.restart()
    gate.settle()
    assert gate.commits()[-1].version == 1
    assert fits(gate)


def test_a_registration_fits_though_others_called_their_metadata_by_a_long_id() -> None:
    gate = Gate()
    gate.ask(create())
    renamed = metadata()
    renamed["metaData"]["id"] = "i" * 2 * MIB
    gate.stores[ROOT].put(in_log(commit_name(1)), to_bytes([info(), renamed]))
    gate.restart()
    gate.settle()
    assert gate.tables()[TABLE].published_through == 1
    assert fits(gate)


def test_the_reason_of_a_halt_fits() -> None:
    gate = Gate()
    gate.ask(create())
    unknown = protocol(3, 7, readerFeatures=["u" * 2 * MIB], writerFeatures=["u" * 2 * MIB])
    gate.stores[ROOT].put(in_log(commit_name(1)), to_bytes([info(), unknown]))
    gate.restart()
    [result] = gate.ask(proposal(add("a")))
    assert (result.status, gate.tables()[TABLE].status) == ("denied", "halted")
    assert fits(gate)

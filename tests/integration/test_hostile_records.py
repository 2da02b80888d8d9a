"""Records of a hostile client on a real broker: the committer answers them and continues."""

import subprocess
import sys
from collections.abc import Mapping
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

from tests.integration import undecodable_header_client
from tests.integration.conftest import Line
from tests.integration.proposers import (
    CLOCK,
    Proposer,
    create_table,
    read_topic,
    values,
    write_file,
)
from tests.integration.test_committer_processes import WAIT_S
from tests.integration.waiting import until
from tidegate_local.child_processes import ServiceProcess, probe
from tidegate_messages.codec import encode
from tidegate_messages.proposal import Proposal
from tidegate_messages.published_records import TableRecord
from tidegate_messages.topics import Topic
from tidegate_runtime.client import proposal_builders
from tidegate_runtime.clock import new_id
from tidegate_runtime.kafka.topic_admin import create_topics

pytestmark = pytest.mark.broker

MIB = 1024 * 1024
NEARLY = 4 * MIB - 64 * 1024
"""Just below the topic's limit."""
NO_HEADERS: Mapping[str, bytes] = {}
CODECS = ("gzip", "snappy", "lz4", "zstd")
HOSTILE = {
    "message.max.bytes": 1_000_000_000,
    "queue.buffering.max.kbytes": 1_000_000,
    "retries": 0,
}


class Target:
    """A committer that receives hostile records and must continue without a restart."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.committer: ServiceProcess = line.started("committer")
        self.table: TableRecord = create_table(line.kafka, line.tables / "t")
        self._pid = self.committer.child.pid
        self._numbers = count()

    @property
    def dead_letters(self) -> int:
        """The number of dead letters."""
        return len(list(read_topic(self.line.kafka, self.line.kafka.topics.dead_letters)))

    def send(
        self,
        value: bytes,
        key: bytes = b"",
        headers: Mapping[str, bytes] = NO_HEADERS,
        codec: str = "none",
    ) -> KafkaError | None:
        """Send a record; return the broker's error, if any."""
        kafka, answers = self.line.kafka, list[KafkaError | None]()

        def answered(error: KafkaError | None, message: Message) -> None:
            answers.append(error)

        settings = {"bootstrap.servers": kafka.bootstrap_servers, "compression.type": codec}
        producer = Producer({**HOSTILE, **settings})
        result: list[tuple[str, str | bytes | None]] = [*headers.items()]
        producer.produce(kafka.topics.proposals, value, key, headers=result, on_delivery=answered)
        producer.flush(30.0)
        [answer] = answers
        return answer

    def ready(self) -> str:
        """Return the body of `/readyz`; the service must be ready."""
        status, said = probe(f"{self.committer.address()}/readyz")
        assert status == 200, said
        return said

    def gauge(self, name: str) -> float:
        """Return a gauge of the only topic partition."""
        status, metrics = probe(f"{self.committer.address()}/metrics")
        assert status == 200
        [line] = [
            splitline for splitline in metrics.splitlines() if splitline.startswith(f"{name}{{")
        ]
        return float(line.rpartition(" ")[2])

    def writes_dead_letter(self, before: int) -> None:
        """Fail unless the committer writes one more dead letter and continues."""
        until(lambda: self.dead_letters == before + 1, "the dead letter")
        self.goes_on()

    def goes_on(self) -> None:
        """Fail unless the same process commits a valid proposal."""
        good = Proposer(self.line.kafka, self.table, f"w{next(self._numbers)}", 1)
        good.start()
        good.join(WAIT_S)
        assert [outcome.status for outcome in good.outcomes.values()] == ["committed"]
        assert self.committer.child.is_alive()
        assert '"event":"retrying"' not in self.committer.child.tail(200)
        assert self.committer.child.pid == self._pid


def an_append(table: TableRecord) -> Proposal:
    """Return a proposal that appends a row."""
    folder = Path(table.table_root.removeprefix("file://"))
    target = proposal_builders.Target(table.table, table.table_root, 0, table.table_id)
    stamp = proposal_builders.Stamp(new_id(CLOCK), CLOCK.now_ms())
    return proposal_builders.append(target, stamp, [write_file(folder, "t", 0)])


@pytest.fixture
def target(line: Line) -> Target:
    return Target(line)


def test_no_record_stops_the_committer_by_its_size_its_key_or_its_headers(target: Target) -> None:
    records: list[tuple[bytes, bytes, dict[str, bytes]]] = [
        (b"[" * NEARLY, b"", {}),
        (b"{", b"k" * NEARLY, {}),
        (b"{", b"", {f"h{number}": b"" for number in range(100_000)}),
        (b"{", b"", {"large": b"x" * NEARLY}),
        (b"{", b"", {"producer": b"\xff" * MIB, "traceparent": b"\xff" * MIB}),
    ]
    for value, key, headers in records:
        before = target.dead_letters
        assert target.send(value, key, headers) is None
        target.writes_dead_letter(before)


def test_a_header_whose_name_is_no_text_does_not_stop_the_committer(target: Target) -> None:
    kafka, before = target.line.kafka, target.dead_letters
    argv = [sys.executable, str(undecodable_header_client.__file__), kafka.bootstrap_servers]
    subprocess.run([*argv, kafka.topics.proposals], check=True, timeout=WAIT_S)
    target.writes_dead_letter(before)


def test_an_aborted_proposal_is_never_committed_and_an_open_transaction_is_reported(
    target: Target,
) -> None:
    """A client may rely on its abort; one that waits behind an open transaction gets the reason."""
    kafka, table = target.line.kafka, target.table
    writer = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"{kafka.topic_prefix}w"}
    )
    writer.init_transactions(WAIT_S)
    sent: dict[bool, str] = {}
    for is_committed in (False, True):
        proposal = an_append(table)
        sent[is_committed] = str(proposal.proposal_id)
        writer.begin_transaction()
        partition = table.topic_partition
        writer.produce(kafka.topics.proposals, encode(proposal), partition=partition)
        writer.flush(WAIT_S)
        behind = Proposer(kafka, table, f"behind{is_committed}", 1)
        behind.start()
        until(lambda: target.gauge("tidegate_open_transaction_offsets") >= 2, "the gauge")
        until(lambda: "an open Kafka transaction has held back" in target.ready(), "the probe")
        assert not behind.outcomes
        if is_committed:
            writer.commit_transaction(WAIT_S)
        else:
            writer.abort_transaction(WAIT_S)
        behind.join(WAIT_S)
        until(lambda: target.gauge("tidegate_open_transaction_offsets") == 0, "its end")
    result = {
        value["proposal_id"]: value["status"] for value in values(kafka, kafka.topics.outcomes)
    }
    assert result[sent[True]] == "committed"
    assert sent[False] not in result
    log = target.line.tables / "t" / "_delta_log"
    written = "".join(file.read_text(encoding="utf-8") for file in log.glob("*.json"))
    assert sent[True] in written
    assert sent[False] not in written
    target.goes_on()


def test_a_copy_of_the_outcome_goes_where_the_writer_says_and_holds_up_nobody(
    target: Target,
) -> None:
    """A topic that is missing, and a name that is none, cost their writer the copy alone."""
    kafka, replies = target.line.kafka, f"{target.line.kafka.topic_prefix}replies.mine"
    create_topics(kafka, [Topic(replies, "proposal_id", 1, "delete", 3_600_000)])
    sent: dict[str, str] = {}
    for asked in (kafka.topics.outcomes, f"{kafka.topics.replies}missing", replies):
        proposal = an_append(target.table)
        sent[str(proposal.proposal_id)] = asked
        result = {"reply_to": asked.encode(), "correlation_id": b"\xff7"}
        assert target.send(encode(proposal), headers=result) is None
    until(lambda: len(list(read_topic(kafka, replies))) > 0, "the copy")
    [copy] = read_topic(kafka, replies)
    outcomes = {record.key: record for record in read_topic(kafka, kafka.topics.outcomes)}
    original = outcomes[copy.key]
    assert sent[(copy.key or b"").decode()] == replies
    assert (copy.value, copy.headers) == (original.value, original.headers)
    assert ("correlation_id", b"\xff7") in copy.headers
    for value in values(kafka, kafka.topics.outcomes):
        warnings = [item.partition(":")[0] for item in value.get("warnings", ())]
        is_wrong = sent.get(value["proposal_id"]) == kafka.topics.outcomes
        assert warnings == ["reply_to"] * is_wrong
    address = f"{target.committer.address()}/metrics"
    target.goes_on()
    again = encode(an_append(target.table))

    def is_counted() -> bool:
        assert target.send(again, headers={"reply_to": replies.encode()}) is None
        return "tidegate_replies_lost_total 1.0" in probe(address)[1]

    until(is_counted, "the copy that was lost, in the metrics")


def test_a_file_that_is_not_as_proposed_is_refused_if_the_writer_requests_the_check(
    target: Target,
) -> None:
    kafka, result = target.line.kafka, dict[str, tuple[str, str | None]]()
    good, torn, gone = (an_append(target.table) for _ in range(3))
    folder = target.line.tables / "t"
    path_of = [folder / item.actions[0]["add"]["path"] for item in (torn, gone)]
    path_of[0].write_bytes(path_of[0].read_bytes()[:-1])
    path_of[1].unlink()
    for proposal in (good, torn, gone):
        asking = proposal.model_copy(update={"verify_files": True})
        assert target.send(encode(asking)) is None
    target.goes_on()
    for value in values(kafka, kafka.topics.outcomes):
        result[value["proposal_id"]] = value["status"], value.get("rejection", {}).get("rule")
    assert result[str(good.proposal_id)] == ("committed", None)
    assert result[str(torn.proposal_id)] == ("rejected", "wrong_file_size")
    assert result[str(gone.proposal_id)] == ("rejected", "file_missing")


@pytest.mark.parametrize("codec", CODECS)
def test_a_decompression_bomb_bursts_at_the_broker(target: Target, codec: str) -> None:
    error = target.send(b"a" * (64 * MIB), codec=codec)
    assert error is not None
    assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert target.send(b"a" * (2 * MIB), codec=codec) is None
    target.writes_dead_letter(0)

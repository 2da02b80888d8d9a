"""A table proposed on several topic partitions is served by one of them, with real committers."""

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from tests.integration.conftest import Line, own_topics, services
from tests.integration.proposers import CLOCK, creation, read_topic, write_file
from tidegate_delta.log.commit import sha256
from tidegate_messages.codec import decode, encode, headers
from tidegate_messages.outcome import Outcome
from tidegate_messages.proposal import OPERATOR_REQUESTS, Proposal
from tidegate_messages.published_records import TableRecord
from tidegate_messages.table_home import partition_of
from tidegate_producers.writing.table_requests import request
from tidegate_runtime.client import proposal_builders
from tidegate_runtime.clock import new_id
from tidegate_runtime.kafka.client_protocols import Producer, TopicPartition
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.kafka.settings import KafkaSettings
from tidegate_runtime.table_registry import read_registry

pytestmark = pytest.mark.broker

PARTITIONS = 4
CREATIONS = 20
APART_S = 0.5
"""The longest delay of the second proposals after the first, in seconds."""
WAIT_S = 60.0


@pytest.fixture
def wide(broker: str, tmp_path: Path) -> Iterator[Line]:
    """Yield the means to start services with four partitions per topic."""
    with services(own_topics(broker, PARTITIONS), tmp_path) as line:
        yield line


def send(kafka: KafkaSettings, producer: Producer, partition: int, *proposals: Proposal) -> None:
    for proposal in proposals:
        topics, is_request = kafka.topics, proposal.kind in OPERATOR_REQUESTS
        at = TopicPartition(topics.admin if is_request else topics.proposals, partition)
        producer.publish(at, str(proposal.table).encode(), encode(proposal), headers(proposal))
    producer.flush(WAIT_S)


def answers(kafka: KafkaSettings, partition: int) -> dict[str, Outcome]:
    """Return the first outcome of each proposal on a topic partition, by its SHA-256."""
    result: dict[str, Outcome] = {}
    for record in read_topic(kafka, kafka.topics.outcomes, partition):
        outcome = decode(Outcome, record.value)
        result.setdefault(outcome.proposal_sha256, outcome)
    return result


def answered(kafka: KafkaSettings, sent: dict[int, list[Proposal]]) -> dict[int, list[Outcome]]:
    """Return the outcomes of the proposals sent to each topic partition, once all are there."""
    until_s, found = time.monotonic() + WAIT_S, dict[int, dict[str, Outcome]]()
    keys = {number: [sha256(encode(item)) for item in ones] for number, ones in sent.items()}
    while not all(found.get(number, {}).keys() >= set(keys[number]) for number in keys):
        assert time.monotonic() < until_s, f"answers within {WAIT_S} s: {found}"
        found = {number: answers(kafka, number) for number in keys}
    return {number: [found[number][key] for key in keys[number]] for number in keys}


def rule(outcome: Outcome) -> tuple[str, str, int | None]:
    assert outcome.rejection is not None, outcome
    return outcome.status, outcome.rejection.rule, outcome.rejection.topic_partition


def ask(record: TableRecord, kind: str) -> Proposal:
    target = proposal_builders.Target(record.table, record.table_root, 0, record.table_id)
    stamp = proposal_builders.Stamp(new_id(CLOCK), CLOCK.now_ms())
    if kind == "halt":
        return request("halt", target, stamp, "a restore")
    add = write_file(Path(record.table_root.removeprefix("file://")), "w", 0)
    return proposal_builders.append(target, stamp, [add])


def test_a_table_that_is_sent_to_two_topic_partitions_has_one_home(wide: Line) -> None:
    kafka, producer = wide.kafka, KafkaBus(wide.kafka, "test").producer()
    for name in ("one", "two"):
        wide.service("committer", name).start()
    made = [creation(wide.tables / f"t{number}") for number in range(CREATIONS)]
    homes = {item.table: partition_of(item.table, PARTITIONS) for item in made}
    aways = {one.table: (homes[one.table] + 1 + n % 3) % PARTITIONS for n, one in enumerate(made)}
    sent: dict[int, list[Proposal]] = defaultdict(list)

    def twice(number: int, one: Proposal) -> None:
        order = [homes[one.table], aways[one.table]]
        first, second = order if number % 2 else reversed(order)
        send(kafka, producer, first, one)
        threading.Event().wait(APART_S * number / CREATIONS)
        send(kafka, producer, second, one)

    threads = [threading.Thread(target=twice, args=result) for result in enumerate(made)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    for one in made:
        sent[homes[one.table]].append(one)
        sent[aways[one.table]].append(one)
    for number, outcomes in answered(kafka, sent).items():
        for outcome in outcomes:
            if number == homes[outcome.table]:
                assert (outcome.status, outcome.version) == ("committed", 0)
            else:
                assert rule(outcome) == ("denied", "other_partition", homes[outcome.table])

    registry = read_registry(KafkaBus(kafka, "test"), kafka.topics)
    assert {table: record.topic_partition for table, record in registry.items()} == homes
    assert writers_of_registrations(kafka) == {table: {home} for table, home in homes.items()}

    record = registry[made[0].table]
    home, away = homes[record.table], aways[record.table]
    halt = ask(record, "halt")
    send(kafka, producer, away, halt)
    send(kafka, producer, home, halt)
    [[elsewhere], [halted]] = answered(kafka, {away: [halt], home: [halt]}).values()
    assert rule(elsewhere) == ("denied", "other_partition", home)
    assert halted.status == "committed"
    late = ask(record, "append")
    send(kafka, producer, away, late)
    send(kafka, producer, home, late)
    [[elsewhere], [denied]] = answered(kafka, {away: [late], home: [late]}).values()
    assert rule(elsewhere) == ("denied", "other_partition", home)
    assert rule(denied) == ("denied", "table_halted", None)
    log = Path(record.table_root.removeprefix("file://")) / "_delta_log"
    assert [path.name for path in log.glob("*.json")] == [f"{0:020d}.json"]
    producer.close()


def writers_of_registrations(kafka: KafkaSettings) -> dict[UUID, set[int]]:
    """Return for each table the topic partitions that have ever registered it."""
    found: dict[UUID, set[int]] = defaultdict(set)
    for number in range(PARTITIONS):
        for record in read_topic(kafka, kafka.topics.table_state, number):
            if record.value is not None:
                result = decode(TableRecord, record.value)
                found[result.table].add(number)
    return found

"""A record that kills every process that decides it, on a real broker."""

import signal
from functools import partial
from pathlib import Path

import pytest

from tests.integration import run_audit
from tests.integration.conftest import Line
from tests.integration.proposers import CLOCK, create_table, values, write_file
from tests.integration.test_committer_processes import WAIT_S, check_offsets_are_safe, rows_of
from tests.integration.waiting import until
from tidegate_local.child_processes import ServiceProcess
from tidegate_messages.codec import encode, headers
from tidegate_runtime.client import proposal_builders
from tidegate_runtime.clock import new_id
from tidegate_runtime.kafka.client_protocols import TopicPartition
from tidegate_runtime.kafka.confluent_bus import KafkaBus

pytestmark = pytest.mark.broker

DEATHS = 3


def _is_dead(service: ServiceProcess) -> bool:
    return not service.child.is_alive()


def test_a_record_that_kills_three_processes_is_refused_and_those_behind_it_are_served(
    line: Line,
) -> None:
    committer = line.started("committer")
    table = create_table(line.kafka, line.tables / "t")
    assert committer.child.stop() == 0
    folder = Path(table.table_root.removeprefix("file://"))
    target = proposal_builders.Target(table.table, table.table_root, 0, table.table_id)
    adds = [write_file(folder, f"w{number}", 0) for number in range(5)]
    sent = [
        proposal_builders.append(
            target, proposal_builders.Stamp(new_id(CLOCK), CLOCK.now_ms()), [add]
        )
        for add in adds
    ]
    poison = str(sent[2].proposal_id)
    producer = KafkaBus(line.kafka, "writer").producer()
    at = TopicPartition(line.kafka.topics.proposals, table.topic_partition)
    for proposal in sent:
        producer.publish(at, str(table.table).encode(), encode(proposal), headers(proposal))
    producer.flush(WAIT_S)

    for number in range(DEATHS):
        doomed = line.service("committer", f"doomed-{number}", f"after_read@{poison}")
        doomed.start()
        until(partial(_is_dead, doomed), f"death {number}")
        assert doomed.child.exit_status() == -signal.SIGKILL
    successor = line.service("committer", "successor", f"after_read@{poison}")
    successor.start()

    def are_answered() -> bool:
        result = {value["proposal_id"] for value in values(line.kafka, line.kafka.topics.outcomes)}
        return {str(outcome.proposal_id) for outcome in sent} <= result

    until(are_answered, "every outcome")
    assert successor.child.is_alive(), "the fourth one does not judge it any more"
    outcomes = values(line.kafka, line.kafka.topics.outcomes)
    result = {outcome["proposal_id"]: outcome for outcome in outcomes}
    assert result[poison]["status"] == "rejected"
    assert result[poison]["rejection"]["rule"] == "poison"
    log = run_audit.entries(folder)
    run_audit.check_outcomes(log, outcomes)
    assert run_audit.refused(log) == {poison}
    assert [writer for writer, _ in rows_of(table)] == ["w0", "w1", "w3", "w4"]
    check_offsets_are_safe(line)

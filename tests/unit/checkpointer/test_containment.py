"""An unforeseen exception puts one table into quarantine, and no other."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

import pytest

from tests.builders import StillClock
from tests.fakes.memory_store import MemoryBus
from tests.support.contained_tables import Odd, bad_and_good, failing
from tests.support.delta_logs import append_until, log_names
from tests.unit.cdc_publisher.written_table import WrittenTable
from tidegate_checkpointer import service, table_view
from tidegate_checkpointer.service import Checkpointer
from tidegate_checkpointer.settings import CheckpointerSettings
from tidegate_delta.errors import BrokenLog
from tidegate_delta.log.file_names import checkpoint_name, checksum_name
from tidegate_messages.codec import encode
from tidegate_messages.published_records import FollowerRecord
from tidegate_runtime.containment import PAUSE_MIN_S
from tidegate_runtime.followers.quarantine import (
    Quarantine,
    publish_follower_state,
    read_follower_state,
)
from tidegate_runtime.kafka.client_protocols import TopicPartition
from tidegate_runtime.service.health import Health
from tidegate_runtime.service.runner import Running

pytestmark = pytest.mark.usefixtures("contained")

TOPICS = CheckpointerSettings().kafka.topics


@dataclass
class Scene:
    """A checkpointer with two tables; `bad` fails when a test says so."""

    bus: MemoryBus
    clock: StillClock
    bad: WrittenTable
    good: WrittenTable
    follower: Checkpointer

    def state(self) -> list[FollowerRecord]:
        return list(read_follower_state(self.bus, TOPICS).values())

    def grow(self) -> None:
        """Write enough versions to make checkpoint, compaction and checksums due."""
        for table in (self.bad, self.good):
            append_until(table, 17)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    bus, clock = MemoryBus(TOPICS.declared()), StillClock(1_000.0)
    bad, good = bad_and_good(tmp_path, bus, TOPICS)
    settings = CheckpointerSettings()
    follower = Checkpointer(settings, bus, Running(clock, Health(clock)))
    return Scene(bus, clock, bad, good, follower)


STAGES: dict[str, Any] = {
    "open_store": service,
    "view_from_log": service,
    "head_version": service,
    "load_state": table_view,
    "write_checkpoint": service,
    "move_hint_forward": service,
    "sweep_proposal_files": service,
    "_sum": Checkpointer,
    "_compact": service,
}
"""What fails -> where it is found."""


def failing_heads(error: Exception | None = None) -> Any:
    """Patch the service to fail as it reads the head of the table `bad`."""
    return mock.patch.object(service, "head_version", failing(service, "head_version", error))


@pytest.mark.parametrize("stage", STAGES)
def test_an_unforeseen_error_quarantines_one_table_and_is_retried(scene: Scene, stage: str) -> None:
    scene.grow()
    home = STAGES[stage]
    with mock.patch.object(home, stage, failing(home, stage)):
        scene.follower.poll()
        assert {checkpoint_name(10), checksum_name(12)} <= log_names(scene.good)
        [result] = scene.state()
        assert (result.service, result.table, result.name) == ("checkpointer", scene.bad.id, "bad")
        assert (result.error_class, result.attempts) == ("Odd", 1)
        assert result.reason == "Odd: of an odd kind"
        assert result.next_try_ms is not None
    # Neither a poll before its retry time nor a notification makes it retry.
    scene.follower.poll()
    scene.follower.notice(scene.bad.notification())
    assert scene.state() == [result]
    scene.clock.boot += PAUSE_MIN_S + 1
    scene.follower.poll()
    assert scene.state() == []
    assert checkpoint_name(10) in log_names(scene.bad)


def test_the_pause_grows_and_each_attempt_is_logged(scene: Scene) -> None:
    pauses = []
    with failing_heads():
        for attempt in range(1, 4):
            scene.follower.poll()
            [result] = scene.state()
            assert result.attempts == attempt
            assert result.next_try_ms is not None
            pauses.append(round((result.next_try_ms - scene.clock.now_ms()) / 1000))
            scene.clock.boot += pauses[-1] + 1
    assert pauses == [PAUSE_MIN_S, 2 * PAUSE_MIN_S, 4 * PAUSE_MIN_S]


def test_an_operator_has_it_retried_at_the_next_poll(scene: Scene) -> None:
    with failing_heads():
        scene.follower.poll()
        [key] = read_follower_state(scene.bus, TOPICS)
        publish_follower_state(scene.bus, TOPICS, {key: None})
        scene.follower.poll()
        [result] = scene.state()
        assert result.attempts == 2, "it was tried, and failed again"
        publish_follower_state(scene.bus, TOPICS, {key: None})
    scene.follower.poll()
    assert scene.state() == []
    assert not scene.follower._quarantine.holds(scene.bad.id)


def test_after_a_notification_one_table_is_quarantined_and_the_other_served(scene: Scene) -> None:
    scene.follower.poll()
    scene.grow()
    with failing_heads():
        for table in (scene.bad, scene.good):
            scene.follower.notice(table.notification())
    assert [item.name for item in scene.state()] == ["bad"]
    assert checkpoint_name(10) in log_names(scene.good)


def test_a_foreseen_error_recurs_at_each_poll_and_is_logged_once(scene: Scene) -> None:
    with failing_heads(BrokenLog("it is torn", error_class="CorruptCommit")):
        for _ in range(3):
            scene.follower.poll()
    [result] = scene.state()
    assert (result.error_class, result.reason, result.next_try_ms) == (
        "CorruptCommit",
        "it is torn",
        None,
    )
    assert len(scene.bus.logs[next(at for at in scene.bus.logs if "follower" in at.topic)]) == 1
    scene.follower.poll()
    assert scene.state() == []


def test_a_restart_withdraws_what_the_process_before_reported(scene: Scene) -> None:
    with failing_heads():
        scene.follower.poll()
    clock = scene.clock
    Checkpointer(CheckpointerSettings(), scene.bus, Running(clock, Health(clock))).poll()
    assert scene.state() == []


def test_a_table_that_is_no_longer_followed_is_no_longer_quarantined(scene: Scene) -> None:
    with failing_heads():
        scene.follower.poll()
    record = scene.bad.record(status="dropped")
    at = TopicPartition(TOPICS.table_state, 0)
    scene.bus.append(at, str(scene.bad.id).encode(), encode(record))
    scene.follower.poll()
    assert scene.state() == []


def test_another_followers_records_are_its_own(scene: Scene) -> None:
    other = Quarantine("cdc-publisher", scene.bus, TOPICS, scene.clock, lambda *_: None)
    with other.around(scene.bad.id, "bad"):
        raise Odd("elsewhere")
    other.tell()
    scene.follower.poll()
    [result] = scene.state()
    assert result.service == "cdc-publisher"


def test_what_ends_a_process_is_not_contained(scene: Scene) -> None:
    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    with mock.patch.object(service, "head_version", interrupt), pytest.raises(KeyboardInterrupt):
        scene.follower.poll()

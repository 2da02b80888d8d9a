"""An unforeseen exception puts one table into quarantine; the other tables are still published."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import UUID

import pytest

from tests.builders import StillClock
from tests.fakes.memory_store import MemoryBus
from tests.support.contained_tables import Odd, bad_and_good, failing
from tests.unit.cdc_publisher.memory_change_topic import Topic
from tests.unit.cdc_publisher.written_table import WrittenTable, rows
from tidegate_cdc_publisher import service, stream_layouts, table_stream
from tidegate_cdc_publisher.service import CdcPublisher
from tidegate_cdc_publisher.settings import CdcSettings
from tidegate_cdc_publisher.transactional_producer import PositionReader
from tidegate_messages.published_records import FollowerRecord
from tidegate_runtime.containment import PAUSE_MIN_S
from tidegate_runtime.followers.quarantine import publish_follower_state, read_follower_state
from tidegate_runtime.service.health import Health
from tidegate_runtime.service.runner import Running

pytestmark = pytest.mark.usefixtures("contained")

TOPICS = CdcSettings().kafka.topics


class Writer(Topic):
    """An in-memory change writer that fails while `fails` is set."""

    fails = False

    def take_over(self) -> None:
        """Do nothing."""

    def publish(self, topic: str, records: Any, position: Any, *more: Any) -> None:
        """Take a chunk, or fail."""
        if self.fails:
            raise Odd("of an odd kind")
        super().publish("cdc.t", records, position)


@dataclass
class Scene:
    """A publisher with two tables; `bad` fails when a test says so."""

    bus: MemoryBus
    clock: StillClock
    bad: WrittenTable
    good: WrittenTable
    topics: dict[UUID, Writer]
    follower: CdcPublisher

    def state(self) -> list[FollowerRecord]:
        return list(read_follower_state(self.bus, TOPICS).values())

    def ids_of(self, table: WrittenTable) -> list[int]:
        return [item["after"]["id"] for item in self.topics[table.id].told]

    def poll(self) -> None:
        """Poll twice: a table without an owner is taken over at the second poll."""
        for _ in range(2):
            self.follower.poll()


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    bus, clock, result = MemoryBus(TOPICS.declared()), StillClock(1_000.0), dict[UUID, Writer]()
    bad, good = bad_and_good(tmp_path, bus, TOPICS)
    for table in (bad, good):
        table.append(rows(1))

    def positions(*_: object) -> dict[UUID, Any]:
        return {table: one.position for table, one in result.items() if one.position}

    def writer_of(_kafka: object, table: UUID, *_: object) -> Writer:
        return result.setdefault(table, Writer())

    monkeypatch.setattr(service, "ChangeWriter", writer_of)
    monkeypatch.setattr(PositionReader, "read", positions)
    monkeypatch.setattr(service, "create_topics", lambda *_: None)
    settings = CdcSettings.model_validate({"cdc": {"snapshot_mode": "initial"}})
    follower = CdcPublisher(settings, bus, Running(clock, Health(clock)))
    return Scene(bus, clock, bad, good, result, follower)


STAGES: list[tuple[Any, str]] = [
    (service, "open_store"),
    (service, "head_version"),
    (service, "stated_checksum"),
    (stream_layouts, "open_snapshot"),
    (table_stream, "snapshot_batches"),
]


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage[1])
def test_an_unforeseen_error_quarantines_one_table_and_is_retried(
    scene: Scene, stage: tuple[Any, str]
) -> None:
    module, name = stage
    with mock.patch.object(module, name, failing(module, name)):
        scene.poll()
        assert scene.ids_of(scene.good) == [1]
        [result] = scene.state()
        assert (result.service, result.name, result.error_class) == ("cdc-publisher", "bad", "Odd")
        assert result.reason.startswith("Odd: of an odd kind")
        assert result.attempts == 1
    # Neither a poll before its retry time nor a notification makes it retry.
    scene.poll()
    scene.follower.notice(scene.bad.notification())
    assert scene.state() == [result]
    scene.clock.boot += PAUSE_MIN_S + 1
    scene.poll()
    assert scene.state() == []
    assert scene.ids_of(scene.bad) == [1]


def test_one_that_fails_while_it_is_published_goes_on_where_it_was(scene: Scene) -> None:
    scene.poll()
    scene.topics[scene.bad.id].fails = True
    for table in (scene.bad, scene.good):
        table.append(rows(2))
        scene.follower.notice(table.notification())
    assert scene.ids_of(scene.good) == [1, 2]
    assert [item.name for item in scene.state()] == ["bad"]
    scene.topics[scene.bad.id].fails = False
    scene.clock.boot += PAUSE_MIN_S + 1
    scene.follower.poll()
    assert scene.ids_of(scene.bad) == [1, 2]
    assert scene.state() == []


def test_an_operator_has_it_retried_at_the_next_poll(scene: Scene) -> None:
    scene.poll()
    scene.topics[scene.bad.id].fails = True
    scene.bad.append(rows(2))
    scene.follower.notice(scene.bad.notification())
    [key] = read_follower_state(scene.bus, TOPICS)
    for attempts in (2, 3):
        publish_follower_state(scene.bus, TOPICS, {key: None})
        scene.clock.boot += 31.0
        scene.follower.poll()
        assert [item.attempts for item in scene.state()] == [attempts]
    scene.topics[scene.bad.id].fails = False
    publish_follower_state(scene.bus, TOPICS, {key: None})
    scene.clock.boot += 31.0
    scene.follower.poll()
    assert (scene.ids_of(scene.bad), scene.state()) == ([1, 2], [])


def test_a_restart_withdraws_what_the_process_before_reported(scene: Scene) -> None:
    with mock.patch.object(service, "head_version", failing(service, "head_version")):
        scene.poll()
    assert scene.state()
    settings = CdcSettings.model_validate({"cdc": {"snapshot_mode": "initial"}})
    after = CdcPublisher(settings, scene.bus, Running(scene.clock, Health(scene.clock)))
    after.poll()
    after.poll()
    assert scene.state() == []


def test_a_table_that_is_not_published_is_not_in_quarantine(scene: Scene) -> None:
    scene.bad.configuration = {}
    scene.bad.set_metadata()
    scene.poll()
    assert scene.state() == []

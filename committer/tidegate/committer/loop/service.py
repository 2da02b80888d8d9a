"""The committer's loop: take, settle, tell; then, once it is durable, move the offset.

One thread, one step at a time, so that a simulation can drive the very same code. Safety rests on
the tables' logs; offsets and the registry are hints of where to go on.
"""

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from tidegate.committer.doors import Doors, reach
from tidegate.committer.group_commit.rebase import Origin
from tidegate.committer.loop import gauges
from tidegate.committer.loop.lane import Lane
from tidegate.committer.loop.routing import Routing
from tidegate.committer.loop.telling import Telling
from tidegate.committer.loop.trials import SUSPECTS_MAX, Note, note_text, take_over
from tidegate.delta.errors import Fenced, Unavailable
from tidegate.pipeline.published import TableRecord
from tidegate.runtime.bus import (
    Consumer,
    Notes,
    Offset,
    Polled,
    Producer,
    Record,
    TopicPartition,
)
from tidegate.runtime.logs import log_event
from tidegate.runtime.metrics import PROPOSAL_PICKUP
from tidegate.runtime.registry import read_registry
from tidegate.runtime.service import Running

RECORDS_MAX: Final = 1_000
"""Records that one poll brings at most."""

UNSETTLED_MAX: Final = SUSPECTS_MAX
"""Records read and not answered, past which a topic partition is not read on."""

BYTES_MAX: Final = 64 * 1024 * 1024
"""Their size, likewise."""

DURABLE_S: Final = 0.2
"""How long the registry and the offset may lag behind what was told: one round trip for many."""

IDLE_S: Final = 0.25
FLYING_MIN_S: Final = 0.001
FLYING_MAX_S: Final = 0.005
FLYING_SHARE: Final = 0.1
"""How long nothing is read while a PUT flies, unless it lands: as a share of what one takes."""

LANDING_S: Final = 1.0
"""How long a clean stop waits for what flies; the next owner finds it in the log otherwise."""

OUTSIDE_S: Final = 600.0
"""How long the group may let nobody in: a member that hangs keeps it waiting half as long."""

OBSERVED_S: Final = 0.5
"""How often the gauges are set: scrapes are rarer, and a loop that is busy steps far oftener."""

STEP_SPARE_S: Final = 30.0
"""How much longer than the deadline of a PUT one step may take before the loop counts as stuck."""
Recording = Callable[[Mapping[TopicPartition, Offset], Notes], None]
"""How offsets get to the group: at once, or soon."""

_log = logging.getLogger(__name__)


@dataclass
class CommitterLoop:
    """A member of the committers' group, and the lanes it was given."""

    doors: Doors
    consumer: Consumer = field(init=False)
    producer: Producer = field(init=False)
    lanes: dict[TopicPartition, Lane] = field(default_factory=dict)
    paused: set[TopicPartition] = field(default_factory=set)
    lags_since_s: float | None = None
    observed_s: float = -math.inf
    is_busy: bool = False
    outside_since_s: float = field(init=False)
    process: str = field(init=False)

    def __post_init__(self) -> None:
        topics = self.doors.topics
        self.consumer = self.doors.bus.consumer(f"{topics.prefix}committer", [topics.proposals])
        self.producer = self.doors.bus.producer()
        self.outside_since_s = self.doors.clock.boot_s()
        self.process = self.doors.process or self.doors.new_id().hex

    def step(self, timeout_s: float = IDLE_S) -> bool:
        """Do what can be done with one poll; return whether there is more to do at once.

        Raises: Unavailable, Misconfigured, Fenced: what is told is not known to be durable, so
        everything is dropped and begun anew.
        """
        flies = any(lane.flies for lane in self.lanes.values())
        polled = self.consumer.poll(RECORDS_MAX, 0.0 if flies else self._patience_s(timeout_s))
        self._rebalance(polled)
        self._mind_the_group()
        if polled.records:
            age_ms = self.doors.clock.now_ms() - polled.records[0].timestamp_ms
            PROPOSAL_PICKUP.observe(max(0, age_ms) / 1000)
        self._own_up(polled)
        for record in polled.records:
            self._take(record)
        called = [self._call(at) for at in list(self.lanes)]
        busy = [lane.work() for lane in self.lanes.values()]
        self.is_busy = any((*busy, *called))
        is_quiet = not (polled.records or self.is_busy)
        if flies and is_quiet:
            self.doors.puts.wait(self._glance_s())
        self._keep_up()
        if polled.records or self.paused:
            self._press_back()
        self._observe()
        is_idle = is_quiet and not self.unsettled
        self.doors.tidy(is_idle or (is_quiet and flies), is_idle)
        return self.is_busy

    @property
    def readiness(self) -> tuple[bool, str]:
        """Whether it does its duty, and what that is; a standby's is to wait."""
        if self.lanes:
            return True, f"active: {len(self.lanes)} topic partitions"
        if self.consumer.is_member:
            return True, "standby: every topic partition has another owner"
        return False, "joining: the group has not let it in"

    @property
    def unsettled(self) -> int:
        """How many deliveries were read and have no answer yet."""
        return sum(lane.unsettled for lane in self.lanes.values())

    @property
    def movable(self) -> int:
        """How many of these are ours to move: none of a table that rests."""
        stranded = gauges.stranded(self.lanes.values(), self.doors.clock.boot_s())
        return self.unsettled - stranded

    def finish(self) -> None:
        """Let land what flies, make durable what was told, record offsets. Raises: as `step`."""
        ends_s = self.doors.clock.boot_s() + LANDING_S
        while any(lane.flies for lane in self.lanes.values()):
            self.doors.puts.wait(FLYING_MIN_S)
            for lane in self.lanes.values():
                lane.land()
            if self.doors.clock.boot_s() > ends_s:
                break
        self._make_durable(self.consumer.commit)
        self._sign_off()
        self.producer.close()

    def leave(self) -> None:
        """Leave the group, so that the next owner need not wait for the session to end."""
        gauges.observe((), 0, self.doors.clock.boot_s())
        self.doors.close()
        self.consumer.close()

    def _take(self, record: Record) -> None:
        lane = self.lanes.get(record.at)
        if lane is None:
            return
        if record.offset < lane.read_to:
            # Its name, by which our offsets go, is another one's; nobody else tells us.
            raise Unavailable(
                f"{record.at} comes from offset {record.offset} on, and was read to {lane.read_to}:"
                " it was made anew, or cut by its brokers; the loop starts over"
            )
        lane.read_to = record.offset + 1
        lane.take(record)

    def _patience_s(self, timeout_s: float) -> float:
        if self.is_busy:
            return 0.0
        now_s = self.doors.clock.boot_s()
        waits = [until for lane in self.lanes.values() if (until := lane.waits_until_s) is not None]
        if self.lags_since_s is not None:
            waits.append(self.lags_since_s + DURABLE_S)
        return max(0.0, min([timeout_s, *(until - now_s for until in waits)]))

    def _glance_s(self) -> float:
        """Return how long to look at nothing but the PUTs: a part of the shortest that flies."""
        puts_s = [lane.put_s for lane in self.lanes.values() if lane.flies]
        return min(FLYING_MAX_S, max(FLYING_MIN_S, FLYING_SHARE * min(puts_s, default=0.0)))

    def _rebalance(self, polled: Polled) -> None:
        for at in (*polled.revoked, *polled.lost):
            self.lanes.pop(at, None)
            self.paused.discard(at)
            log_event(_log, "revoked", partition=at.partition)
        # Asked once for all of them: for each it would take as long as there are others.
        registry = read_registry(self.doors.bus, self.doors.topics) if polled.assigned else {}
        for at in polled.assigned:
            lane = self.lanes[at] = self._lane(at, registry)
            log_event(_log, "assigned", partition=at.partition, tables=len(lane.routing.desks))
            if not self._begin(at, lane.trials.note):
                return

    def _mind_the_group(self) -> None:
        """Start over where the group lets nobody in for long: a new client reads its certificates
        anew, and the one that is there has those that were in their files when it was made.
        """
        now_s = self.doors.clock.boot_s()
        if self.lanes or self.consumer.is_member:
            self.outside_since_s = now_s
        elif now_s - self.outside_since_s > OUTSIDE_S:
            raise Unavailable(
                f"the group has not let it in for {OUTSIDE_S:.0f} s: look at the brokers, and at "
                "the lines `librdkafka`; the loop starts over"
            )

    def _begin(self, at: TopicPartition, note: Note) -> bool:
        """Let the group's note say whose turn it is; return whether it is ours."""
        if note.deaths or note.alone:
            told = {"deaths": note.deaths, "until": note.until, "alone": note.alone}
            log_event(_log, "heir", level=logging.WARNING, partition=at.partition, **told)
        self.consumer.part_with(at, note_text(note.clean()))
        return self._record({at: self.lanes[at].trials.recorded})

    def _own_up(self, polled: Polled) -> None:
        """Let the note say that records are judged, where somebody has died over some."""
        owing = [at for at, lane in self.lanes.items() if lane.trials.owes_word]
        for at in owing if polled.records else ():
            if at in self.lanes and any(record.at == at for record in polled.records):
                self.lanes[at].trials.own_up()
                self._record({at: self.lanes[at].trials.recorded})

    def _call(self, at: TopicPartition) -> bool:
        """Judge the next record that is under suspicion, once the group's note names it."""
        lane = self.lanes.get(at)
        record = lane.call() if lane else None
        if lane is None or record is None or not self._record({at: lane.trials.recorded}):
            return False
        lane.judge(record)
        return True

    def _lane(self, at: TopicPartition, registry: Mapping[UUID, TableRecord]) -> Lane:
        identity = self.doors.bus.identity([at.topic])
        topic_id = identity.topic_ids[at.topic]
        origin = Origin(
            epoch=self.doors.new_id(),
            stream=f"{identity.cluster_id}/{topic_id}/{at.partition}",
            app_id=f"tidegate/{topic_id}/{at.partition}",
            engine=self.doors.engine,
        )
        telling = Telling(self.producer, self.doors.topics, at.partition, self.doors.clock)
        routing = Routing(at, self.doors, telling, origin)
        routing.serve_all(registry)
        trials = take_over(self.doors.bus, self.consumer, at, self.process, topic_id)
        return Lane(self.doors, routing, trials)

    def _keep_up(self) -> None:
        """Make durable what was told, every so often: what is sent is on its way before that."""
        if not any(lane.lags for lane in self.lanes.values()):
            self.lags_since_s = None
            return
        now_s = self.doors.clock.boot_s()
        if self.lags_since_s is None:
            self.lags_since_s = now_s
        elif now_s - self.lags_since_s >= DURABLE_S:
            self._make_durable(self.consumer.commit_soon)

    def _make_durable(self, record: Recording) -> None:
        """Flush what was told, then the registry; then record the offsets."""
        self.lags_since_s = None
        safe = {
            at: offset
            for at, lane in self.lanes.items()
            if (offset := lane.make_durable()) is not None
        }
        if not safe:
            return
        reach("before_offsets")
        if not self._record(safe, record):
            return
        reach("after_offsets")
        for at, offset in safe.items():
            self.lanes[at].committed = offset

    def _record(
        self, offsets: Mapping[TopicPartition, Offset], record: Recording | None = None
    ) -> bool:
        """Record offsets, each with the note of its lane; return whether they are ours to record.

        Raises: Unavailable.
        """
        notes = {at: self.lanes[at].trials.told(offset) for at, offset in offsets.items()}
        try:
            (record or self.consumer.commit)(offsets, notes)
        except Fenced as error:
            # The group has moved on: its new owner reads the logs, and we are told at a next poll.
            log_event(_log, "fenced", level=logging.WARNING, why=error)
            self.lanes.clear()
            self.paused.clear()
            return False
        for at, offset in offsets.items():
            self.lanes[at].trials.recorded = offset
        return True

    def _sign_off(self) -> None:
        """Say that we go of our own will: what was not answered killed nobody."""
        for lane in self.lanes.values():
            lane.trials.note = lane.trials.note.clean()
        if self.lanes:
            self._record({at: lane.trials.recorded for at, lane in self.lanes.items()})

    def _observe(self) -> None:
        now_s = self.doors.clock.boot_s()
        if now_s - self.observed_s >= OBSERVED_S:
            self.observed_s = now_s
            gauges.observe(self.lanes.values(), len(self.paused), now_s)

    def _press_back(self) -> None:
        """Read no further where too much waits: what was just read may be."""
        for at, lane in self.lanes.items():
            fullness = max(lane.unsettled / UNSETTLED_MAX, lane.unsettled_bytes / BYTES_MAX)
            if fullness > 1 and at not in self.paused:
                self.consumer.pause(at)
                self.paused.add(at)
            elif fullness <= 1 / 2 and at in self.paused:
                self.consumer.resume(at)
                self.paused.discard(at)


def serve(loop: CommitterLoop, running: Running) -> None:
    """Run the loop until the service is told to stop; then, or on a failure, leave the group."""
    running.health.expect("loop", loop.doors.settings.put_deadline_s + STEP_SPARE_S)
    try:
        while not running.stopping.is_set():
            before = loop.unsettled
            loop.step()
            running.health.progress("loop")
            running.health.work("proposals", loop.movable)
            if loop.unsettled != before:
                running.health.progress("proposals")
            running.health.ready(*loop.readiness)
        loop.finish()
    finally:
        loop.leave()

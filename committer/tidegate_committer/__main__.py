"""Wiring: settings -> doors -> service. `python -m tidegate_committer --help`."""

import sys
from typing import Final

from tidegate_committer import background_reads, put_executor
from tidegate_committer.dependencies import Dependencies
from tidegate_committer.loop.service import CommitterLoop, serve
from tidegate_committer.settings import CommitterSettings
from tidegate_runtime.cli.service_command import service_app
from tidegate_runtime.clock import SystemClock, new_id
from tidegate_runtime.gc_control import GarbageSweeper
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.release import ENGINE
from tidegate_runtime.service.runner import Running
from tidegate_runtime.storage.open_store import open_store
from tidegate_runtime.storage.ratified_store import RatifyLog, ratifying
from tidegate_runtime.storage.store_qualification import StoreQualification

SWITCH_S: Final = 0.0002
"""How long the loop keeps the interpreter from a thread that wants it back.

A PUT lets go of it a dozen times, at each call of the system; of the default, 5 ms, a busy loop
would make sixty.
"""

AUDITORS: Final = 8
"""Threads that ask a store for what nobody waits for."""

READERS: Final = 4
"""Threads that ask a store for what decisions wait for. Some of it takes much memory."""

_PROCESS: Final = new_id(SystemClock()).hex
"""Our own name, over every run of the loop: a run that fails is no death."""


def main(settings: CommitterSettings, running: Running) -> None:
    """Take proposals in order, decide on them, write the tables' logs, and tell what became."""
    clock = running.clock
    sweeper = GarbageSweeper(clock.boot_s())
    sweeper.begin()
    sys.setswitchinterval(SWITCH_S)
    auditors = background_reads.ReadsInThreads(AUDITORS, "audit")
    bus, topics = KafkaBus(settings.kafka, "tidegate-committer"), settings.kafka.topics
    dependencies = Dependencies(
        bus=bus,
        topics=topics,
        open_store=ratifying(
            lambda root: open_store(root, settings.storage, settings.committer.roots),
            lambda: RatifyLog(bus, topics, clock),
            settings.committer.ratified_roots,
            lambda: new_id(clock),
        ),
        clock=clock,
        new_id=lambda: new_id(clock),
        settings=settings.committer,
        engine=ENGINE,
        puts=put_executor.PutsInThreads(),
        tidy=lambda at_leisure, is_idle: sweeper.sweep(clock.boot_s(), at_leisure, is_idle),
        background=auditors,
        loads=background_reads.ReadsInThreads(1, "load"),
        reads=background_reads.ReadsInThreads(READERS, "read"),
        vet=StoreQualification(
            settings.storage, settings.committer.store_contests, auditors.begin, clock
        ).vet,
        process=_PROCESS,
    )
    serve(CommitterLoop(dependencies), running)


app = service_app("committer", CommitterSettings, main)

if __name__ == "__main__":
    app()

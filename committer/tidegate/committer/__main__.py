"""Wiring: settings -> doors -> service. `python -m tidegate.committer --help`."""

import sys
from typing import Final

from tidegate.committer import background, puts
from tidegate.committer.doors import Doors
from tidegate.committer.loop.service import CommitterLoop, serve
from tidegate.committer.settings import CommitterSettings
from tidegate.runtime.cli.service import service_app
from tidegate.runtime.clock import SystemClock, new_id
from tidegate.runtime.garbage import Sweeper
from tidegate.runtime.kafka.bus import KafkaBus
from tidegate.runtime.release import ENGINE
from tidegate.runtime.service import Running
from tidegate.runtime.stores.opening import open_store
from tidegate.runtime.stores.ratified_store import RatifyLog, ratifying
from tidegate.runtime.stores.vetting import Vetting

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
    sweeper = Sweeper(clock.boot_s())
    sweeper.begin()
    sys.setswitchinterval(SWITCH_S)
    auditors = background.InThreads(AUDITORS, "audit")
    bus, topics = KafkaBus(settings.kafka, "tidegate-committer"), settings.kafka.topics
    doors = Doors(
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
        puts=puts.InThreads(),
        tidy=lambda at_leisure, is_idle: sweeper.sweep(clock.boot_s(), at_leisure, is_idle),
        background=auditors,
        loads=background.InThreads(1, "load"),
        reads=background.InThreads(READERS, "read"),
        vet=Vetting(settings.storage, settings.committer.store_contests, auditors.begin, clock).vet,
        process=_PROCESS,
    )
    serve(CommitterLoop(doors), running)


app = service_app("committer", CommitterSettings, main)

if __name__ == "__main__":
    app()

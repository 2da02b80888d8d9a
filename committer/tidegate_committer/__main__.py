"""Build the committer from its settings and run it: `python -m tidegate_committer --help`."""

import tidegate_runtime.service.without_pandas  # noqa: F401 - before what loads Arrow

# isort: split
from typing import Final

from tidegate_committer.dependencies import Dependencies
from tidegate_committer.loop.service import CommitterLoop, serve
from tidegate_committer.settings import CommitterSettings
from tidegate_committer.store_executor import StoreThreads
from tidegate_committer.store_reads.early_stores import open_early
from tidegate_runtime.cli.command import service_app
from tidegate_runtime.clock import SystemClock, new_id
from tidegate_runtime.gc_control import GarbageSweeper
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.release import ENGINE
from tidegate_runtime.service.runner import Running
from tidegate_runtime.storage.open_store import open_store
from tidegate_runtime.storage.store_qualification import StoreQualification

AUDITORS: Final = 8
"""Threads per store for audits and probes, on which no decision waits."""

READERS: Final = 4
"""Threads per store for reads on which decisions wait. Few, because some take much memory."""

LOADERS: Final = 8
"""Threads per store for tables' whole logs: after a takeover every busy table waits for its own."""

PUTS_MAX: Final = 64
"""PUTs in flight or prepared at once in one store, over all tables."""

_PROCESS: Final = new_id(SystemClock()).hex
"""The id of this operating system process. It stays the same when the loop fails and restarts, so
that such a restart does not count as a death of the process.
"""


def main(settings: CommitterSettings, running: Running) -> None:
    """Read proposals in order, decide them, write the tables' logs and publish the outcomes."""
    clock = running.clock
    sweeper = GarbageSweeper(clock.boot_s())
    sweeper.begin()
    auditors = StoreThreads(AUDITORS, "audit")
    # The stores live as long as the loop: whoever opens another in one of their buckets shares it.
    _early = open_early(
        settings.committer.roots,
        lambda root: open_store(root, settings.storage, settings.committer.roots),
        auditors,
    )
    bus, topics = KafkaBus(settings.kafka, "tidegate-committer"), settings.kafka.topics
    dependencies = Dependencies(
        bus=bus,
        topics=topics,
        open_store=lambda root: open_store(root, settings.storage, settings.committer.roots),
        clock=clock,
        new_id=lambda: new_id(clock),
        settings=settings.committer,
        engine=ENGINE,
        puts=StoreThreads(PUTS_MAX, "put"),
        tidy=lambda at_leisure, is_idle: sweeper.sweep(clock.boot_s(), at_leisure, is_idle),
        background=auditors,
        loads=StoreThreads(LOADERS, "load"),
        reads=StoreThreads(READERS, "read"),
        vet=StoreQualification(
            settings.storage, settings.committer.store_contests, auditors.begin, clock
        ).vet,
        process=_PROCESS,
        replies=bus.replies(),
    )
    serve(CommitterLoop(dependencies), running)


app = service_app("committer", CommitterSettings, main)

if __name__ == "__main__":
    app()

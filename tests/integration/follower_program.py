"""A follower as a process: it writes each notification to a file, and fails on demand.

Settings come as `--set`; the environment has the output file (`SEEN`) and the faults (`MANNERS`).
"""

import os
import sys
import time
from pathlib import Path
from uuid import UUID

from tidegate_messages.published_records import CommitRecord
from tidegate_runtime.followers import commit_follower
from tidegate_runtime.service.runner import Running, run
from tidegate_runtime.service.settings import ServiceSettings, load

SEEN = Path(os.environ["SEEN"])
MANNERS = os.environ.get("MANNERS", "")
UNBEARABLE = int(MANNERS.removeprefix("fail:")) if MANNERS.startswith("fail:") else None


class EntryEncoder:
    """Writes the notifications that it receives."""

    name = "scribe"
    poll_interval_s = 0.5
    unfinished = ()

    def go_on(self, table: UUID) -> None:
        """Write nothing: this follower leaves no work for later."""

    def urgency(self, table: UUID) -> float:
        """Return nothing of use, as no work is left."""
        return 0.0

    def notice(self, record: CommitRecord) -> None:
        """Write the version; `slow` waits first, `fail:n` fails at version n."""
        if MANNERS == "slow":
            time.sleep(0.2)
        if record.version == UNBEARABLE:
            raise RuntimeError(f"cannot bear version {record.version}")
        with SEEN.open("a", encoding="utf-8") as out:
            out.write(f"{record.table} {record.version}\n")
            out.flush()

    def poll(self) -> None:
        """Write that it polled; `blind` fails."""
        if MANNERS == "blind":
            raise RuntimeError("cannot look")
        with SEEN.open("a", encoding="utf-8") as out:
            out.write("look\n")


def follow(running: Running) -> None:
    """Follow with the settings of the command line."""
    commit_follower.run_follower(EntryEncoder(), SETTINGS, running)


def skip_the_first() -> None:
    """Lose the first record, as Faust does when its group's generation changes."""
    skipped: list[object] = []
    take = commit_follower._Follower._take

    async def take_but_the_first(self: commit_follower._Follower, event: object) -> None:
        if skipped:
            await take(self, event)
        skipped.append(event)

    commit_follower._Follower._take = take_but_the_first  # type: ignore[method-assign]  # a fault on purpose


if __name__ == "__main__":
    overrides = dict(pair.split("=", 1) for pair in sys.argv[1:])
    SETTINGS = load(ServiceSettings, None, overrides)
    if MANNERS == "skip":
        skip_the_first()
    sys.exit(run(follow, "scribe", SETTINGS))

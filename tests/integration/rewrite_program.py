"""Publishes the last version of a table and prints, in MiB, its memory before and at its peak.

It is called with the table's folder, and the version before the one to be published.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from tidegate_cdc_publisher.change_records import ChangeRecord, VersionBound
from tidegate_cdc_publisher.machine import StreamState
from tidegate_cdc_publisher.settings import TableChanges
from tidegate_cdc_publisher.stream_layouts import StreamSource
from tidegate_cdc_publisher.table_stream import TableStream
from tidegate_messages.stream_position import Position
from tidegate_runtime.clock import SystemClock
from tidegate_runtime.service.health import Health
from tidegate_runtime.service.runner import Running
from tidegate_runtime.storage.local_store import LocalStore

TABLE = UUID(int=1)


class Counted:
    """Counts what is published."""

    records = 0

    def publish(
        self,
        topic: str,
        records: Sequence[ChangeRecord],
        position: Position,
        bounds: Sequence[VersionBound] = (),
    ) -> None:
        """Count a chunk, and read its records as a producer does."""
        self.records += sum(1 for record in records if record.place is None)

    def close(self) -> None:
        """Do nothing."""


def peak_mib() -> int:
    """Return the most memory that this process has had since it was last asked to forget."""
    status = Path("/proc/self/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) // 1024


def main(folder: Path, version: int) -> None:
    clock, writer = SystemClock(), Counted()
    source = StreamSource(TABLE, "t", "tidegate", "cdc.t", TableChanges(), 20_000)
    following = TableStream(
        source,
        LocalStore(folder.as_uri()),
        writer,
        StreamState(TABLE, "no_data"),
        Running(clock, Health(clock)),
    )
    following.catch_up(version)
    Path("/proc/self/clear_refs").write_text("5")
    idle = peak_mib()
    longest_s, began_s = 0.0, clock.boot_s()
    while not following.catch_up(version + 1, clock.boot_s()):
        longest_s, began_s = max(longest_s, clock.boot_s() - began_s), clock.boot_s()
    longest_s = max(longest_s, clock.boot_s() - began_s)
    sys.stdout.write(f"{idle} {peak_mib()} {writer.records} {longest_s:.2f}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))

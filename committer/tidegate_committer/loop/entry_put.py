"""One entry's put-if-absent until its result is certain: PUT, RESOLVE by reading, PUT again.

If the entry refers to a file of deletion vectors, that is put first, under a new unique name.
"""

from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from tidegate_committer.dependencies import Dependencies, reach
from tidegate_committer.group_commit.entry_encoding import EncodedEntry
from tidegate_delta.errors import OutcomeUnknown, Unavailable
from tidegate_delta.log.file_names import commit_name, in_log
from tidegate_runtime.clock import Clock
from tidegate_runtime.observability.metrics import (
    COMMIT_WRITE,
    PUTS_IN_FLIGHT,
    STORAGE_AMBIGUOUS,
    of_table,
)
from tidegate_runtime.storage.log_store import LogStore, Put, Turn, at_once

PAUSE_S: Final = 0.05
PAUSE_MAX_S: Final = 2.0
"""The pause before the same bytes are sent again after a PUT without a response. It doubles each
time: a store that throttles writes to one name counts refused writes, too.
"""


@dataclass(frozen=True)
class PutResult:
    """How a PUT ended: WON or LOST, for certain. Units: `took_s` in seconds."""

    put: Put
    took_s: float


@dataclass
class _PutTimer:
    """The turn of a PUT (whether it may be sent), and its duration.

    The turn is called until it returns true once. The duration of a prepared PUT counts from then,
    that of any other from its start.
    Units: `began_s` by `Clock.boot_s`.
    """

    turn: Turn
    clock: Clock
    began_s: float
    has_left: bool = False

    def __call__(self) -> bool:
        if not self.has_left and self.turn():
            self.has_left = True
            PUTS_IN_FLIGHT.inc()
            if self.turn is not at_once:
                self.began_s = self.clock.boot_s()
        return self.has_left

    def is_over(self, label: str) -> float:
        """End the PUT; return its duration in seconds."""
        took_s = self.clock.boot_s() - self.began_s
        if self.has_left:
            PUTS_IN_FLIGHT.dec()
            of_table(COMMIT_WRITE, label).observe(took_s)
        return took_s


@dataclass(frozen=True)
class EntryPut:
    """One entry to be put as its version. It runs in another thread, so it has no reference to the
    table committer.
    """

    store: LogStore
    label: str
    encoded: EncodedEntry

    def start(
        self,
        dependencies: Dependencies,
        viewed_s: float,
        turn: Turn = at_once,
        behind: Future[PutResult] | None = None,
    ) -> Future[PutResult]:
        """Start the PUT in a thread, or prepare it to be sent after `behind`.

        Its deadline counts from `viewed_s` (by `Clock.boot_s`), when the log was last read. A
        process that was suspended since must not send, because the log may have been cleaned up
        meanwhile.
        """
        clock, section = dependencies.clock, dependencies.settings
        young_s = min(clock.boot_s(), viewed_s + section.view_age_max_s)
        until_s = young_s + section.put_deadline_s
        return dependencies.puts.begin(
            self.store.root, lambda: self.land(clock, until_s, turn), behind
        )

    def land(self, clock: Clock, until_s: float, turn: Turn = at_once) -> PutResult:
        """Put the entry; return WON or LOST for certain, or WITHHELD if its turn never came.

        Nothing is sent after `until_s`.
        Units: `until_s` by `Clock.boot_s`.
        Raises: OutcomeUnknown past the deadline; Unavailable.
        """
        leaving = _PutTimer(turn, clock, clock.boot_s())
        written = self.encoded.merged.written
        if written is not None and self._put(*written, clock, until_s, at_once) is Put.LOST:
            raise Unavailable(
                f"{written[0]} of {self.store.root} holds other bytes than were written under this "
                "new name: the entry is decided again under another one"
            )
        path = in_log(commit_name(self.encoded.entry.version))
        try:
            result = self._put(path, self.encoded.content, clock, until_s, leaving)
        finally:
            took_s = leaving.is_over(self.label)
        return PutResult(result, took_s)

    def _put(self, path: str, content: bytes, clock: Clock, until_s: float, turn: Turn) -> Put:
        """Return WON or LOST for certain, or WITHHELD. Raises: as `land`."""
        reach("before_put")
        pause_s = PAUSE_S
        while (left_s := until_s - clock.boot_s()) > 0:
            result = self.store.put_if_absent(path, content, left_s, turn)
            reach("after_put")
            if result is Put.UNKNOWN:
                result = self._resolve(path, content)
            if result is not Put.UNKNOWN:
                return result
            clock.sleep(min(pause_s, left_s))
            pause_s = min(2 * pause_s, PAUSE_MAX_S)
        STORAGE_AMBIGUOUS.labels("deadline").inc()
        raise OutcomeUnknown(
            f"the PUT of {path} of {self.store.root} stayed without a clear answer until its "
            "deadline: the log is read again before anything is decided"
        )

    def _resolve(self, path: str, content: bytes) -> Put:
        """Resolve a PUT in doubt by reading its file; return UNKNOWN if there is none."""
        reach("before_resolve")
        stored = self.store.read(path)
        if stored is None:
            STORAGE_AMBIGUOUS.labels("absent").inc()
            return Put.UNKNOWN
        result = Put.WON if stored == content else Put.LOST
        STORAGE_AMBIGUOUS.labels(result.value).inc()
        return result

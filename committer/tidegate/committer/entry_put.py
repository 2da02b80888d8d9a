"""One entry's put-if-absent until its answer is certain: PUT, RESOLVE, the same bytes again.

The file of vectors that an entry names is put before it, under a name that nobody else uses.
"""

from dataclasses import dataclass
from typing import Final

from tidegate.committer.doors import reach
from tidegate.committer.puts import Landing
from tidegate.committer.rebase import Encoded
from tidegate.delta.errors import OutcomeUnknown, Unavailable
from tidegate.delta.names import commit_name, in_log
from tidegate.runtime.clock import Clock
from tidegate.runtime.log_store import LogStore, Put
from tidegate.runtime.metrics import COMMIT_WRITE, PUTS_IN_FLIGHT, STORAGE_AMBIGUOUS

PAUSE_S: Final = 0.05
"""How long a PUT without an answer rests before its bytes are sent again."""


@dataclass(frozen=True)
class EntryPut:
    """One entry to be put under its version. It knows nothing of the desk: a thread may hold it."""

    store: LogStore
    label: str
    encoded: Encoded

    def land(self, clock: Clock, until_s: float) -> Landing:
        """Return WON or LOST for certain; nothing is sent once `until_s` has passed.

        Units: `until_s` by `Clock.boot_s`.
        Raises: OutcomeUnknown past the deadline; Unavailable.
        """
        began_s = clock.boot_s()
        written = self.encoded.merged.written
        if written is not None and self._put(*written, clock, until_s) is Put.LOST:
            raise Unavailable(
                f"{written[0]} of {self.store.root} holds other bytes than were written under this "
                "new name: the entry is decided anew under another one"
            )
        with PUTS_IN_FLIGHT.track_inprogress(), COMMIT_WRITE.labels(self.label).time():
            path = in_log(commit_name(self.encoded.entry.version))
            answer = self._put(path, self.encoded.content, clock, until_s)
        return Landing(answer, clock.boot_s() - began_s)

    def _put(self, path: str, content: bytes, clock: Clock, until_s: float) -> Put:
        """Return WON or LOST for certain. Raises: as `land`."""
        reach("before_put")
        while (left_s := until_s - clock.boot_s()) > 0:
            answer = self.store.put_if_absent(path, content, left_s)
            reach("after_put")
            if answer is Put.UNKNOWN:
                answer = self._resolve(path, content)
            if answer is not Put.UNKNOWN:
                return answer
            clock.sleep(PAUSE_S)
        STORAGE_AMBIGUOUS.labels("deadline").inc()
        raise OutcomeUnknown(
            f"the PUT of {path} of {self.store.root} stayed without an answer until its deadline: "
            "the log is read anew before anything is decided"
        )

    def _resolve(self, path: str, content: bytes) -> Put:
        """RESOLVE: what a PUT in doubt came to; UNKNOWN where nothing is there."""
        reach("before_resolve")
        there = self.store.read(path)
        if there is None:
            STORAGE_AMBIGUOUS.labels("absent").inc()
            return Put.UNKNOWN
        answer = Put.WON if there == content else Put.LOST
        STORAGE_AMBIGUOUS.labels(answer.value).inc()
        return answer

"""One entry's put-if-absent until its answer is certain: PUT, RESOLVE, the same bytes again."""

from dataclasses import dataclass
from typing import Final

from tidegate.committer.doors import reach
from tidegate.committer.puts import Landing
from tidegate.delta.errors import OutcomeUnknown
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
    version: int
    content: bytes

    def land(self, clock: Clock, deadline_s: float) -> Landing:
        """Return WON or LOST for certain.

        Raises: OutcomeUnknown past the deadline; Unavailable.
        """
        path = in_log(commit_name(self.version))
        began_s = clock.boot_s()
        ends_s = began_s + deadline_s
        reach("before_put")
        with PUTS_IN_FLIGHT.track_inprogress(), COMMIT_WRITE.labels(self.label).time():
            while (left_s := ends_s - clock.boot_s()) > 0:
                answer = self.store.put_if_absent(path, self.content, left_s)
                reach("after_put")
                if answer is Put.UNKNOWN:
                    answer = self._resolve(path)
                if answer is not Put.UNKNOWN:
                    return Landing(answer, clock.boot_s() - began_s)
                clock.sleep(PAUSE_S)
        STORAGE_AMBIGUOUS.labels("deadline").inc()
        raise OutcomeUnknown(
            f"the PUT of version {self.version} of {self.store.root} stayed without an answer "
            "until its deadline: the log is read anew before anything is decided"
        )

    def _resolve(self, path: str) -> Put:
        """RESOLVE: what a PUT in doubt came to; UNKNOWN where nothing is there."""
        reach("before_resolve")
        there = self.store.read(path)
        if there is None:
            STORAGE_AMBIGUOUS.labels("absent").inc()
            return Put.UNKNOWN
        answer = Put.WON if there == self.content else Put.LOST
        STORAGE_AMBIGUOUS.labels(answer.value).inc()
        return answer

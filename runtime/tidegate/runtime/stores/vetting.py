"""Which stores may hold a table: those whose makers promise put-if-absent, and those that show it.

S3, GCS and Azure themselves, and local file systems with hard links, are taken at their word. What
only speaks like them (an endpoint of one's own, S3 Express, a mounted network file system) is
probed, once in the life of a process, before the first table on it is accepted. That may take
minutes, and as long as it likes where the store hangs: nobody waits for it longer than a moment.
"""

import math
import os
import re
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Lock
from typing import Final

from tidegate.delta.errors import Misconfigured, Unavailable
from tidegate.runtime.clock import Clock, SystemClock
from tidegate.runtime.stores import s3_bucket
from tidegate.runtime.stores.log_store import LogStore
from tidegate.runtime.stores.probe import CONTESTS, ProbeReport, probe
from tidegate.runtime.stores.ratified_store import RatifiedStore

LOCAL_FILE_SYSTEMS: Final = frozenset(
    {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "jfs", "bcachefs"}
    | {"tmpfs", "ramfs", "overlay"}
)
"""File systems of one machine whose `link` is atomic, as the kernel names them."""

_AZURE_HOSTS: Final = (".core.windows.net", ".core.usgovcloudapi.net", ".core.chinacloudapi.cn")
_ENDPOINTS: Final = {
    "s3": ("endpoint_url", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"),
    "gs": ("google_endpoint_url", "STORAGE_EMULATOR_HOST"),
    "abfss": ("azure_endpoint_url", "AZURE_STORAGE_CONNECTION_STRING"),
}
"""By scheme, the option and the environment's names that lead to another server."""

_UNSORTED: Final = "--x-s3"
"""How S3 Express's buckets are called: they list in no order, from the first name on."""

_AT_ONCE: Final = 8
_MOUNTS: Final = "/proc/self/mountinfo"
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")
"""How the kernel writes spaces, tabs, line feeds and backslashes there."""


WAIT_S: Final = 5.0
"""How long who asks first waits for a probe: few stores take longer. Others there wait with him."""

AGAIN_S: Final = 60.0
"""How long after its end what a probe found, or did not find out, is told to all who ask: longer
than a table rests before its committer asks again, or nobody would ever hear of a long one.
"""

Asking = Callable[[str, Callable[[], ProbeReport]], Future[ProbeReport]]
"""Where probes are run, of the store of a root."""

_CLOCK: Final = SystemClock()


def _at_once(root: str, asked: Callable[[], ProbeReport]) -> Future[ProbeReport]:
    report: Future[ProbeReport] = Future()
    try:
        report.set_result(asked())
    except Unavailable as error:
        report.set_exception(error)
    return report


@dataclass
class _Probing:
    """A probe, under way or done. Units: `since_s` and `ended_s` by `Clock.boot_s`."""

    report: Future[ProbeReport]
    since_s: float
    ended_s: float = math.inf

    def is_over(self, now_s: float) -> bool:
        """Whether it may be done again."""
        return now_s > self.ended_s + AGAIN_S

    def end(self, now_s: float) -> None:
        """Note when it ended."""
        self.ended_s = now_s


class Vetting:
    """What a process has found out about stores. `contests` of 0 takes every store as it comes."""

    def __init__(
        self,
        options: Mapping[str, str],
        contests: int = CONTESTS,
        asking: Asking = _at_once,
        clock: Clock = _CLOCK,
    ) -> None:
        self._options = {name.lower().removeprefix("aws_"): one for name, one in options.items()}
        self._contests = contests
        self._asking = asking
        self._clock = clock
        self._passed: set[str] = set()
        self._probing: dict[str, _Probing] = {}
        self._turn = Lock()

    def vet(self, store: LogStore) -> None:
        """Let a store pass that may hold a table; a probe that is due leaves no file there.

        Where a partition decides, the store need not be able to.
        Raises: Misconfigured (`UnsafeStore`); Unavailable, while it is probed, too.
        """
        if isinstance(store, RatifiedStore):
            return
        place = _place(store.root)
        if not self._contests or place in self._passed or self._is_known(store.root):
            return
        report = self._report(place, store)
        if not report.passed:
            raise Misconfigured(
                f"the store of {store.root} did not show that it keeps put-if-absent, so two "
                f"writers might both believe a version theirs: {'; '.join(report.failures)}; "
                f"`tidegate store probe` shows the same; put the table on another store",
                error_class="UnsafeStore",
            )
        with self._turn:
            self._passed.add(place)
            self._probing.pop(place, None)

    def _report(self, place: str, store: LogStore) -> ProbeReport:
        now_s, wait_s = self._clock.boot_s(), 0.0
        with self._turn:
            there = self._probing.get(place)
            if there is None or there.is_over(now_s):
                asked = self._asking(
                    store.root, lambda: probe(store, self._contests, at_once=_AT_ONCE)
                )
                there = probing = self._probing[place] = _Probing(asked, now_s)
                asked.add_done_callback(lambda _: probing.end(self._clock.boot_s()))
                wait_s = WAIT_S
        try:
            return there.report.result(wait_s)
        except TimeoutError:
            raise Unavailable(
                f"the store of {store.root} is being probed since {now_s - there.since_s:.0f} s: "
                "ask again in a moment"
            ) from None

    def _is_known(self, root: str) -> bool:
        scheme, _, rest = root.partition("://")
        if scheme == "file":
            return _file_system(rest, _mounts()) in LOCAL_FILE_SYSTEMS
        if scheme not in _ENDPOINTS:
            return True
        option, *variables = _ENDPOINTS[scheme]
        if option in self._options or any(os.environ.get(name) for name in variables):
            return False
        if scheme == "s3":
            return not (rest.partition("/")[0].endswith(_UNSORTED) or s3_bucket.is_led_elsewhere())
        return scheme != "abfss" or rest.partition("/")[0].endswith(_AZURE_HOSTS)


def _place(root: str) -> str:
    """What is probed once: a bucket, or the mount point of a file system."""
    scheme, _, rest = root.partition("://")
    if scheme == "file":
        return f"file://{_mount_point(rest, _mounts())}"
    return f"{scheme}://{rest.partition('/')[0]}"


def _mounts() -> dict[str, str]:
    """Return the kind of file system at each mount point; none where the kernel tells none."""
    try:
        with open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()
    except OSError:
        return {}
    mounts = {}
    for line in lines:
        before, _, after = line.partition(" - ")
        place = _ESCAPED.sub(lambda found: chr(int(found[1], 8)), before.split(" ")[4])
        mounts[place] = after.split(" ")[0]
    return mounts


def _mount_point(path: str, mounts: Mapping[str, str]) -> str:
    place = os.path.realpath(path)
    while place not in mounts and place != os.path.dirname(place):
        place = os.path.dirname(place)
    return place


def _file_system(path: str, mounts: Mapping[str, str]) -> str:
    return mounts.get(_mount_point(path, mounts), "")

"""Decide which stores may hold a table: those known to have put-if-absent, or that pass a probe.

S3, GCS and Azure themselves, and local file systems with hard links, need no probe. Compatible
stores (a custom endpoint, S3 Express, a mounted network file system) are probed once in the life of
a process, before the first table on them is accepted. A probe may take minutes, or hang with the
store, so callers wait for it for a few seconds at most.
"""

import math
import os
import re
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Lock
from typing import Final

from tidegate_delta.errors import Misconfigured, Unavailable
from tidegate_runtime.clock import Clock, SystemClock
from tidegate_runtime.storage import s3_bucket
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.storage.put_if_absent_probe import CONTESTS, ProbeReport, probe
from tidegate_runtime.storage.root_paths import decoded_root

LOCAL_FILE_SYSTEMS: Final = frozenset(
    {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "jfs", "bcachefs"}
    | {"tmpfs", "ramfs", "overlay"}
)
"""Local file systems whose `link` is atomic, by the kernel's names."""

_AZURE_HOSTS: Final = (".core.windows.net", ".core.usgovcloudapi.net", ".core.chinacloudapi.cn")
_ENDPOINTS: Final = {
    "s3": ("endpoint_url", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"),
    "gs": ("google_endpoint_url", "STORAGE_EMULATOR_HOST"),
    "abfss": ("azure_endpoint_url", "AZURE_STORAGE_CONNECTION_STRING"),
}
"""For each scheme, the option and the environment variables that name another endpoint."""

_UNSORTED: Final = "--x-s3"
"""The name suffix of S3 Express buckets, whose listings are unsorted."""

_AT_ONCE: Final = 8
_MOUNTS: Final = "/proc/self/mountinfo"
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")
"""The kernel's escapes of spaces, tabs, line feeds and backslashes in that file."""


WAIT_S: Final = 5.0
"""How long the caller that starts a probe waits for it; few take longer."""

AGAIN_S: Final = 60.0
"""How long after its end a probe's result is used before the store is probed again. This is longer
than a table rests before its committer asks again, or the result of a long probe would never be
used.
"""

ProbeCall = Callable[[str, Callable[[], ProbeReport]], Future[ProbeReport]]
"""Runs the probe of a root's store, possibly in a thread."""

_CLOCK: Final = SystemClock()


def _at_once(root: str, probe_call: Callable[[], ProbeReport]) -> Future[ProbeReport]:
    report: Future[ProbeReport] = Future()
    try:
        report.set_result(probe_call())
    except Unavailable as error:
        report.set_exception(error)
    return report


@dataclass
class _Probing:
    """A probe, running or finished. Units: `since_s` and `ended_s` by `Clock.boot_s`."""

    report: Future[ProbeReport]
    since_s: float
    ended_s: float = math.inf

    def is_over(self, now_s: float) -> bool:
        """Return whether its result is old enough to probe again."""
        return now_s > self.ended_s + AGAIN_S

    def end(self, now_s: float) -> None:
        """Record when it ended."""
        self.ended_s = now_s


class StoreQualification:
    """Accepts or refuses stores, and remembers which passed. If `contests` is 0, it accepts all."""

    def __init__(
        self,
        options: Mapping[str, str],
        contests: int = CONTESTS,
        run_probe: ProbeCall = _at_once,
        clock: Clock = _CLOCK,
    ) -> None:
        self._options = {
            name.lower().removeprefix("aws_"): value for name, value in options.items()
        }
        self._contests = contests
        self._run_probe = run_probe
        self._clock = clock
        self._passed: set[str] = set()
        self._probing: dict[str, _Probing] = {}
        self._turn = Lock()

    def vet(self, store: LogStore) -> None:
        """Accept a store that may hold a table; one of an unknown kind is probed first.

        Raises: Misconfigured (`UnsafeStore`); Unavailable, also while a probe is running.
        """
        location = _probe_scope(store.root)
        if not self._contests or location in self._passed or self._is_known(store.root):
            return
        report = self._report(location, store)
        if not report.passed:
            raise Misconfigured(
                f"the store of {store.root} failed the probe of its put-if-absent, so two writers "
                f"might both believe that a version is theirs: {'; '.join(report.failures)}; "
                f"`tidegate store probe` shows the same; put the table on another store",
                error_class="UnsafeStore",
            )
        with self._turn:
            self._passed.add(location)
            self._probing.pop(location, None)

    def _report(self, location: str, store: LogStore) -> ProbeReport:
        now_s, wait_s = self._clock.boot_s(), 0.0
        with self._turn:
            running = self._probing.get(location)
            if running is None or running.is_over(now_s):
                report = self._run_probe(
                    store.root, lambda: probe(store, self._contests, at_once=_AT_ONCE)
                )
                running = probing = self._probing[location] = _Probing(report, now_s)
                report.add_done_callback(lambda _: probing.end(self._clock.boot_s()))
                wait_s = WAIT_S
        try:
            return running.report.result(wait_s)
        except TimeoutError:
            raise Unavailable(
                f"the store of {store.root} has been under a probe for "
                f"{now_s - running.since_s:.0f} s: try again in a moment"
            ) from None

    def _is_known(self, root: str) -> bool:
        scheme, _, rest = root.partition("://")
        if scheme == "file":
            return _file_system(decoded_root(rest), _mounts()) in LOCAL_FILE_SYSTEMS
        if scheme not in _ENDPOINTS:
            return True
        option, *variables = _ENDPOINTS[scheme]
        if option in self._options or any(os.environ.get(name) for name in variables):
            return False
        if scheme == "s3":
            return not (
                rest.partition("/")[0].endswith(_UNSORTED) or s3_bucket.aws_config_names_endpoint()
            )
        return scheme != "abfss" or rest.partition("/")[0].endswith(_AZURE_HOSTS)


def _probe_scope(root: str) -> str:
    """Return what is probed once for all its tables: a bucket, or a file system's mount point."""
    scheme, _, rest = root.partition("://")
    if scheme == "file":
        return f"file://{_mount_point(decoded_root(rest), _mounts())}"
    return f"{scheme}://{rest.partition('/')[0]}"


def _mounts() -> dict[str, str]:
    """Return the type of file system at each mount point; empty if `/proc` has no mountinfo."""
    try:
        with open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()
    except OSError:
        return {}
    mounts = {}
    for line in lines:
        before, _, after = line.partition(" - ")
        mount_point = _ESCAPED.sub(lambda match: chr(int(match[1], 8)), before.split(" ")[4])
        mounts[mount_point] = after.split(" ")[0]
    return mounts


def _mount_point(path: str, mounts: Mapping[str, str]) -> str:
    folder = os.path.realpath(path)
    while folder not in mounts and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
    return folder


def _file_system(path: str, mounts: Mapping[str, str]) -> str:
    return mounts.get(_mount_point(path, mounts), "")

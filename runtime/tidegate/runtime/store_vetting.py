"""Which stores may hold a table: those whose makers promise put-if-absent, and those that show it.

S3, GCS and Azure themselves, and local file systems with hard links, are taken at their word. What
only speaks like them (an endpoint of one's own, S3 Express, a mounted network file system) is
probed, once in the life of a process, before the first table on it is accepted.
"""

import os
import re
from collections.abc import Mapping
from threading import Lock
from typing import Final

from tidegate.delta.errors import Misconfigured
from tidegate.runtime import s3_bucket
from tidegate.runtime.log_store import LogStore
from tidegate.runtime.ratified_store import RatifiedStore
from tidegate.runtime.store_probe import CONTESTS, probe

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


class Vetting:
    """What a process has found out about stores. `contests` of 0 takes every store as it comes."""

    def __init__(self, options: Mapping[str, str], contests: int = CONTESTS) -> None:
        self._options = {name.lower().removeprefix("aws_"): one for name, one in options.items()}
        self._contests = contests
        self._passed: set[str] = set()
        self._turn = Lock()

    def vet(self, store: LogStore) -> None:
        """Let a store pass that may hold a table; a probe that is due leaves no file there.

        Where a partition decides, the store need not be able to.
        Raises: Misconfigured (`UnsafeStore`); Unavailable.
        """
        if isinstance(store, RatifiedStore):
            return
        place = _place(store.root)
        with self._turn:
            if not self._contests or place in self._passed or self._is_known(store.root):
                return
            report = probe(store, self._contests, at_once=_AT_ONCE)
            if not report.passed:
                raise Misconfigured(
                    f"the store of {store.root} did not show that it keeps put-if-absent, so two "
                    f"writers might both believe a version theirs: {'; '.join(report.failures)}; "
                    f"`tidegate store probe` shows the same; put the table on another store",
                    error_class="UnsafeStore",
                )
            self._passed.add(place)

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

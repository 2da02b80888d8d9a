"""Probes whether another writer has written the next version of an idle table.

A store may be slow and there may be a thousand tables, so the loop does not wait for the result.
"""

from concurrent.futures import Future
from dataclasses import dataclass

from tidegate_committer.store_executor import StoreExecutor
from tidegate_delta.log.file_names import commit_name, in_log
from tidegate_runtime.storage.log_store import LogStore


@dataclass
class IdleProbe:
    """The probe of one table that is in progress, if any: for which version, and since when.

    Units: `asked_s` by `Clock.boot_s`.
    """

    version: int = -1
    asked_s: float = 0.0
    answer: Future[bool] | None = None

    def begin(self, store: LogStore, version: int, now_s: float, executor: StoreExecutor) -> None:
        """Start to read whether a version exists."""
        path = in_log(commit_name(version))
        self.version, self.asked_s = version, now_s
        self.answer = executor.begin(store.root, lambda: store.read(path) is not None)

    def end(self, following: int) -> bool | None:
        """Return whether version `following` exists; None without a result, or if it is about
        another version.

        Raises: Unavailable.
        """
        if self.answer is None or not self.answer.done():
            return None
        answer, self.answer = self.answer, None
        is_there = answer.result()
        return is_there if self.version == following else None

"""Open the store of a table root."""

from collections.abc import Mapping, Sequence
from typing import Final

from tidegate_delta.errors import Misconfigured
from tidegate_runtime.storage.local_store import LocalStore
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.storage.object_store import ObjectStore, SharedBuckets
from tidegate_runtime.storage.root_paths import canonical_root

__all__ = ["canonical_root", "open_store"]

_BUCKETS: Final = SharedBuckets()
_NO_OPTIONS: Final[Mapping[str, str]] = {}


def open_store(
    root: str, options: Mapping[str, str] = _NO_OPTIONS, within: Sequence[str] = ()
) -> LogStore:
    """Return the store of a table root; it connects at its first use.

    `options` are the object store's (`object_store.OPTIONS`); a local table needs none. The real
    path of a local root under one of the URI prefixes `within` must lie under one as well.
    Raises: Misconfigured, for a root without a store or an unknown option.
    """
    canonical = canonical_root(root)
    scheme = canonical.partition("://")[0]
    match scheme:
        case "file":
            return LocalStore(canonical, within=within)
        case "s3" | "gs" | "abfss":
            return ObjectStore(canonical, options, _BUCKETS)
        case _:
            raise Misconfigured(f"{canonical} lives in one process's memory and cannot be opened")

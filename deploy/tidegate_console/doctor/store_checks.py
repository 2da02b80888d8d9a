"""Checks of stores and of the releases that write there: one table of each store is opened."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from tidegate_console.doctor.check import Check
from tidegate_delta.errors import TidegateError, Unavailable
from tidegate_messages.published_records import TableRecord
from tidegate_runtime.release import ENGINE
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.storage.open_store import open_store
from tidegate_runtime.storage.put_if_absent_probe import probe
from tidegate_runtime.table_io.open_table import open_snapshot, read_commit

CONTESTS: Final = 20
_OURS: Final = "Tidegate/"
_SERVED: Final = frozenset({"open", "managed"})


def roots_to_check(tables: Iterable[TableRecord]) -> list[str]:
    """Return the root of one served table of each store, the first by name."""
    root_by_store: dict[str, str] = {}
    for table in sorted(tables, key=lambda record: record.name):
        if table.status in _SERVED:
            scheme, _, rest = table.table_root.partition("://")
            root_by_store.setdefault(f"{scheme}://{rest.partition('/')[0]}", table.table_root)
    return list(root_by_store.values())


def stores(roots: Sequence[str], options: Mapping[str, str], *, probes: bool) -> Iterator[Check]:
    """Yield whether each table can be read and, if asked for, whether its store can be written.

    A probe writes scratch files below the root, under `_tidegate/`, and removes them.
    """
    for root in roots:
        try:
            store = open_store(root, options)
            yield from _opened(store)
            if probes:
                yield _probed(store)
        except Unavailable as error:
            yield Check(
                "store", "away", f"{root}: {error}", "look at the store and its credentials"
            )
        except TidegateError as error:
            yield Check("store", "wrong", f"{root}: {error}", _paragraph(error))


def _opened(store: LogStore) -> Iterator[Check]:
    snapshot = open_snapshot(store)
    summary = f"{store.root} is read at version {snapshot.version}, {snapshot.files.num_rows} files"
    yield Check("store", "ok", summary)
    if snapshot.checksum.is_doubtful:
        yield Check(
            "checksum",
            "wrong",
            f"the checksum file of version {snapshot.version} of {store.root} {snapshot.checksum}",
            "run `tidegate table fsck`: the file may be the only trace of a lost change "
            "(docs/maintenance.md#fsck)",
        )
    commit = read_commit(store, int(snapshot.version))
    info = commit[0].info if commit else None
    engine = (info.engine_info if info else None) or ""
    if engine.startswith(_OURS) and engine != ENGINE:
        yield Check(
            "versions",
            "note",
            f"version {snapshot.version} of {store.root} was committed by {engine}, this is "
            f"{ENGINE}",
            "bring services and tools to one release; those next to each other work together",
        )


def _probed(store: LogStore) -> Check:
    report = probe(store, CONTESTS)
    if report.passed:
        return Check("store", "ok", f"{store.root}: written, and put-if-absent holds")
    return Check(
        "store",
        "wrong",
        f"{store.root}: {'; '.join(report.failures)}",
        "take another store, or read ADR 10; `tidegate store probe` tries harder",
    )


def _paragraph(error: TidegateError) -> str:
    return f"see the paragraph of {type(error).__name__} in docs/operations.md#errors"

"""`fsck`: what is wrong with a table's log and files, and its repair where one is possible.

The checks change nothing: of the log (gaps, commits, checkpoints and the hint to them), and of the
files (what the newest version names, and what is there). The files are listed after the table was
opened. A writer or a vacuum may be at work meanwhile, so a file that the listing lacks is looked
for again by its name.

The log is repaired here, missing files by a proposal.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_checkpointer.log_cleaner import contradiction
from tidegate_delta.errors import BrokenLog, InvalidRequest, UnsupportedFeature
from tidegate_delta.log.commit import Commit, sha256
from tidegate_delta.log.file_names import (
    LAST_CHECKPOINT,
    LOG_FOLDER,
    LogFile,
    LogFileKind,
    checksum_name,
    commit_name,
    in_log,
    parse,
)
from tidegate_delta.log.file_paths import canonical_paths
from tidegate_delta.log.log_segment import complete_checkpoints
from tidegate_delta.properties.table_properties import tombstone_retention_ms
from tidegate_delta.schema.column_mapping import physical_partition_columns
from tidegate_delta.snapshots.file_action_columns import rows_to_adds
from tidegate_delta.snapshots.raw_stats import row_counts
from tidegate_delta.snapshots.snapshot import Checked, Snapshot
from tidegate_messages.outcome import Outcome
from tidegate_messages.published_records import CommittedFile, TableRecord
from tidegate_runtime.client import proposal_builders
from tidegate_runtime.client.client import Client, result
from tidegate_runtime.release import ENGINE
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.checkpoint_reader import newest_whole_checkpoint, whole_checkpoint
from tidegate_runtime.table_io.checkpoint_writer import hinted_version, move_hint_forward
from tidegate_runtime.table_io.data_file_checks import (
    RESTORE,
    Finding,
    content_findings,
    missing_file,
    wrong_size,
)
from tidegate_runtime.table_io.open_table import lacks_older_files, open_without_checkpoint
from tidegate_runtime.table_io.table_files import (
    Listing,
    list_own_files,
    named_by_tables_below,
    open_table_file,
    referenced,
    vector_files,
)

FOOTERS: Final = 1_000
"""How many data files' footers and deletion vectors are read unless told otherwise."""


@dataclass(frozen=True)
class CheckRequest:
    """How much is read. `footers` is how many data files are opened; `checks_all` compares every
    checkpoint with the log, not only the newest. `committed` is a version as the registry knows it.
    """

    now_ms: int
    footers: int = FOOTERS
    checks_all: bool = False
    committed: CommittedFile | None = None


Progress = Callable[[str], None]


def check_log(store: LogStore, request: CheckRequest, progress: Progress) -> Iterator[Finding]:
    """Yield what is wrong with the files of a table's log. Raises: Unavailable."""
    progress("the log")
    listed = [
        file
        for stat in store.list_from(LOG_FOLDER, "")
        if (file := parse(stat.path.rpartition("/")[2])) is not None
    ]
    commits = sorted(file.version for file in listed if file.kind is LogFileKind.COMMIT)
    yield from _gaps(commits, listed)
    yield from _commits(store, commits, request, progress)
    yield from _checkpoints(store, listed, request, progress)


def _gaps(commits: Sequence[int], listed: list[LogFile]) -> Iterator[Finding]:
    bridged = max(complete_checkpoints(listed), default=-1)
    for before, after in pairwise(commits):
        if after == before + 1:
            continue
        first, last = before + 1, after - 1
        reach = (
            "the table can't be read" if bridged < last else "they can't be read, later ones can"
        )
        yield Finding(
            "gap",
            commit_name(first),
            f"versions {first} to {last} are missing between others: {reach}",
            "restore the files from a backup or from the store's versioning",
        )


def _commits(
    store: LogStore, commits: Sequence[int], request: CheckRequest, progress: Progress
) -> Iterator[Finding]:
    progress(f"{len(commits)} commits")
    committed = request.committed
    for version in commits:
        content = store.read(in_log(commit_name(version)))
        if content is None:
            continue  # cleaned up since the listing
        if committed and committed.version == version and sha256(content) != committed.sha256:
            yield Finding(
                "overwritten_commit",
                commit_name(version),
                "its bytes are not those that the committer wrote: another writer replaced it",
                "restore the file from the store's versioning; find the writer that overwrites "
                "commits, and keep it from the table",
            )
        try:
            if not content.strip():
                raise BrokenLog("it is empty", error_class="CorruptCommit")
            Commit.decode(version, content)
        except (BrokenLog, UnsupportedFeature) as error:
            yield Finding(
                "unreadable_commit",
                commit_name(version),
                str(error),
                "restore the file from a backup, or the table to a version before it",
            )


def _checkpoints(
    store: LogStore, listed: list[LogFile], request: CheckRequest, progress: Progress
) -> Iterator[Finding]:
    versions = sorted({file.version for file in listed if file.is_checkpoint})
    progress(f"{len(versions)} checkpoints")
    whole = [version for version in versions if whole_checkpoint(store, version) is not None]
    for version in sorted(set(versions).difference(whole)):
        yield Finding(
            "torn_checkpoint",
            f"{version:020d}.checkpoint",
            "a file, part or sidecar of it is missing or torn: we pass it over, engines may fail",
            "delete it where the commits up to it are there; the checkpointer writes others",
            "delete_checkpoint",
        )
    for version in whole if request.checks_all else whole[-1:]:
        if lacks_older_files(store, version):
            continue  # as after each cleanup: there is nothing to compare it with
        if problem := contradiction(store, version, request.now_ms):
            yield Finding(
                "lying_checkpoint",
                f"{version:020d}.checkpoint",
                problem,
                "if the commits before it are there, delete it, and see who wrote it; otherwise "
                "compare the table with a backup",
                "delete_checkpoint",
            )
    newest = whole[-1] if whole else -1
    if store.read(in_log(LAST_CHECKPOINT)) is not None and hinted_version(store) < max(newest, 0):
        right = f"the newest whole one is {newest}" if whole else "there is no whole one"
        yield Finding(
            "stale_hint",
            LAST_CHECKPOINT,
            f"it does not point to the newest checkpoint: {right}. Readers read more than they "
            "need, and engines may fail if what it points to is gone",
            "point it to that checkpoint" if whole else "delete it",
            "move_hint",
        )


_CHANGES = "_change_data/"


def check_files(
    store: LogStore, snapshot: Snapshot, request: CheckRequest, progress: Progress
) -> Iterator[Finding]:
    """Yield what is wrong with the checksum, data files and deletion vectors of a snapshot.

    Raises: Unavailable; BrokenLog (`CorruptDeletionVector`) for a malformed descriptor.
    """
    if snapshot.checksum.is_doubtful:
        is_unreadable = snapshot.checksum.checked is Checked.UNREADABLE
        yield Finding(
            "lying_checksum",
            checksum_name(snapshot.version),
            f"it does not fit the log: {snapshot.checksum}",
            "delete it"
            if is_unreadable
            else "compare the table with a backup: the checksum may be the only trace of a lost "
            "change. If the log is right, delete the checksum file",
            "delete_checksum" if is_unreadable else None,
        )
    progress(f"{snapshot.files.num_rows} live files")
    listing = listed_files(store, snapshot)
    listed = listing.files
    yield from _live_files(store, snapshot, listed)
    yield from _orphans(store, snapshot, listing, request)
    opened = min(request.footers, snapshot.files.num_rows)
    if opened:
        progress(f"the contents of {opened} files")
        yield from _contents(store, snapshot, request.footers)


def listed_files(store: LogStore, snapshot: Snapshot) -> Listing:
    """Return the files below a table's root, without hidden ones and those of tables below it.

    Raises: Unavailable.
    """
    metadata = snapshot.metadata
    return list_own_files(
        store, {*metadata.partition_columns, *physical_partition_columns(metadata)}
    )


def orphans(store: LogStore, snapshot: Snapshot, listing: Listing, before_ms: int) -> pa.Table:
    """Return the listed files from before a time that no version or table below the root names.

    Change data is left out, as only commits name it. Raises: BrokenLog (`TableBelowUnreadable`).
    """
    listed = listing.files
    keys_named = [referenced(store.root, files) for files in (snapshot.files, snapshot.tombstones)]
    keys_named += named_by_tables_below(store, listing.tables_below).values()
    known_keys = pa.chunked_array(
        [chunk for keys in keys_named for chunk in keys.chunks], pa.string()
    )
    is_kept = pc.or_(pc.is_in(listed["path"], known_keys), pc.starts_with(listed["path"], _CHANGES))
    is_old = pc.less(listed["modified_ms"], before_ms)
    return listed.filter(pc.and_(pc.invert(is_kept), is_old))


def _live_files(store: LogStore, snapshot: Snapshot, listed: pa.Table) -> Iterator[Finding]:
    paths, sizes = snapshot.files["path"], snapshot.files["size"]
    places = pc.index_in(canonical_paths(paths), listed["path"])
    for path in paths.filter(pc.is_null(places)).to_pylist():
        if not _exists(store, path):
            yield missing_file(path)
    sizes_found = listed["size_bytes"].take(places.combine_chunks())
    is_wrong = pc.fill_null(pc.not_equal(sizes_found, sizes), False)
    wrong = pa.table({"path": paths, "stated": sizes, "found": sizes_found}).filter(is_wrong)
    for row in wrong.to_pylist():
        yield wrong_size(row["path"], row["found"], row["stated"])
    stored = vector_files(store.root, snapshot.files["deletionVector"])
    for key in stored.filter(pc.invert(pc.is_in(stored, listed["path"]))).to_pylist():
        if not _exists(store, key, is_key=True):
            yield Finding(
                "broken_vector",
                key,
                "it holds deletion vectors of live files, and it is not there: readers fail",
                f"{RESTORE}. Nothing else tells which rows were deleted",
            )


def _orphans(
    store: LogStore, snapshot: Snapshot, listing: Listing, request: CheckRequest
) -> Iterator[Finding]:
    before_ms = request.now_ms - tombstone_retention_ms(snapshot.metadata)
    try:
        orphan_files = orphans(store, snapshot, listing, before_ms)
    except BrokenLog as error:
        if error.error_class != "TableBelowUnreadable":
            raise
        yield Finding("orphans", "not counted", str(error), "repair that table, or move it away")
        return
    if orphan_files.num_rows:
        size_bytes = pc.sum(orphan_files["size_bytes"]).as_py()
        yield Finding(
            "orphans",
            f"{orphan_files.num_rows} files",
            f"{size_bytes} bytes that no version names, older than the retention, "
            f"{orphan_files['path'][0].as_py()} for one; readers do not see them",
            "delete them with `tidegate table vacuum`",
        )


def _contents(store: LogStore, snapshot: Snapshot, limit: int) -> Iterator[Finding]:
    newest = pc.array_sort_indices(snapshot.files["modificationTime"], order="descending")
    chosen = snapshot.files.take(newest.slice(0, limit))
    rows = row_counts(chosen).to_pylist()
    for file, stated_rows in zip(
        chosen.select(["path", "deletionVector"]).to_pylist(), rows, strict=True
    ):
        yield from content_findings(store, file, stated_rows)


def _exists(store: LogStore, path: str, *, is_key: bool = False) -> bool:
    try:
        (store.open(path) if is_key else open_table_file(store, path)).close()
    except FileNotFoundError:
        return False
    except UnsupportedFeature:
        return True
    return True


def repair_log(store: LogStore, findings: Sequence[Finding]) -> list[str]:
    """Delete wrong checkpoints and checksums and move the hint; return what was done.

    A checkpoint is deleted only if its version can be built without it.
    Raises: Unavailable.
    """
    repairs: list[str] = []
    moves_hint = any(finding.repair in ("delete_checkpoint", "move_hint") for finding in findings)
    if moves_hint:
        # Other engines fail on a hint whose checkpoint is gone; without a hint they list the log.
        store.delete(in_log(LAST_CHECKPOINT))
    for finding in findings:
        match finding.repair:
            case "delete_checkpoint":
                repairs += _delete_checkpoint(store, int(finding.about[:20]))
            case "delete_checksum":
                store.delete(in_log(finding.about))
                repairs.append(f"{finding.about} is deleted")
    newest = newest_whole_checkpoint(store, -1) if moves_hint else None
    if newest is not None and move_hint_forward(store, newest):
        repairs.append(f"_last_checkpoint points to {newest.version}")
    elif moves_hint:
        repairs.append("_last_checkpoint is deleted, as there is no whole checkpoint")
    return repairs


def remove_missing(
    client: Client,
    store: LogStore,
    record: TableRecord,
    snapshot: Snapshot,
    findings: Sequence[Finding],
    timeout_s: float,
) -> Outcome:
    """Propose to remove the live files that are not there.

    Raises: Rejected, if another commit removed one of them meanwhile; OutcomeUnknown; Unavailable.
    """
    missing_paths = [finding.about for finding in findings if finding.repair == "remove_file"]
    chosen = pc.is_in(snapshot.files["path"], pa.array(missing_paths, pa.string()))
    adds = rows_to_adds(snapshot.files.filter(chosen))
    now_ms = client.clock.now_ms()
    target = proposal_builders.Target(
        record.table, record.table_root, int(snapshot.version), snapshot.metadata.id
    )
    stamp = proposal_builders.Stamp(client.new_id(), now_ms, engine_info=ENGINE)
    proposal = proposal_builders.forget_files(target, stamp, adds)
    sent, content = proposal_builders.with_claim_check(proposal)
    if content is not None:
        store.put(sent.claim.path, content)
    return result(client.insist(sent, timeout_s))


def _delete_checkpoint(store: LogStore, version: int) -> list[str]:
    try:
        open_without_checkpoint(store, version)
    except (BrokenLog, InvalidRequest):
        return [f"the checkpoint of {version} stays: without it the version can't be read"]
    names = [
        stat.path.rpartition("/")[2] for stat in store.list_from(LOG_FOLDER, f"{version:020d}.c")
    ]
    deleted = []
    for name in names:
        file = parse(name)
        if file is None or file.version != version or not file.is_checkpoint:
            continue
        store.delete(in_log(name))
        deleted.append(f"{name} is deleted")
    return deleted

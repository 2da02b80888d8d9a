"""Repairs what `fsck` found, where that is possible: the log here, missing files by a proposal."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_checkpointer.finding import Finding
from tidegate_delta.errors import BrokenLog, InvalidRequest
from tidegate_delta.log.file_names import LAST_CHECKPOINT, LOG_FOLDER, in_log, parse
from tidegate_delta.snapshots.file_action_columns import rows_to_adds
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_messages.outcome import Outcome
from tidegate_messages.published_records import TableRecord
from tidegate_runtime.client import proposal_drafts
from tidegate_runtime.client.client import Client, result
from tidegate_runtime.release import ENGINE
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.checkpoint_presence import newest_whole_checkpoint
from tidegate_runtime.table_io.checkpoint_writer import move_hint_forward
from tidegate_runtime.table_io.open_table import open_without_checkpoint


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
    target = proposal_drafts.Target(
        record.table, record.table_root, int(snapshot.version), snapshot.metadata.id
    )
    stamp = proposal_drafts.Stamp(client.new_id(), now_ms, engine_info=ENGINE)
    proposal = proposal_drafts.forget_files(target, stamp, adds)
    sent, content = proposal_drafts.with_claim_check(proposal)
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

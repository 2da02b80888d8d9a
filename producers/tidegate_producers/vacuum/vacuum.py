"""VACUUM: plans, records its start, deletes, and records its end.

Files go that are older than the retention and, where it is older, than the oldest proposal that
may still be committed. Files of versions that the change publisher or a lease needs stay whatever
their age. The plan is made again after VACUUM START is in the log: it sees all commits before it.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_delta.errors import BrokenLog, InvalidRequest
from tidegate_delta.features.supported_features import check_writable
from tidegate_delta.log.actions import Metadata
from tidegate_delta.properties.table_properties import tombstone_retention_ms
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_messages.outcome import Outcome
from tidegate_messages.proposal import Operation
from tidegate_messages.published_records import Gate, TableRecord
from tidegate_messages.topics import Topics
from tidegate_producers.cached_clients import store_for
from tidegate_producers.history.outcome_log import ProposalOutcomes, open_proposals
from tidegate_producers.options import TableLocation
from tidegate_producers.vacuum.file_search import (
    DONE_THROUGH,
    END,
    files_named_since,
    listed,
    proposed,
    removed_in_log,
)
from tidegate_producers.vacuum.vacuum_plan import FileUses, Needed, VacuumPlan, verdicts
from tidegate_producers.writing.table_write import WriteRequest, stamp_for
from tidegate_runtime.client import proposal_builders
from tidegate_runtime.client.client import Client, result
from tidegate_runtime.clock import instant
from tidegate_runtime.followers.version_gates import GateReader
from tidegate_runtime.kafka.client_protocols import Bus
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.open_table import open_keys, open_snapshot
from tidegate_runtime.table_io.table_files import named_by_tables_below, referenced, without_tables

START: Final = "VACUUM START"
HOUR_MS: Final = 60 * 60 * 1000
_THREADS: Final = 8


@dataclass(frozen=True)
class VacuumRequest:
    """What of a table is to go. `retention_hours` is the table's own retention if None.

    `is_lite` takes the files from the removes in the log and lists nothing. `checks_retention`
    refuses a retention below the table's.
    """

    retention_hours: float | None = None
    is_lite: bool = False
    checks_retention: bool = True


@dataclass(frozen=True)
class Claims:
    """Who needs files of a table: versions, and proposals that may still be committed."""

    gates: tuple[Gate, ...] = ()
    proposals: tuple[ProposalOutcomes, ...] = ()


@dataclass(frozen=True)
class Vacuumed:
    """What was deleted, and the versions that record it; None where nothing was to go."""

    plan: VacuumPlan
    files: int = 0
    start: int | None = None
    end: int | None = None


def claims_on(bus: Bus, topics: Topics, record: TableRecord, now_ms: int) -> Claims:
    """Return who needs files of a registered table. Raises: Unavailable; Misconfigured."""
    gates = GateReader(bus, topics).of(record, now_ms)
    return Claims(gates, tuple(open_proposals(bus, topics, record, now_ms)))


def survey(store: LogStore, request: VacuumRequest, claims: Claims, now_ms: int) -> VacuumPlan:
    """Return which files would go and which would stay, and why; nothing is deleted.

    Raises: InvalidRequest (`VacuumRetentionTooShort`, `NotADeltaTable`); UnsupportedFeature, for a
    table that this release may not write; BrokenLog; Unavailable.
    """
    # First the listing: what is written and committed after it is in neither.
    keys = open_keys(store)
    check_writable(keys.protocol, keys.metadata, store.root)
    retention_ms = _retention_ms(keys.metadata, request)
    notes: list[str] = []
    if request.is_lite:
        snapshot = open_snapshot(store)
        found_files, oldest = removed_in_log(store, snapshot.version)
        # Only a listing shows which tables lie below.
        tables_below = listed(store, keys.metadata)[1] if found_files.num_rows else ()
        found_files = without_tables(found_files, tables_below)
        notes.append(_lite(oldest))
    else:
        found_files, tables_below = listed(store, keys.metadata)
        snapshot = open_snapshot(store)
    below = [
        Needed(f"the table at {root}", paths)
        for root, paths in named_by_tables_below(store, tables_below).items()
    ]
    cutoff_ms, young_why = _cutoff(now_ms - retention_ms, claims.proposals)
    uses = _uses(store, snapshot, cutoff_ms, young_why)
    needed = [*below, *_proposed(store, claims.proposals)]
    needed += _needed(store, snapshot.version, claims.gates)
    uses = replace(uses, needed=tuple(needed))
    judged = verdicts(found_files, uses)
    notes += [f"{need.holder} needs files" for need in uses.needed if len(need.paths)]
    parameters: dict[str, Any] = {
        "retentionCheckEnabled": request.checks_retention,
        "defaultRetentionMillis": tombstone_retention_ms(keys.metadata),
    }
    if request.retention_hours is not None:
        parameters["specifiedRetentionMillis"] = retention_ms
    return VacuumPlan(
        int(snapshot.version), cutoff_ms, retention_ms, judged, tuple(notes), parameters
    )


def vacuum(
    client: Client,
    place: TableLocation,
    request: VacuumRequest,
    claims: Callable[[TableRecord], Claims],
    write: WriteRequest,
) -> Vacuumed:
    """Delete the files that no version needs, between two commits that record it.

    If nothing is to go, nothing is proposed. A vacuum that is interrupted may be run again.
    Raises: as `survey`; InvalidRequest (`TableNotRegistered`); Rejected; OutcomeUnknown.
    """
    store = store_for(place)
    record = client.require(place.root, write.timeout_s)
    first_plan = survey(store, request, claims(record), client.clock.now_ms())
    if not first_plan.going.num_rows:
        return Vacuumed(first_plan)
    metrics = {
        "numFilesToDelete": first_plan.going.num_rows,
        "sizeOfDataToDelete": first_plan.size_bytes,
    }
    started = Operation(name=START, parameters=first_plan.parameters, metrics=metrics)
    start = _record(client, store, record, started, write).version
    plan = survey(store, request, claims(record), client.clock.now_ms())
    status, files = "FAILED", 0
    try:
        for _ in _delete(store, plan.going):
            files += 1
        status = "COMPLETED"
    finally:
        parameters: dict[str, Any] = {"status": status}
        if request.is_lite:
            parameters[DONE_THROUGH] = plan.done_through
        counts = {"numDeletedFiles": files, "numVacuumedDirectories": 0}
        ended = Operation(name=END, parameters=parameters, metrics=counts)
        end = _record(client, store, record, ended, write).version
    return Vacuumed(plan, files, start, end)


def _delete(store: LogStore, files: pa.Table) -> Iterator[None]:
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="vacuum") as pool:
        for batch in files.to_batches():
            yield from pool.map(store.delete, batch["path"].to_pylist())


def _record(
    client: Client,
    store: LogStore,
    record: TableRecord,
    operation: Operation,
    request: WriteRequest,
) -> Outcome:
    keys = open_keys(store)
    target = proposal_builders.Target(
        record.table, record.table_root, int(keys.version), keys.metadata.id
    )
    proposal = proposal_builders.note(target, stamp_for(client, request), operation)
    return result(client.insist(proposal, request.timeout_s))


def _retention_ms(metadata: Metadata, request: VacuumRequest) -> int:
    own_ms = tombstone_retention_ms(metadata)
    if request.retention_hours is None:
        return own_ms
    asked_ms = round(request.retention_hours * HOUR_MS)
    if asked_ms < 0:
        raise InvalidRequest(
            f"a retention of {request.retention_hours} hours: give 0 or more",
            error_class="VacuumRetentionTooShort",
        )
    if asked_ms < own_ms and request.checks_retention:
        raise InvalidRequest(
            f"a retention of {request.retention_hours:g} hours is below the table's "
            f"delta.deletedFileRetentionDuration, {own_ms / HOUR_MS:g} hours: readers of older "
            "versions and writers that have not proposed yet would lose files. Give more hours, or "
            "if none is running turn the check off: retention_check=False, --no-retention-check",
            error_class="VacuumRetentionTooShort",
        )
    return asked_ms


def _cutoff(by_retention_ms: int, proposals: Sequence[ProposalOutcomes]) -> tuple[int, str]:
    """Return from when on files stay whoever names them, and why."""
    oldest = min(
        ((_since(proposal), str(proposal.proposal_id)) for proposal in proposals), default=None
    )
    if oldest is not None and oldest[0] < by_retention_ms:
        since = instant(oldest[0])
        return oldest[0], (
            f"from after {since}, when the work of proposal {oldest[1]} began, which may still be "
            "committed"
        )
    since = instant(by_retention_ms)
    return by_retention_ms, f"from after {since}: a writer may still propose it"


def _since(proposal: ProposalOutcomes) -> int:
    assert proposal.proposal is not None, "an open proposal can be read"
    times = (proposal.proposal.files_since_ms, proposal.proposal.created_ms, proposal.at_ms)
    return next(at_ms for at_ms in times if at_ms is not None)


def _uses(store: LogStore, snapshot: Snapshot, cutoff_ms: int, young_why: str) -> FileUses:
    removed_ms = pc.fill_null(snapshot.tombstones["deletionTimestamp"], 0)
    is_recent = pc.greater_equal(removed_ms, cutoff_ms)
    recent, old = (snapshot.tombstones.filter(mask) for mask in (is_recent, pc.invert(is_recent)))
    return FileUses(
        int(snapshot.version),
        cutoff_ms,
        young_why,
        live=referenced(store.root, snapshot.files),
        recent=referenced(store.root, recent),
        removed=referenced(store.root, old),
    )


def _proposed(store: LogStore, proposals: Sequence[ProposalOutcomes]) -> Iterator[Needed]:
    """Yield the files that open proposals bring: one that restores a version may bring old ones."""
    for proposal in proposals:
        assert proposal.proposal is not None, "an open proposal can be read"
        yield Needed(f"proposal {proposal.proposal_id}", proposed(store, proposal.proposal))


def _needed(store: LogStore, version: int, gates: Sequence[Gate]) -> Iterator[Needed]:
    """Yield the files that holders need: those of the version before their first, and later ones.

    The changes of a version are read from the files of the version before it, too.
    """
    readers = [gate for gate in gates if gate.reads_rows and gate.needed_from <= version]
    if not readers:
        return
    first = min(gate.needed_from for gate in readers)
    files = _files_before(store, first, readers[0].holder)
    paths = [referenced(store.root, files), files_named_since(store, first, version)]
    names = ", ".join(
        sorted({f"{gate.holder} from version {gate.needed_from} on" for gate in readers})
    )
    yield Needed(
        names,
        pa.chunked_array([c for path_column in paths for c in path_column.chunks], pa.string()),
    )


def _files_before(store: LogStore, first: int, holder: str) -> pa.Table:
    """Return the files of the version before one, or of that version if the log begins with it.

    Raises: BrokenLog (`LogGap`), if the log has neither any more.
    """
    for version in (max(first - 1, 0), first):
        try:
            return open_keys(store, version).files
        except (InvalidRequest, BrokenLog) as error:
            cause = error
    raise BrokenLog(
        f"version {first} of table {store.root} can't be read any more, and {holder} needs its "
        "files: give back that lease, or correct that position",
        error_class="LogGap",
    ) from cause


def _lite(oldest: int) -> str:
    return (
        f"lite: only files that the versions from {oldest} on removed; files that no version "
        "names, and those that older versions removed, are found by a full vacuum"
    )

"""Register, halt, reopen, retry or drop a table: requests that write nothing to its log."""

from collections.abc import Collection
from typing import Final, Literal

from tidegate_delta.errors import InvalidRequest
from tidegate_delta.features.supported_features import check_writable
from tidegate_messages.outcome import Outcome
from tidegate_messages.proposal import Operation, Proposal
from tidegate_messages.published_records import TableRecord
from tidegate_messages.topics import Topics
from tidegate_producers.cached_clients import store_for
from tidegate_producers.options import TableLocation
from tidegate_producers.writing.table_write import WriteRequest, stamp_for
from tidegate_runtime.client import proposal_builders
from tidegate_runtime.client.client import Client, result
from tidegate_runtime.followers.quarantine import publish_follower_state, read_follower_state
from tidegate_runtime.kafka.client_protocols import Bus
from tidegate_runtime.table_io.open_table import open_snapshot

REASON_CHARS_MAX: Final = 1_000

RegistrationRequest = Literal["register", "halt", "reopen", "drop"]


def register(client: Client, place: TableLocation, name: str | None, timeout_s: float) -> Outcome:
    """Register an existing table, and return the outcome; registering it again is no error.

    At the root of a dropped table the committer registers another one, and not the dropped one.
    Raises: InvalidRequest (`NotADeltaTable`; `TableHasName`, if it is registered under another
    name); UnsupportedFeature, for a table that can't be written; Rejected; OutcomeUnknown;
    Unavailable.
    """
    snapshot = open_snapshot(store_for(place))
    check_writable(snapshot.protocol, snapshot.metadata, place.root)
    record = client.table(place.root, timeout_s)
    if record is not None and record.status == "dropped":
        record = None
    if record is not None and name not in (None, record.name):
        raise InvalidRequest(
            f"{place.root} is registered as {record.name!r}, and a table keeps its name; register "
            "it without one",
            error_class="TableHasName",
        )
    table = record.table if record is not None else client.new_id()
    version = int(snapshot.version)
    target = proposal_builders.Target(table, place.root, version, snapshot.metadata.id, name)
    stamp = stamp_for(client, WriteRequest(timeout_s))
    return result(client.propose(request("register", target, stamp), timeout_s))


def drop(client: Client, root_or_name: str, timeout_s: float) -> Outcome:
    """Drop a table from the registry, and return the outcome; dropping it again is no error.

    Raises: InvalidRequest (`TableNotRegistered`); Rejected; OutcomeUnknown; Unavailable.
    """
    return _outcome_of_request(client, root_or_name, "drop", timeout_s)


def halt(client: Client, root_or_name: str, reason: str, timeout_s: float) -> Outcome:
    """Halt a registered table, and return the outcome; halting it again is no error.

    After the outcome the committer commits nothing to the table until it is reopened.
    Raises: InvalidRequest (`TableNotRegistered`, `BadReason`); Rejected; OutcomeUnknown;
    Unavailable.
    """
    if not 0 < len(reason) <= REASON_CHARS_MAX:
        raise InvalidRequest(
            f"the reason has {len(reason)} characters; every writer that is refused is shown it: "
            f"give 1 to {REASON_CHARS_MAX}",
            error_class="BadReason",
        )
    return _outcome_of_request(client, root_or_name, "halt", timeout_s, reason)


def reopen(client: Client, root_or_name: str, timeout_s: float) -> Outcome:
    """Reopen a halted table, and return the outcome; reopening it again is no error.

    Raises: InvalidRequest (`TableNotRegistered`); Rejected (`table_halted`), if the committer can't
    read its log or must not write to it; OutcomeUnknown; Unavailable.
    """
    return _outcome_of_request(client, root_or_name, "reopen", timeout_s)


def serve_anew(client: Client, place: TableLocation, timeout_s: float) -> Outcome:
    """Serve the table that was made anew in a registered table's folder; return the outcome.

    The committer refuses proposals for the table that was there before (`other_table`).
    Raises: InvalidRequest (`TableNotRegistered`, `NotADeltaTable`; `SameTable`, if the folder holds
    the registered table); UnsupportedFeature; Rejected; OutcomeUnknown; Unavailable.
    """
    record = client.require(place.root, timeout_s)
    snapshot = open_snapshot(store_for(place))
    check_writable(snapshot.protocol, snapshot.metadata, place.root)
    if snapshot.metadata.id == record.table_id:
        raise InvalidRequest(
            f"{place.root} holds the table that is registered, with the id {record.table_id}: it "
            "was not made anew; reopen it without --made-anew",
            error_class="SameTable",
        )
    target = proposal_builders.Target(
        record.table, record.table_root, int(snapshot.version), snapshot.metadata.id
    )
    proposal = request("reopen", target, stamp_for(client, WriteRequest(timeout_s)))
    return result(client.propose(proposal, timeout_s))


def retry_followers(
    bus: Bus, topics: Topics, record: TableRecord, services: Collection[str]
) -> list[str]:
    """Ask followers that have set a table aside to try it at their next pass; return their names.

    Raises: Unavailable; Misconfigured, if the topic of their state is missing.
    """
    records = read_follower_state(bus, topics)
    service_by_key = {
        key: follower.service
        for key, follower in records.items()
        if follower.table == record.table and follower.service in services
    }
    if service_by_key:
        publish_follower_state(bus, topics, dict.fromkeys(service_by_key))
    return sorted(service_by_key.values())


def request(
    kind: RegistrationRequest,
    target: proposal_builders.Target,
    stamp: proposal_builders.Stamp,
    reason: str | None = None,
) -> Proposal:
    """Return the proposal that carries an operator's request; it holds no actions."""
    body = proposal_builders.Body(Operation(name=kind.upper()), reason=reason)
    return proposal_builders.of_body(kind, target, stamp, body)


def _outcome_of_request(
    client: Client,
    root_or_name: str,
    kind: RegistrationRequest,
    timeout_s: float,
    reason: str | None = None,
) -> Outcome:
    record = client.require(root_or_name, timeout_s)
    version = max(record.published_through, 0)
    target = proposal_builders.Target(record.table, record.table_root, version, record.table_id)
    proposal = request(kind, target, stamp_for(client, WriteRequest(timeout_s)), reason)
    return result(client.propose(proposal, timeout_s))

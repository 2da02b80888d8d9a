"""Does a verb once for each batch of an application, whatever dies or is repeated.

The batch id is the version of the application's transaction in the table (Delta's `txn`): the
proposal brings it, and the committer refuses a second one. A verb that changes nothing brings it
in a commit of its own, so that its repeat does nothing either, whatever came into the table since.
The query whose batches an application has is noted beside the first one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from tidegate_delta.errors import InvalidRequest
from tidegate_delta.snapshots.snapshot import LiveKeys
from tidegate_messages.outcome import Outcome
from tidegate_messages.proposal import NO_APP_VERSION, AppTxn, AppTxnAdvance, Operation
from tidegate_producers.cached_clients import store_for
from tidegate_producers.options import WriteOptions
from tidegate_producers.writing.table_write import WriteRequest, propose, stamp_for
from tidegate_runtime.client import proposal_builders
from tidegate_runtime.client.client import APP_TXN_SEEN, Client, Rejected
from tidegate_runtime.table_io.open_table import open_keys

_QUERY: Final = "@query"
"""Behind an application's name: the application whose version stands for its streaming query."""

_NUMBER_BITS: Final = 65
"""Bits of a query's id that are left out of its number, which is a long that is not negative."""

Verb = Callable[[WriteRequest], Outcome | None]
"""Changes a table with a request, and returns the outcome, or None if nothing was to be changed."""

Positions = Mapping[str, tuple[int, int]]
"""For each application, such as a topic partition of a source: the version that the table has of it
now (-1 for none), and the one that it has with the write.
"""

NO_POSITIONS: Final[Positions] = {}
OF_POSITIONS: Final = frozenset({APP_TXN_SEEN, "app_txn_conflict"})
"""The rules that reject a write whose `positions` are not those of the table."""


@dataclass
class VerbsOfBatch:
    """Gives each verb of a stream's batch an application of its own: `name`, `name#2`, `name#3`."""

    app_id: str
    batch_id: int
    begun: int = 0

    def next_app_id(self) -> str:
        """Return the application of the next verb."""
        self.begun += 1
        return self.app_id if self.begun == 1 else f"{self.app_id}#{self.begun}"


def app_txn_of_batch(options: WriteOptions, batch_id: int | None) -> AppTxn:
    """Return the application transaction of a batch.

    Raises: InvalidRequest, if the batch or the application is not named.
    """
    if options.txn_app_id is None:
        raise InvalidRequest(
            f"batch_id={batch_id} is the batch of an application: name it in the table's option "
            "txnAppId, another one for each verb of a batch; nothing was proposed",
            error_class="DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS",
        )
    if batch_id is None or batch_id < 0:
        raise InvalidRequest(
            f"the table's option txnAppId={options.txn_app_id} asks for each verb to be done once: "
            "give it batch_id, a whole number from 0, or leave txnAppId out; nothing was proposed",
            error_class="DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS",
        )
    return AppTxn(app_id=options.txn_app_id, version=batch_id)


@dataclass(frozen=True)
class Batch:
    """A batch of an application, and the streaming query that it comes from, if that is known."""

    txn: AppTxn
    query_id: str | None = None

    def request(self, options: WriteOptions, live_keys: LiveKeys) -> WriteRequest | None:
        """Return the request that does a verb of the batch, or None if the table has it.

        A stream repeats only its last batch. An older one, and one of another query, comes from
        another stream or another checkpoint: its rows may be new.
        Raises: InvalidRequest, for such a batch.
        """
        last_txn = live_keys.app_transactions.get(self.txn.app_id)
        if last_txn is not None and last_txn.version > self.txn.version:
            raise self._foreign(
                options, f"is older than batch {last_txn.version}, which the table has"
            )
        notes: tuple[AppTxnAdvance, ...] = ()
        if self.query_id is not None:
            name, number = f"{self.txn.app_id}{_QUERY}", UUID(self.query_id).int >> _NUMBER_BITS
            noted = live_keys.app_transactions.get(name)
            if noted is not None and noted.version != number:
                raise self._foreign(
                    options, f"comes from query {self.query_id}, and earlier ones from another"
                )
            if noted is None:
                notes = (AppTxnAdvance(app_id=name, version=number, expected=NO_APP_VERSION),)
        if last_txn is not None and last_txn.version == self.txn.version:
            return None
        return replace(WriteRequest.of(options, self.txn), app_txns=notes)

    def _foreign(self, options: WriteOptions, reason: str) -> InvalidRequest:
        return InvalidRequest(
            f"{options.place.root}: batch {self.txn.version} of application {self.txn.app_id!r} "
            f"{reason}: another stream has this txnAppId, or its checkpoint is a new one, so that "
            "the batch may be in no version: give each stream, and each new checkpoint, a "
            "txnAppId of its own; nothing was proposed",
            error_class="DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS",
        )


def once(
    client: Client,
    options: WriteOptions,
    batch_id: int | None,
    operation: str,
    verb: Verb,
    query: Callable[[], str | None] = lambda: None,
) -> Outcome | None:
    """Do a verb, once if a batch is given; return its outcome, or None if nothing was to be done.

    `query` returns the id of the streaming query that runs, if it is known.
    Raises: InvalidRequest; Rejected; OutcomeUnknown; and what the verb raises.
    """
    if batch_id is None and options.txn_app_id is None:
        return verb(WriteRequest.of(options))
    batch = Batch(app_txn_of_batch(options, batch_id), query())
    live_keys = open_keys(store_for(options.place))
    request = batch.request(options, live_keys)
    if request is None:
        return None
    try:
        outcome = verb(request)
        if outcome is not None:
            return outcome
        return propose_note(client, options, live_keys, request, Operation(name=operation))
    except Rejected as rejected:
        if rejected.rule == APP_TXN_SEEN:
            return None
        raise


def moving(
    client: Client, options: WriteOptions, positions: Positions, operation: str, verb: Verb
) -> Outcome | None:
    """Do a verb that moves applications; None if the table has them there already.

    Raises: Rejected, with a rule of `OF_POSITIONS` if the table has others; what the verb raises.
    """
    moves = tuple(
        AppTxnAdvance(app_id=app_id, version=version, expected=expected)
        for app_id, (expected, version) in positions.items()
    )
    request = replace(WriteRequest.of(options), app_txns=moves)
    try:
        outcome = verb(request)
        if outcome is None:
            table = open_keys(store_for(options.place))
            outcome = propose_note(client, options, table, request, Operation(name=operation))
        return outcome
    except Rejected as rejected:
        if rejected.rule not in OF_POSITIONS:
            raise
        root, timeout_s = options.place.root, options.outcome_timeout_s
        current = client.app_versions(root, tuple(positions), timeout_s)
        if all(current[app_id] == version for app_id, (_, version) in positions.items()):
            return None
        raise


def propose_note(
    client: Client,
    options: WriteOptions,
    live_keys: LiveKeys,
    request: WriteRequest,
    operation: Operation,
) -> Outcome:
    """Propose a request's application transactions without any change, and return the outcome.

    Raises: Rejected, OutcomeUnknown, Unavailable.
    """
    record = client.require(options.place.root, request.timeout_s)
    target = proposal_builders.Target(
        record.table, record.table_root, int(live_keys.version), live_keys.metadata.id
    )
    note = proposal_builders.note(target, stamp_for(client, request), operation)
    return propose(client, store_for(options.place), note, request.timeout_s)

"""Does a verb once for each batch of an application, whatever dies or is repeated.

The batch id is the version of the application's transaction in the table (Delta's `txn`): the
proposal brings it, and the committer refuses a second one. A verb that changes nothing brings it
in a commit of its own, so that its repeat does nothing either, whatever came into the table since.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tidegate_delta.errors import InvalidRequest
from tidegate_messages.outcome import Outcome
from tidegate_messages.proposal import AppTxn, Operation
from tidegate_producers.cached_clients import client_for, store_for
from tidegate_producers.options import WriteOptions
from tidegate_producers.writing.table_write import WriteRequest, propose, stamp_for
from tidegate_runtime.client import proposal_drafts
from tidegate_runtime.client.client import APP_TXN_SEEN, Rejected
from tidegate_runtime.table_io.open_table import open_keys

Verb = Callable[[WriteRequest], Outcome | None]
"""Changes a table with a request, and returns the outcome, or None if nothing was to be changed."""


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


def once(options: WriteOptions, batch_id: int | None, operation: str, verb: Verb) -> Outcome | None:
    """Do a verb, once if a batch is given; return its outcome, or None if nothing was to be done.

    Raises: InvalidRequest; Rejected; OutcomeUnknown; and what the verb raises.
    """
    if batch_id is None and options.txn_app_id is None:
        return verb(WriteRequest.of(options))
    txn = app_txn_of_batch(options, batch_id)
    request, store = WriteRequest.of(options, txn), store_for(options.place)
    live_keys = open_keys(store)
    last_txn = live_keys.app_transactions.get(txn.app_id)
    if last_txn is not None and last_txn.version >= txn.version:
        return None
    try:
        outcome = verb(request)
        if outcome is not None:
            return outcome
        client = client_for(options.kafka)
        record = client.require(options.place.root, request.timeout_s)
        target = proposal_drafts.Target(
            record.table, record.table_root, int(live_keys.version), live_keys.metadata.id
        )
        note = proposal_drafts.note(target, stamp_for(client, request), Operation(name=operation))
        return propose(client, store, note, request.timeout_s)
    except Rejected as rejected:
        if rejected.rule == APP_TXN_SEEN:
            return None
        raise

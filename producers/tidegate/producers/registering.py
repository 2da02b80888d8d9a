"""Bring a table that exists under the gate, or let it go: nothing is written to its log."""

from tidegate.delta.features.table import check_writable
from tidegate.pipeline.outcome import Outcome
from tidegate.producers import draft
from tidegate.producers.client import Client, result
from tidegate.producers.connection import store_for
from tidegate.producers.options import Place
from tidegate.producers.writing import Saying, stamp_for
from tidegate.runtime.open_table import open_snapshot


def register(client: Client, place: Place, name: str | None, timeout_s: float) -> Outcome:
    """Register the table at a place, and return the outcome; again is no error.

    Raises: InvalidRequest (`NotADeltaTable`); UnsupportedFeature, for a table that can't be
    written; Rejected; OutcomeUnknown; Unavailable.
    """
    snapshot = open_snapshot(store_for(place))
    check_writable(snapshot.protocol, snapshot.metadata, place.root)
    known = client.table(place.root, timeout_s)
    table = known.table if known is not None else client.new_id()
    version = int(snapshot.version)
    target = draft.Target(table, place.root, version, snapshot.metadata.id, name)
    stamp = stamp_for(client, Saying(timeout_s))
    return result(client.propose(draft.register(target, stamp), timeout_s))


def drop(client: Client, root_or_name: str, timeout_s: float) -> Outcome:
    """Drop a registered table from the gate, and return the outcome; again is no error.

    Raises: InvalidRequest (`TableNotRegistered`); Rejected; OutcomeUnknown; Unavailable.
    """
    record = client.require(root_or_name, timeout_s)
    version = max(record.published_through, 0)
    target = draft.Target(record.table, record.table_root, version, record.table_id)
    stamp = stamp_for(client, Saying(timeout_s))
    return result(client.propose(draft.drop(target, stamp), timeout_s))

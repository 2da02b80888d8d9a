"""Finds a proposal wherever it is known, topics, dead letters or a table's log, and explains it."""

from typing import Final
from uuid import UUID

from tidegate_delta.errors import InvalidRequest, Unavailable
from tidegate_producers.cached_clients import CLIENT_ID, store_for
from tidegate_producers.history.log_search import find_in_log
from tidegate_producers.history.outcome_explanation import (
    Explanation,
    ProposalHistory,
    explain,
    explain_letter,
)
from tidegate_producers.history.outcome_log import ProposalOutcomes, find_letter, find_proposal
from tidegate_producers.options import TableLocation
from tidegate_runtime.client.client import Client
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.service.settings import ServiceSettings
from tidegate_runtime.storage.open_store import canonical_root

VERSIONS: Final = 1_000
"""How many of a log's newest versions are searched for a proposal."""


def explained(settings: ServiceSettings, proposal: UUID, table: str | None) -> Explanation:
    """Return the explanation of a proposal's outcome; `table` is a name, root or id, if given.

    Raises: InvalidRequest (`ProposalNotFound`, `TableNotRegistered`); Unavailable; BrokenLog.
    """
    silence: Unavailable | None = None
    try:
        delivery = find_proposal(_bus(settings), settings.kafka.topics, proposal)
    except Unavailable as error:
        if table is None or "/" not in table:
            raise
        delivery, silence = None, error  # reading the log needs no broker
    root = _root_of(settings, delivery, table)
    letter = None
    if silence is None and (delivery is None or delivery.answer is None):
        letter = find_letter(_bus(settings), settings.kafka.topics, proposal)
    if delivery is None and root is None and letter is None:
        raise not_found(settings, proposal)
    store = store_for(TableLocation(root, settings.storage)) if root is not None else None
    outcome, log_match = (delivery.answer if delivery is not None else None), None
    if store is not None and (outcome is None or outcome.status == "expired"):
        log_match = find_in_log(store, proposal, VERSIONS)
    if log_match is None and letter is not None:
        return explain_letter(letter, root)
    if delivery is None and log_match is None:
        unnamed = f"the newest {VERSIONS} versions of {root} do not name it"
        if silence is not None:
            raise Unavailable(f"{silence}; {unnamed}: it may be older, or wait") from silence
        raise InvalidRequest(
            f"proposal {proposal} is not on {settings.kafka.topics.proposals}, and {unnamed}: it "
            "was never sent, is older, or lost against a winner, which no entry says",
            error_class="ProposalNotFound",
        )
    body, other_outcomes = (delivery.proposal, delivery.others) if delivery else (None, ())
    return explain(ProposalHistory(proposal, root, body, outcome, log_match, other_outcomes), store)


def _root_of(
    settings: ServiceSettings, delivery: ProposalOutcomes | None, table: str | None
) -> str | None:
    """Return the root of a proposal's table, or None if it is unknown."""
    if table is not None and "/" in table:
        return canonical_root(table)
    if table is None and delivery is not None and delivery.proposal is not None:
        return delivery.proposal.table_root
    with _client(settings) as client:
        if table is not None:
            return client.require(table).table_root
        record = client.tables().get(delivery.table) if delivery is not None else None
    return record.table_root if record is not None else None


def not_found(settings: ServiceSettings, proposal: UUID) -> InvalidRequest:
    """Return the error for a proposal of which the topics know nothing."""
    return InvalidRequest(
        f"proposal {proposal} is not on {settings.kafka.topics.proposals}, and no dead letter: it "
        "was never sent there, or it is older than the topic keeps; the table's log may name it: "
        f"`tidegate proposals explain {proposal} --table NAME`",
        error_class="ProposalNotFound",
    )


def _bus(settings: ServiceSettings) -> KafkaBus:
    return KafkaBus(settings.kafka, CLIENT_ID)


def _client(settings: ServiceSettings) -> Client:
    return Client(_bus(settings), settings.kafka.topics)

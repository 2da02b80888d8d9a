"""Finds a proposal wherever it is known, topics, dead letters or a table's log, and explains it."""

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from tidegate_delta.errors import InvalidRequest, Unavailable
from tidegate_producers.cached_clients import CLIENT_ID, store_for
from tidegate_producers.history.log_search import find_in_log
from tidegate_producers.history.outcome_explanation import (
    Explanation,
    ProposalHistory,
    explain,
    explain_dead_letter,
)
from tidegate_producers.history.outcome_log import (
    FoundLetter,
    ProposalOutcomes,
    find_letter,
    find_proposal,
)
from tidegate_producers.options import TableLocation
from tidegate_runtime.client.client import Client
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.service.settings import ServiceSettings
from tidegate_runtime.storage.open_store import canonical_root

VERSIONS: Final = 1_000
"""How many of a log's newest versions are searched for a proposal."""


@dataclass(frozen=True)
class FoundProposal:
    """What the topics hold of a proposal; `silence` is the error if no broker answered."""

    proposal_id: UUID
    delivery: ProposalOutcomes | None = None
    letter: FoundLetter | None = None
    silence: Unavailable | None = None


def find_in_topics(settings: ServiceSettings, proposal: UUID, table: str | None) -> FoundProposal:
    """Return what the topics hold of a proposal. `table` is a name, root or id, if given.

    Raises: Unavailable, unless `table` is a root: its log is read without a broker.
    """
    bus, topics = _bus(settings), settings.kafka.topics
    try:
        delivery = find_proposal(bus, topics, proposal)
    except Unavailable as error:
        if table is None or "/" not in table:
            raise
        return FoundProposal(proposal, silence=error)
    has_answer = delivery is not None and delivery.answer is not None
    letter = None if has_answer else find_letter(bus, topics, proposal)
    return FoundProposal(proposal, delivery, letter)


def explained(settings: ServiceSettings, found: FoundProposal, table: str | None) -> Explanation:
    """Return the explanation of a proposal's outcome; `table` is a name, root or id, if given.

    Raises: InvalidRequest (`ProposalNotFound`, `TableNotRegistered`); Unavailable; BrokenLog.
    """
    proposal, delivery, letter = found.proposal_id, found.delivery, found.letter
    root = _root_of(settings, delivery, table)
    if delivery is None and root is None and letter is None:
        raise not_found(settings, proposal)
    store = store_for(TableLocation(root, settings.storage)) if root is not None else None
    outcome, log_match = (delivery.answer if delivery is not None else None), None
    if store is not None and (outcome is None or outcome.status == "expired"):
        log_match = find_in_log(store, proposal, VERSIONS)
    if log_match is None and letter is not None:
        return explain_dead_letter(letter, root)
    if delivery is None and log_match is None:
        unnamed = f"the newest {VERSIONS} versions of {root} do not name it"
        if found.silence is not None:
            raise Unavailable(
                f"{found.silence}; {unnamed}: it may be older, or wait"
            ) from found.silence
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
        f"`tidegate proposals show {proposal} --table NAME`",
        error_class="ProposalNotFound",
    )


def _bus(settings: ServiceSettings) -> KafkaBus:
    return KafkaBus(settings.kafka, CLIENT_ID)


def _client(settings: ServiceSettings) -> Client:
    return Client(_bus(settings), settings.kafka.topics)

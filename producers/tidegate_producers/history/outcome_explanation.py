"""Explains a proposal's outcome: the rule, the winner, what both touched, and what to do."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

from tidegate_delta.errors import BrokenLog
from tidegate_delta.log.commit import Commit, sha256
from tidegate_delta.log.file_paths import canonical_path
from tidegate_messages import commit_provenance
from tidegate_messages.commit_provenance import Accepted, Provenance
from tidegate_messages.outcome import Outcome, Rejection
from tidegate_messages.proposal import Predicate, Proposal, ReadSet
from tidegate_messages.refusals import REFUSALS, RefusalRule
from tidegate_producers.history.log_search import LogMatch, matches_of
from tidegate_producers.history.outcome_log import FoundLetter
from tidegate_runtime.service.runner import EXIT_FIX, EXIT_OK, EXIT_RETRY, EXIT_STOP
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.open_table import read_commit

SHOWN_MAX: Final = 10
"""Maximum number of files, predicates and so on that an explanation names, of each kind."""

NOTHING_TO_DO: Final = "nothing is to be done"
HALTED: Final = "table_halted"
_GRANTED: Final = {
    "commit": "it is in version {}, once",
    "verbatim": "it is version {}",
    "register": "the table is registered, as it was at version {}",
    "halt": "the table is halted, as it was at version {}",
    "reopen": "the table is open again, as it was at version {}",
    "drop": "the table is dropped, as it was at version {}",
    "move": "the table has another topic partition, as it was at version {}",
    "cancel": "too late: what it was to give up is in version {}",
}
_ADVICE: Final = {
    "retry": "send the same bytes again later",
    "resend": "send the same bytes to the topic or partition that the answer names",
    "rebase": "propose the same files again on the newest version",
    "rerun": "run the operation again: it reads the newest version",
    "fix": "correct the request before trying again",
    "skip": "go on with the application's next version",
}

_PREDICATE_DEPTH_MAX: Final = 32
_PREDICATE_TEXT_MAX: Final = 400


@dataclass(frozen=True)
class Winner:
    """The winning version; `proposal_ids` are its proposals, none for an external writer's."""

    version: int
    operation: str | None = None
    engine_info: str | None = None
    timestamp_ms: int | None = None
    proposal_ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class Overlap:
    """What a proposal and its winner both touched."""

    files: tuple[str, ...] = ()
    predicates: tuple[str, ...] = ()
    applications: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()


NOTHING: Final = Overlap()


@dataclass(frozen=True)
class Explanation:
    """An outcome in plain words, and the exit status of the command that prints it.

    `others` are the outcomes of different bytes that were sent under the same id.
    """

    proposal_id: UUID
    root: str | None
    status: str
    meaning: str
    remedy: str
    exit_status: int
    commands: tuple[str, ...] = ()
    version: int | None = None
    rule: str | None = None
    delta_name: str | None = None
    reason: str | None = None
    field: str | None = None
    winner: Winner | None = None
    overlap: Overlap = NOTHING
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class ProposalHistory:
    """What is known of a proposal: from the topics, from the log, or from both."""

    proposal_id: UUID
    root: str | None
    proposal: Proposal | None = None
    outcome: Outcome | None = None
    found: LogMatch | None = None
    others: Sequence[Outcome] = ()


def explain(case: ProposalHistory, store: LogStore | None) -> Explanation:
    """Return the explanation of a proposal, using the table's log if `store` is given.

    Raises: Unavailable.
    """
    explanation = _of_its_bytes(case, store)
    other_outcomes = dict.fromkeys(_in_short(outcome) for outcome in case.others)
    return replace(explanation, others=tuple(other_outcomes)[:SHOWN_MAX])


def explain_dead_letter(letter: FoundLetter, root: str | None) -> Explanation:
    """Return the explanation of a record that could not be read, and has no outcome."""
    refusal_rule = REFUSALS.get(letter.rule)
    remedy = refusal_rule.remedy if refusal_rule else _ADVICE["fix"]
    return Explanation(
        proposal_id=letter.proposal_id,
        root=root,
        status="dead letter",
        meaning=f"its record {letter.source} could not be taken, and lies on the topic of dead "
        "letters; it had no readable ids to send an outcome to, or the outcome is gone",
        remedy=f"{remedy}; set the headers `proposal_id` and `table`: then even an unreadable "
        "record has an outcome",
        exit_status=EXIT_FIX,
        rule=letter.rule,
        reason=letter.reason,
    )


def _in_short(outcome: Outcome) -> str:
    rule = f" ({outcome.rejection.rule})" if outcome.rejection else ""
    return f"{outcome.status}{rule}"


def _of_its_bytes(case: ProposalHistory, store: LogStore | None) -> Explanation:
    outcome, log_match = case.outcome, case.found
    rejection = outcome.rejection if outcome else log_match.rejection if log_match else None
    if rejection is not None and not (log_match and log_match.place is not None):
        return _refused(case, store, outcome.status if outcome else "rejected", rejection)
    if outcome is not None and outcome.status == "committed" and outcome.version is not None:
        return _committed(case, store, outcome.version)
    if log_match is not None:
        return _committed(case, store, log_match.version)
    if outcome is not None and outcome.app_versions is not None:
        return _answered(case, outcome.app_versions)
    if outcome is not None:
        return _expired(case)
    return _pending(case)


def _answered(case: ProposalHistory, versions: Mapping[str, int]) -> Explanation:
    positions = ", ".join(f"{app_id} at {version}" for app_id, version in versions.items())
    return Explanation(
        proposal_id=case.proposal_id,
        root=case.root,
        status="answered",
        meaning=f"it asked where applications are (-1: the table has none): {positions}",
        remedy=NOTHING_TO_DO,
        exit_status=EXIT_OK,
    )


def _committed(case: ProposalHistory, store: LogStore | None, version: int) -> Explanation:
    entry = _read(store, version)
    kind = case.proposal.kind if case.proposal else "commit"
    meaning = _GRANTED[kind].format(version)
    remedy, exit_status = NOTHING_TO_DO, EXIT_OK
    is_in_the_entry = kind in ("commit", "verbatim")
    is_there = entry is not None and _is_in(entry, case)
    if case.proposal is None and not is_there:
        meaning = f"it was granted at version {version}; its record is gone, and what it asked for"
    elif is_in_the_entry and entry is None:
        meaning += "; the log no longer holds that entry"
    elif is_in_the_entry and not is_there:
        lacks = "has other bytes" if kind == "verbatim" else "does not name it"
        meaning = f"version {version} was promised to it, and its entry {lacks}"
        remedy = "somebody has changed the log: compare the entry with a backup"
        exit_status = EXIT_STOP
    return Explanation(
        proposal_id=case.proposal_id,
        root=case.root,
        status="committed",
        meaning=meaning,
        remedy=remedy,
        exit_status=exit_status,
        version=version,
    )


def _is_in(entry: tuple[Commit, bytes], case: ProposalHistory) -> bool:
    """Return whether an entry names a proposal, or is the verbatim entry that it brought."""
    commit, content = entry
    if case.proposal is not None and case.proposal.kind == "verbatim":
        return sha256(content) == case.proposal.claim.sha256
    return any(match.proposal_id == case.proposal_id for match in matches_of(commit))


def _refused(
    case: ProposalHistory, store: LogStore | None, status: str, rejection: Rejection
) -> Explanation:
    if case.proposal is not None and case.proposal.kind == "cancel" and status == "rejected":
        return _gave_up(case, case.proposal)
    known_rule = REFUSALS.get(rejection.rule)
    refusal_rule = known_rule or RefusalRule(rejection.reason, _ADVICE[rejection.advice])
    entry = None
    if rejection.winner_version is not None:
        entry = _read(store, rejection.winner_version)
    commit = entry[0] if entry else None
    promise = "it never will be in the table" if status == "rejected" else "no promise either way"
    return Explanation(
        proposal_id=case.proposal_id,
        root=case.root,
        status=status,
        meaning=f"{refusal_rule.cause} ({promise})",
        remedy=refusal_rule.remedy,
        exit_status=_exit_status(rejection),
        commands=_commands(case.root or "ROOT", rejection),
        rule=rejection.rule,
        delta_name=rejection.exception or rejection.error_class,
        reason=rejection.reason,
        field=rejection.field,
        winner=_winner(rejection, commit),
        overlap=_overlap(case.proposal, rejection, commit),
    )


def _gave_up(case: ProposalHistory, cancel: Proposal) -> Explanation:
    """Return the explanation of a successful cancel, which is published as a rejection."""
    return Explanation(
        proposal_id=case.proposal_id,
        root=case.root,
        status="rejected",
        meaning=f"it gave up proposal {cancel.cancels}, which never will be in the table",
        remedy=NOTHING_TO_DO,
        exit_status=EXIT_OK,
        commands=(f"tidegate proposals show {cancel.cancels}",),
    )


def _expired(case: ProposalHistory) -> Explanation:
    return Explanation(
        proposal_id=case.proposal_id,
        root=case.root,
        status="expired",
        meaning="the version that it read lies below the log: whether it was committed long ago "
        "cannot be told from the log any more (no promise either way)",
        remedy="look for its rows in the table; where they are missing, run the operation again "
        "under a new id",
        exit_status=EXIT_FIX,
        commands=(f"tidegate table snapshot {case.root or 'ROOT'}",),
    )


def _pending(case: ProposalHistory) -> Explanation:
    return Explanation(
        proposal_id=case.proposal_id,
        root=case.root,
        status="pending",
        meaning="nothing was told of it yet: it waits, or the topic no longer holds its outcome",
        remedy="wait; look whether a committer is active and the table open; or give it up",
        exit_status=EXIT_RETRY,
        commands=("tidegate table list", f"tidegate proposals cancel {case.proposal_id}"),
    )


def _exit_status(rejection: Rejection) -> int:
    if rejection.rule == HALTED:
        return EXIT_STOP
    return EXIT_RETRY if rejection.advice == "retry" else EXIT_FIX


def _commands(root: str, rejection: Rejection) -> tuple[str, ...]:
    if rejection.rule in ("unknown_table", "table_exists"):
        return (f"tidegate table register {root}",)
    if rejection.rule in (HALTED, "name_taken", "other_root"):
        return ("tidegate table list",)
    if rejection.rule in ("app_txn_seen", "app_txn_conflict"):
        return (f"tidegate table snapshot {root}",)
    if rejection.rule.startswith(("metadata_", "protocol_", "bad_", "partition_", "other_table")):
        return (f"tidegate table describe {root}",)
    if rejection.winner_version is None:
        return ()
    conflicts_command = (f"tidegate proposals list --refused --table {root}",)
    if rejection.winner_proposal_id is None:
        return (f"tidegate table history {root}", *conflicts_command)
    return (f"tidegate proposals show {rejection.winner_proposal_id}", *conflicts_command)


def _winner(rejection: Rejection, commit: Commit | None) -> Winner | None:
    version = rejection.winner_version
    if version is None:
        return None
    if commit is None or commit.info is None:
        return Winner(version)
    provenance = commit_provenance.of(commit)
    winner_id = rejection.winner_proposal_id
    members = (
        [str(proposal.id) for proposal in _deleting_proposals(rejection, provenance, commit)]
        if provenance
        else []
    )
    return Winner(
        version,
        commit.info.operation,
        commit.info.engine_info,
        commit.info.in_commit_timestamp or commit.info.timestamp,
        (winner_id,) if winner_id else tuple(members[:SHOWN_MAX]),
    )


def _deleting_proposals(
    rejection: Rejection, provenance: Provenance, commit: Commit
) -> Sequence[Accepted]:
    """Return the proposals of the winning entry that deleted rows of the file."""
    if rejection.path is None:
        return provenance.accepted
    removed = [canonical_path(remove.path) for remove in commit.removes]
    deleting = commit_provenance.deleting_proposals(provenance, removed, rejection.path)
    return [
        provenance.accepted[place] for place in deleting if place < len(provenance.accepted)
    ] or provenance.accepted


def _overlap(proposal: Proposal | None, rejection: Rejection, commit: Commit | None) -> Overlap:
    named_by_rejection = Overlap(
        files=(rejection.path,) if rejection.path else (),
        applications=(rejection.app_id,) if rejection.app_id else (),
        domains=(rejection.domain,) if rejection.domain else (),
    )
    if proposal is None or commit is None:
        return named_by_rejection
    reads = proposal.reads
    own_files = {canonical_path(path) for path in (reads.files if reads else ())}
    own_files.update(
        canonical_path(str(action["remove"].get("path")))
        for action in proposal.actions
        if isinstance(action.get("remove"), dict)
    )
    own_files.update(canonical_path(intent.path) for intent in proposal.dv_intents)
    shared_files = sorted(own_files & {canonical_path(remove.path) for remove in commit.removes})
    predicates = _predicates(reads, rejection) if rejection.rule == "concurrent_append" else ()
    apps = set(reads.app_ids if reads else ()) & {txn.app_id for txn in commit.txns}
    domains = {domain.domain for domain in commit.domains} & {*(reads.domains if reads else ())}
    return Overlap(
        files=tuple(dict.fromkeys((*named_by_rejection.files, *shared_files)))[:SHOWN_MAX],
        predicates=tuple(predicates[:SHOWN_MAX]),
        applications=tuple(sorted(apps.union(named_by_rejection.applications))[:SHOWN_MAX]),
        domains=tuple(sorted(domains.union(named_by_rejection.domains))[:SHOWN_MAX]),
    )


def _predicates(reads: ReadSet | None, rejection: Rejection) -> Sequence[str]:
    """Return the predicate that the winner's file may match, or all if the rejection names none."""
    if reads is None or reads.whole_table:
        return ["every row"]
    place = rejection.predicate
    met = reads.predicates if place is None else reads.predicates[place : place + 1]
    return [text_of(predicate) for predicate in met]


def text_of(predicate: Predicate) -> str:
    """Return a predicate in SQL style, truncated if it is long; only for display."""
    text = _text(predicate, 0)
    return text if len(text) <= _PREDICATE_TEXT_MAX else f"{text[:_PREDICATE_TEXT_MAX]}…"


def _text(node: Mapping[str, Any], depth: int) -> str:
    renderer = _NODES.get(str(node.get("op")), _comparison)
    return "…" if depth > _PREDICATE_DEPTH_MAX else renderer(node, depth)


def _comparison(node: Mapping[str, Any], depth: int) -> str:
    return f"{_column(node)} {node.get('op')} {_literal(node.get('value'))}"


def _within(node: Mapping[str, Any], depth: int) -> str:
    return f"{_column(node)} IN ({', '.join(_literal(item) for item in node.get('values') or ())})"


def _joined(word: str) -> Callable[[Mapping[str, Any], int], str]:
    def say(node: Mapping[str, Any], depth: int) -> str:
        return f" {word} ".join(
            f"({_text(argument, depth + 1)})" for argument in node.get("args") or ()
        )

    return say


def _opaque(node: Mapping[str, Any], depth: int) -> str:
    return f"{node.get('text') or 'something that the grammar cannot say'} (matches everything)"


def _column(node: Mapping[str, Any]) -> str:
    column = node.get("column")
    return ".".join(map(str, column)) if isinstance(column, list | tuple) else str(column)


def _literal(value: object) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value)


_NODES: Final[Mapping[str, Callable[[Mapping[str, Any], int], str]]] = {
    "in": _within,
    "and": _joined("AND"),
    "or": _joined("OR"),
    "not": lambda node, depth: f"NOT ({_text(node.get('arg') or {}, depth + 1)})",
    "is_null": lambda node, _: f"{_column(node)} IS NULL",
    "is_not_null": lambda node, _: f"{_column(node)} IS NOT NULL",
    "true": lambda *_: "every row",
    "opaque": _opaque,
}


def _read(store: LogStore | None, version: int) -> tuple[Commit, bytes] | None:
    """Return a version's commit, or None if it is gone or corrupt.

    The explanation then has fewer details; the outcome is known without it.
    """
    if store is None:
        return None
    try:
        return read_commit(store, version)
    except BrokenLog:
        return None

"""Check whether a rejection is justified: look up each rule's claim in the winner's rows."""

from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import unquote

import orjson

from tests.linearizability.run_record import Account, PublishedOutcome, Rows, Sent, Table, paths
from tidegate_committer.decision.steps import IMPLIED_BY_BYTES
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.proposal_reader import read_record
from tidegate_committer.policy import Policy

Claim = Callable[[Account, Sent, Rows], bool]
"""Whether the winner's rows are what the rule says they are."""


def added_what_was_read(account: Account, sent: Sent, winner: Rows) -> bool:
    """The winner added files, and the proposal has a read set, so that it is not a blind append.

    New files of a compaction that says where rows moved hold no new rows.
    """
    targets, _ = _relocated(account, sent, winner)
    has_read = any(sent.reads.get(what) for what in ("whole_table", "predicates", "files"))
    has_removed = bool(paths(account.actions(sent), "remove") or sent.intents)
    came = {path for _, path in paths(winner, "add")} - targets
    return bool(came) and (has_read or has_removed)


def removed_what_was_read(account: Account, sent: Sent, winner: Rows) -> bool:
    """The winner removed a file that the proposal read."""
    gone = _changed_by(winner, account, sent)
    own = {path for _, path in paths(account.actions(sent), "remove")}
    read = account.followed(own | sent.intents | set(sent.reads.get("files", ())))
    return bool(gone & read or (gone and sent.reads.get("whole_table")))


def removed_the_same(account: Account, sent: Sent, winner: Rows) -> bool:
    """Both the winner and the proposal removed a file, or deleted rows of it."""
    gone = _changed_by(winner, account, sent)
    own = {path for _, path in paths(account.actions(sent), "remove")}
    return bool(gone & account.followed(own | sent.intents))


def _relocated(account: Account, sent: Sent, winner: Rows) -> tuple[set[str], set[str]]:
    """Return the new files of the winner's row mappings, and the files that they replace.

    None if the committer may have forgotten them.
    """
    entries = account.tables[sent.root].entries
    if not any(rows is winner for rows in entries[-account.window :]):
        return set(), set()
    infos = [row["commitInfo"].get("tidegate") or {} for row in winner if "commitInfo" in row]
    members = [member for info in infos for member in info.get("accepted", ())]
    mappings = [mapping for member in members for mapping in member.get("row_mapping", ())]
    sources = {source["path"] for mapping in mappings for source in mapping["sources"]}
    return {mapping["path"] for mapping in mappings}, sources


def _changed_by(winner: Rows, account: Account, sent: Sent) -> set[str]:
    """Return the files that a winner removed to change rows, for a proposal that changes some.

    Nobody who changes data loses to a compaction that says where the rows are, except who adds one
    of its files once more.
    """
    gone = {path for _, path in paths(winner, "remove")}
    if sent.is_rewrite:
        return gone
    own = {unquote(path) for _, path in paths(account.actions(sent), "add")}
    return gone - (_relocated(account, sent, winner)[1] - own)


def wrote_something(account: Account, sent: Sent, winner: Rows) -> bool:
    """The winner wrote files or changed the table, which is all that maintenance rules require."""
    return bool(paths(winner, "add", "remove")) or changed_the_table(account, sent, winner)


def changed_the_table(account: Account, sent: Sent, winner: Rows) -> bool:
    """The winner wrote metaData or a protocol."""
    return any("metaData" in row or "protocol" in row for row in winner)


def moved_an_application(account: Account, sent: Sent, winner: Rows) -> bool:
    """The winner wrote a txn of an application in the proposal's read set."""
    moved = {row["txn"]["appId"] for row in winner if "txn" in row}
    return bool(moved & set(sent.reads.get("app_ids", ())))


def wrote_a_domain(account: Account, sent: Sent, winner: Rows) -> bool:
    """Both wrote a metadata domain, or the winner wrote one that the proposal read."""
    wrote = _domains(winner)
    return bool(wrote & (_domains(account.actions(sent)) | set(sent.reads.get("domains", ()))))


LOST_TO: Final[Mapping[str, Claim]] = {
    "protocol_unsupported": changed_the_table,
    "protocol_changed": changed_the_table,
    "feature_binds_writers": changed_the_table,
    "dropped_feature_in_use": changed_the_table,
    "metadata_changed": changed_the_table,
    "domain_metadata_changed": wrote_a_domain,
    "concurrent_transaction": moved_an_application,
    "concurrent_append": added_what_was_read,
    "concurrent_delete_read": removed_what_was_read,
    "concurrent_delete_delete": removed_the_same,
    "concurrent_row_delete": removed_the_same,
    "row_ids_of_no_table": wrote_something,
    "backfill_of_more_than_files": wrote_something,
    "unbackfill_meets_backfill": wrote_something,
    "unclear_table": changed_the_table,
    "row_ids_without_statistics": wrote_something,
    "duplicate_actions": wrote_something,
}
"""The rules that name a winner, and what each claims of it."""


def injustice(account: Account, sent: Sent, told: PublishedOutcome) -> str | None:
    """Return why a rejection does not follow from the log, or None if it does."""
    table = account.tables[sent.root]
    identity, digest = sent.key
    if {(identity, None), (identity, digest)} & table.refused():
        return None
    if told.rule == "table_exists":
        return None if table.entries else "says that there is a table, and there is none"
    if told.rule == "app_txn_seen":
        return None if _has_seen(table, sent) else "names an application that the log has not seen"
    if told.rule == "app_txn_conflict":
        return None if _has_gone_on(table, sent) else "names a position that the log has not passed"
    if told.rule in IMPLIED_BY_BYTES and _is_invalid_alone(account, sent, told.rule):
        return None
    claim = LOST_TO.get(told.rule)
    if claim is None or told.winner is None:
        return f"was rejected by {told.rule!r}, which does not stand in the log"
    return _lost(account, sent, told, claim)


def _lost(account: Account, sent: Sent, told: PublishedOutcome, claim: Claim) -> str | None:
    table, winner = account.tables[sent.root], told.winner
    assert winner is not None, "only a rule with a winner is looked up in it"
    if not sent.read_version < winner < len(table.entries):
        return f"lost to version {winner}, which does not come after {sent.read_version}"
    if table.appeared.get(winner, told.moment) > told.moment:
        return f"lost to version {winner}, which was not there when it was told"
    if not claim(account, sent, table.entries[winner]):
        return f"lost to version {winner} by {told.rule!r}, which is not so"
    return None


def _is_invalid_alone(account: Account, sent: Sent, rule: str) -> bool:
    """Whether the record alone is refused by that rule, under other settings and in no table."""
    body = {**sent.body, "actions": account.actions(sent), "claim_check": None}
    result = read_record(orjson.dumps(body), 0, Policy())
    return isinstance(result, Candidate) and result.flaw is not None and result.flaw.rule == rule


def _has_seen(table: Table, sent: Sent) -> bool:
    own, several = sent.body.get("app_txn"), sent.body.get("app_txns") or ()
    if own:
        return any(version >= own["version"] for version in _versions(table, own["app_id"]))
    return all(txn["version"] in _versions(table, txn["app_id"]) for txn in several)


def _has_gone_on(table: Table, sent: Sent) -> bool:
    """Whether the log has one of its applications at a version after the expected one."""
    return any(
        max(_versions(table, txn["app_id"]), default=-1) > txn["expected"]
        for txn in sent.body["app_txns"]
    )


def _versions(table: Table, app_id: str) -> list[int]:
    rows = (row["txn"] for entry in table.entries for row in entry if "txn" in row)
    return [txn["version"] for txn in rows if txn["appId"] == app_id]


def _domains(rows: Rows) -> set[str]:
    return {row["domainMetadata"]["domain"] for row in rows if "domainMetadata" in row}

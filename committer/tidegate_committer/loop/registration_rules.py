"""Registration: which tables may be registered, under which names, and the related answers.

A table is registered by the proposal that creates it, once version 0 is in its log, or by a
proposal of kind `register`, which writes nothing to the log.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from tidegate_committer.decision.decision_types import Verdict, denied
from tidegate_committer.decision.published_record_limits import short
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.refusals import FAULT
from tidegate_delta.errors import Misconfigured, TidegateError, Unavailable
from tidegate_messages.outcome import Rejection
from tidegate_messages.proposal import Proposal
from tidegate_messages.published_records import TableRecord
from tidegate_messages.table_home import Home, recorded_home
from tidegate_runtime.containment import reason_of
from tidegate_runtime.storage.root_paths import canonical_root, decoded_root, lies_under

NAME_CHARS_MAX: Final = 255
ROOT_BYTES_MAX: Final = 768
STEP_BYTES_MAX: Final = 255
"""Limits that every store accepts, with room for the names of a table's files. A longer root could
never be opened, and a proposal for it would wait for ever.
"""

CLAIMED: Final = "it is just being registered"
"""The reason in a staged record by which a committer claims a table for a topic partition."""

NAME_PARTS: Final = (1, 3)
"""A name is `table`, or `catalog.schema.table`."""

_UNFIT: Final = re.compile(r"[\x00-\x1f\x7f/`]")


@dataclass(frozen=True)
class RegisteredTables:
    """Every registered table, of all topic partitions, and the prefixes of allowed roots."""

    tables: Mapping[UUID, TableRecord]
    roots: Iterable[str]

    def under(self, root: str) -> TableRecord | None:
        """Return the table registered at a root, or None; a dropped one where there is no other."""
        at_root = [table for table in self.tables.values() if table.table_root == root]
        return min(at_root, key=lambda table: table.status == "dropped", default=None)

    def dropped_from(self, root: str, table_id: str) -> TableRecord | None:
        """Return the dropped registration of the table with this metaData id at a root, or None.

        A registration that has no id may be that of any table.
        """
        return next(
            (
                table
                for table in self.tables.values()
                if table.table_root == root
                and table.status == "dropped"
                and table.table_id in (None, short(table_id))
            ),
            None,
        )


def objection(candidate: Candidate, registry: RegisteredTables) -> Verdict | None:
    """Return why a table may not be registered, or None.

    What lies at a dropped root may be another table, which its log says: `dropped_from`.
    The answer is `denied` and promises nothing, because no log was read. The same bytes may get
    another answer later: their writer may have created the table and died before it was
    registered.
    """
    proposal = _proposal(candidate)
    root = proposal.table_root
    other = registry.under(root)
    if other is not None and other.status == "dropped":
        # What is proposed as version 0 of an empty log, byte by byte, is another table.
        if proposal.kind not in ("register", "verbatim"):
            return table_dropped(candidate, other)
    elif other is not None and other.status == "staged":
        if other.table != proposal.table:
            reason = f"table_root: {root} is given out to {other.table}; take another root"
            return denied(candidate, "root_given_out", reason)
    elif other is not None:
        return _exists(candidate, other)
    if (problem := _root_problem(root)) is not None:
        return denied(candidate, "bad_root", f"table_root: {problem}")
    if not any(lies_under(root, prefix) for prefix in registry.roots):
        reason = (
            f"table_root: {root[:256]} lies under none of the roots that the operator allows; "
            "choose another place, or add it to committer.roots"
        )
        return denied(candidate, "root_not_allowed", reason)
    name = proposal.name
    if name is not None and not 0 < len(name) <= NAME_CHARS_MAX:
        reason = f"name: is empty or longer than {NAME_CHARS_MAX} characters; choose another"
        return denied(candidate, "bad_name", reason)
    if name is not None and not _is_name(name):
        reason = (
            f"name: {name!r} is neither one word nor three parts, `catalog.schema.table`, each "
            "without spaces around it, slashes and control characters; choose another"
        )
        return denied(candidate, "bad_name", reason)
    # The name of a dropped table is free for another one.
    if name is not None and any(
        table.name == name and table.table != proposal.table and table.status != "dropped"
        for table in registry.tables.values()
    ):
        reason = f"name: {name!r} is another table's; choose another"
        return denied(candidate, "name_taken", reason)
    return None


def new_record(
    candidate: Candidate, registry: RegisteredTables, topic: str, partition: int
) -> TableRecord:
    """Return the registration of a new table, with no version published."""
    proposal = _proposal(candidate)
    staged = registry.tables.get(proposal.table)
    promised = staged.name if staged is not None else None
    return TableRecord(
        table=proposal.table,
        table_root=proposal.table_root,
        name=proposal.name or promised or _free_name(proposal, registry),
        proposals_topic=topic,
        topic_partition=partition,
    )


def with_unique_name(record: TableRecord, registry: RegisteredTables) -> TableRecord:
    """Return the registration of a created table, with a suffix if its name has been taken.

    Another committer may have registered the name meanwhile. Two tables of one name would share a
    change topic, and commands that name tables could not tell them apart.
    """
    others = (table for table in registry.tables.values() if table.table != record.table)
    if all(other.name != record.name or other.status == "dropped" for other in others):
        return record
    suffix = f"-{record.table.hex[-8:]}"
    name = record.name[: NAME_CHARS_MAX - len(suffix)] + suffix
    return record.model_copy(update={"name": name})


def unfit(candidate: Candidate, error: Exception) -> Verdict:
    """Return the denial of a table whose store cannot be opened or is not safe for commits."""
    if not isinstance(error, TidegateError):
        return denied(candidate, FAULT, f"table_root: {reason_of(error)}", "retry")
    if isinstance(error, Unavailable):
        return denied(candidate, error.error_class, f"table_root: {reason_of(error)}", "retry")
    rule = "bad_root" if error.error_class == "Misconfigured" else error.error_class
    return denied(candidate, rule, f"table_root: {reason_of(error)}")


def unregistered(candidate: Candidate) -> TableRecord:
    """Return a placeholder record for an outcome about an unregistered table."""
    return TableRecord(
        table=candidate.table,
        table_root="unknown://-",
        name="-",
        proposals_topic="-",
        topic_partition=0,
    )


def table_halted(candidate: Candidate, cause: str) -> Verdict:
    """Return the denial of a proposal for a table whose log cannot be served."""
    reason = f"table: it is halted, for its log cannot be served: {cause}"
    return denied(candidate, "table_halted", reason, "retry")


def unknown_table(candidate: Candidate) -> Verdict:
    """Return the denial of a proposal for a table that is not registered."""
    return denied(
        candidate,
        "unknown_table",
        f"table: {candidate.table} is not registered; create it, or run "
        "`tidegate table register`, and propose under the id that the registry gives",
    )


def elsewhere(candidate: Candidate, record: TableRecord, own_home: Home) -> Verdict:
    """Return the denial of a proposal for a table that this partition served and no longer does."""
    if record.status == "dropped":
        return table_dropped(candidate, record)
    return other_partition(candidate, recorded_home(record), own_home)


def claimed_elsewhere(candidate: Candidate, record: TableRecord, own_home: Home) -> Verdict:
    """Return the denial of a table that another topic partition has registered or claimed."""
    if record.status != "staged" and record.table == candidate.table:
        return elsewhere(candidate, record, own_home)
    reason = (
        f"table: {record.table_root} is just being registered on {recorded_home(record)}, too; "
        "send the same bytes again when that is decided"
    )
    return denied(candidate, "being_created", reason, "retry")


def claim_to(record: TableRecord) -> TableRecord:
    """Return the record by which a topic partition claims a table that it is about to register."""
    return record.model_copy(update={"status": "staged", "reason": CLAIMED})


def is_claim(record: TableRecord) -> bool:
    """Return whether a record is a committer's claim, and not any other reservation."""
    return record.status == "staged" and record.reason == CLAIMED


def other_partition(candidate: Candidate, home: Home, own_home: Home) -> Verdict:
    """Return the denial of a proposal that came on another topic partition than its table's."""
    rejection = Rejection(
        rule="other_partition",
        reason=f"table: {candidate.table} belongs to topic partition {home}, and this came on "
        f"{own_home}; send the same bytes to partition {home.partition}, and read their outcome on "
        "that number",
        advice="resend",
        field="table",
        topic_partition=home.partition,
    )
    return Verdict(candidate, "denied", rejection=rejection)


def being_created(candidate: Candidate) -> Verdict:
    """Return the denial of a request for a root at which a table is being created."""
    reason = (
        f"table_root: a table is being created at {_proposal(candidate).table_root}; ask again "
        "when that is decided"
    )
    return denied(candidate, "being_created", reason, "retry")


def is_named_so(wrong: Verdict | None, names: Collection[str]) -> bool:
    """Return whether an objection is that the name is taken, and the name is among `names`."""
    if wrong is None or wrong.rejection is None or wrong.rejection.rule != "name_taken":
        return False
    return _proposal(wrong.candidate).name in names


def name_being_given(candidate: Candidate) -> Verdict:
    """Return the denial of a name that belongs to a table that is being created."""
    reason = (
        f"name: {_proposal(candidate).name!r} is to be another table's, which is just being "
        "created or registered; ask again when that is decided"
    )
    return denied(candidate, "being_created", reason, "retry")


def table_dropped(candidate: Candidate, record: TableRecord) -> Verdict:
    """Return the denial of a proposal for a dropped table; a repeated drop is answered as done.

    Another table at its root gets another id, so that no late proposal for the old one meets it.
    """
    if candidate.proposal is not None and candidate.proposal.kind == "drop":
        version = max(record.published_through, 0)
        return Verdict(candidate, "committed", version=version, repeat=True)
    reason = (
        f"table: {record.table} at {record.table_root} was dropped; take another root, or register "
        "another table that was made there"
    )
    return denied(candidate, "table_dropped", reason)


def registered_before(candidate: Candidate, record: TableRecord) -> Verdict:
    """Return the answer to a request to register a table that is registered, or was dropped."""
    if record.status == "dropped":
        return table_dropped(candidate, record)
    version = max(record.published_through, 0)
    return Verdict(candidate, "committed", version=version, repeat=True)


def _exists(candidate: Candidate, other: TableRecord) -> Verdict:
    rejection = Rejection(
        rule="table_exists",
        reason=f"table_root: {other.table_root} is registered as {other.name!r} under {other.table}"
        "; propose under that id",
        advice="fix",
        error_class="DELTA_TABLE_ALREADY_EXISTS",
        field="table_root",
        winner_version=0,
    )
    return Verdict(candidate, "denied", rejection=rejection)


def _free_name(proposal: Proposal, registry: RegisteredTables) -> str:
    name = decoded_root(proposal.table_root).rpartition("/")[2][:NAME_CHARS_MAX]
    taken = {table.name for table in registry.tables.values()}
    return f"{name}-{proposal.table.hex[-8:]}" if name in taken else name


def _is_name(name: str) -> bool:
    """Whether a name is one word, or the three parts of a catalog's name."""
    parts = name.split(".")
    is_clean = all(part and part == part.strip() and not _UNFIT.search(part) for part in parts)
    return is_clean and len(parts) in NAME_PARTS


def _root_problem(root: str) -> str | None:
    """Return why no table can have this root, or None."""
    try:
        canonical = canonical_root(root)
    except Misconfigured:
        return (
            "is no place for tables; use file:///…, s3://…, gs://… or "
            "abfss://container@account.dfs.core.windows.net/…"
        )
    if canonical != root:
        return f"is not in the registry's form, which is {canonical[:256]}; use this one"
    path = decoded_root(root).encode()
    if len(path) > ROOT_BYTES_MAX or max(map(len, path.split(b"/"))) > STEP_BYTES_MAX:
        return (
            f"{root[:256]} is longer than {ROOT_BYTES_MAX} bytes, or a folder of it longer than "
            f"{STEP_BYTES_MAX}; choose a shorter one"
        )
    return None


def _proposal(candidate: Candidate) -> Proposal:
    assert candidate.proposal is not None, "only proposals register tables"
    return candidate.proposal

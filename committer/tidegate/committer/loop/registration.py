"""Registration: which tables the committer serves, and under which name.

A table is registered by the proposal that creates it, once version 0 stands in its log, or by a
proposal of kind `register`, which writes nothing to the log. Here is what is asked before.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from tidegate.committer.judging.verdicts import Verdict, denied
from tidegate.committer.proposals.candidate import Candidate
from tidegate.delta.errors import Misconfigured, TidegateError, Unavailable
from tidegate.pipeline.outcome import Rejection
from tidegate.pipeline.proposal import Proposal
from tidegate.pipeline.published import TableRecord
from tidegate.runtime.stores.paths import canonical_root

NAME_CHARS_MAX: Final = 255
ROOT_BYTES_MAX: Final = 768
STEP_BYTES_MAX: Final = 255
"""What the names of stores hold, with room for those of a table's files: a root beyond that could
never be opened, and who wants a table there would wait for ever."""

NAME_PARTS: Final = (1, 3)
"""A name is `table`, or `catalog.schema.table`."""

_UNFIT: Final = re.compile(r"[\x00-\x1f\x7f/`]")


@dataclass(frozen=True)
class Known:
    """Every registered table, of all topic partitions, and where tables may lie."""

    tables: Mapping[UUID, TableRecord]
    roots: Iterable[str]

    def under(self, root: str) -> TableRecord | None:
        """Return the table registered at a root, or None."""
        return next((one for one in self.tables.values() if one.table_root == root), None)


def objection(candidate: Candidate, known: Known) -> Verdict | None:
    """Return why a table may not be registered, or None.

    What is answered here promises nothing, for no log was read that could keep the promise: who
    made the table at the root may ask again, whose answer was lost before it was registered.
    """
    proposal = _proposal(candidate)
    root = proposal.table_root
    other = known.under(root)
    if other is not None and other.status == "dropped":
        return dropped(candidate, other)
    if other is not None and other.status == "staged":
        if other.table != proposal.table:
            reason = f"table_root: {root} is given out to {other.table}; take another root"
            return denied(candidate, "root_given_out", reason)
    elif other is not None:
        return _exists(candidate, other)
    if not _is_canonical(root):
        reason = (
            "table_root: is not spelled as the registry spells roots; use file:///…, s3://…, "
            "gs://… or abfss://container@account.dfs.core.windows.net/…"
        )
        return denied(candidate, "bad_root", reason)
    if len(root.encode()) > ROOT_BYTES_MAX or _longest_step(root) > STEP_BYTES_MAX:
        reason = (
            f"table_root: {root[:256]} is longer than {ROOT_BYTES_MAX} bytes, or a folder of it "
            f"longer than {STEP_BYTES_MAX}; choose a shorter one"
        )
        return denied(candidate, "bad_root", reason)
    if not any(_lies_under(root, prefix) for prefix in known.roots):
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
    # Who asks for the name of a dropped table moves it, or makes it anew: he gets the name.
    if name is not None and any(
        one.name == name and one.table != proposal.table and one.status != "dropped"
        for one in known.tables.values()
    ):
        reason = f"name: {name!r} is another table's; choose another"
        return denied(candidate, "name_taken", reason)
    return None


def new_record(candidate: Candidate, known: Known, topic: str, partition: int) -> TableRecord:
    """Return the registration of a table of which nothing has been told."""
    proposal = _proposal(candidate)
    staged = known.tables.get(proposal.table)
    promised = staged.name if staged is not None else None
    return TableRecord(
        table=proposal.table,
        table_root=proposal.table_root,
        name=proposal.name or promised or _free_name(proposal, known),
        proposals_topic=topic,
        topic_partition=partition,
    )


def named_once(record: TableRecord, known: Known) -> TableRecord:
    """Return the registration of a table that came to be, under a name that no other table has.

    Of two tables of one name nobody could say which he means, and they would have one change topic:
    who got it first, by another committer, keeps it.
    """
    others = (one for one in known.tables.values() if one.table != record.table)
    if all(one.name != record.name or one.status == "dropped" for one in others):
        return record
    suffix = f"-{record.table.hex[-8:]}"
    name = record.name[: NAME_CHARS_MAX - len(suffix)] + suffix
    return record.model_copy(update={"name": name})


def unfit(candidate: Candidate, error: TidegateError) -> Verdict:
    """Return the answer to a table whose store cannot be opened, or may not hold one."""
    if isinstance(error, Unavailable):
        return denied(candidate, error.error_class, f"table_root: {error}", "retry")
    rule = "bad_root" if error.error_class == "Misconfigured" else error.error_class
    return denied(candidate, rule, f"table_root: {error}")


def nobody(candidate: Candidate) -> TableRecord:
    """Return a registration for an answer about a table that has none."""
    return TableRecord(
        table=candidate.table,
        table_root="unknown://-",
        name="-",
        proposals_topic="-",
        topic_partition=0,
    )


def halted(candidate: Candidate, why: str) -> Verdict:
    """Return the answer to a proposal for a table whose log cannot be served."""
    reason = f"table: it is halted, for its log cannot be served: {why}"
    return denied(candidate, "table_halted", reason, "retry")


def unknown_table(candidate: Candidate) -> Verdict:
    """Return the answer to a proposal for a table that nobody registered here."""
    return denied(
        candidate,
        "unknown_table",
        f"table: {candidate.table} is not registered on this topic partition; create it, or run "
        "`tidegate table register`, and propose under the id that the registry gives",
    )


def under_way(candidate: Candidate) -> Verdict:
    """Return the answer to a request about a root where a table is just being created."""
    reason = (
        f"table_root: a table is being created at {_proposal(candidate).table_root}; ask again "
        "when that is settled"
    )
    return denied(candidate, "being_created", reason, "retry")


def is_named_so(wrong: Verdict | None, names: Collection[str]) -> bool:
    """Return whether a table may not be registered because another has its name, one of some."""
    if wrong is None or wrong.rejection is None or wrong.rejection.rule != "name_taken":
        return False
    return _proposal(wrong.candidate).name in names


def name_under_way(candidate: Candidate) -> Verdict:
    """Return the answer to who asks for a name that a table would have that may not come to be."""
    reason = (
        f"name: {_proposal(candidate).name!r} is to be another table's, which is just being "
        "created or registered; ask again when that is settled"
    )
    return denied(candidate, "being_created", reason, "retry")


def dropped(candidate: Candidate, record: TableRecord) -> Verdict:
    """Return the answer to a proposal for a table that was dropped: its root stays given out.

    Its log may still be there, and who comes late with a proposal for it must not meet another one.
    To drop it again is no error.
    """
    if candidate.proposal is not None and candidate.proposal.kind == "drop":
        version = max(record.published_through, 0)
        return Verdict(candidate, "committed", version=version, repeat=True)
    reason = f"table: {record.table} at {record.table_root} was dropped; take another root"
    return denied(candidate, "table_dropped", reason)


def is_there(candidate: Candidate, record: TableRecord) -> Verdict:
    """Return the answer to who would register a table that is registered, or was dropped."""
    if record.status == "dropped":
        return dropped(candidate, record)
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


def _free_name(proposal: Proposal, known: Known) -> str:
    name = proposal.table_root.rpartition("/")[2][:NAME_CHARS_MAX]
    taken = {one.name for one in known.tables.values()}
    return f"{name}-{proposal.table.hex[-8:]}" if name in taken else name


def _is_name(name: str) -> bool:
    """Whether a name is one word, or the three parts of a catalog's name."""
    parts = name.split(".")
    is_clean = all(part and part == part.strip() and not _UNFIT.search(part) for part in parts)
    return is_clean and len(parts) in NAME_PARTS


def _is_canonical(root: str) -> bool:
    try:
        return canonical_root(root) == root
    except Misconfigured:
        return False


def _longest_step(root: str) -> int:
    return max(len(step.encode()) for step in root.split("/"))


def _lies_under(root: str, prefix: str) -> bool:
    bare = prefix.rstrip("/")
    return root.startswith(f"{bare}/") or root == bare


def _proposal(candidate: Candidate) -> Proposal:
    assert candidate.proposal is not None, "only proposals register tables"
    return candidate.proposal

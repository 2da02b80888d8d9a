"""Poison: the answer to a record over which the committer died three times in a row.

It is never judged again. Its refusal is written into its table's log, so that no delivery of the
same bytes is ever committed; if even that kills the process, it becomes a dead letter unparsed.
"""

import re
from typing import Final
from uuid import UUID

from tidegate.committer.proposals.candidate import Candidate
from tidegate.committer.proposals.flaws import FAULT, flaw
from tidegate.committer.proposals.intake import Letter, read_identity
from tidegate.delta.commit import sha256
from tidegate.pipeline.outcome import Rejection
from tidegate.runtime.bus import Record
from tidegate.runtime.containment import reason_of

POISON: Final = "poison"

_LOOKS_LIKE: Final = re.compile(rb'"(proposal_id|table)"\s{0,8}:\s{0,8}"([0-9a-fA-F-]{36})"')

_WRONG: Final = flaw(
    POISON,
    "(record)",
    "the committer died three times in a row while it judged this record",
    "have a look at its size and its nesting, and propose the work in another form",
)


def read_poison(record: Record, *, even_refusing_kills: bool) -> Candidate | Letter:
    """Return the refusal of a record, of which only its identity is parsed.

    If that has killed too, nothing is parsed: the identity is what its headers claim, or what looks
    like one in its bytes, and the answer is a denial that promises nothing.
    """
    if not even_refusing_kills:
        return read_identity(record.value, record.offset, _WRONG, record.headers)
    return unparsed(record, _WRONG)


def at_fault(record: Record, error: Exception) -> Letter:
    """Return the dead letter of a record over which the committer failed, and did not die."""
    what = f"the committer failed over this record: {reason_of(error)}"
    remedy = "propose the work in another form, and report it with the traceback in our log"
    return unparsed(record, flaw(FAULT, "(record)", what, remedy))


def unparsed(record: Record, wrong: Rejection) -> Letter:
    """Return the dead letter of a record without parsing it."""
    value = record.value or b""
    seen = {one[1].decode(): one[2] for one in _LOOKS_LIKE.finditer(value)}
    claims = {**seen, **dict(record.headers)}
    proposal, table = (_uuid(claims.get(name, b"")) for name in ("proposal_id", "table"))
    return Letter(wrong.rule, wrong.reason, sha256(value), proposal, table)


def _uuid(value: bytes) -> UUID | None:
    try:
        return UUID(value.decode())
    except ValueError:
        return None

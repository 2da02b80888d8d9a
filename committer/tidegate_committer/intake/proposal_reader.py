"""Read a record of the topic of proposals into a candidate or a dead letter.

A record whose proposal id, table and read version can be read becomes a candidate even if the rest
is malformed. Its `flaw` then decides it: a final refusal.

Fields that this release does not know are refused: one may request a protection. Actions are left
out: PROTOCOL.md lets them have fields that a release does not know.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, get_args
from uuid import UUID

from pydantic import ValidationError

from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.proposal_actions import (
    EMPTY,
    CheckedActions,
    make_fast,
    overfull,
    read_content,
)
from tidegate_committer.intake.refusals import (
    MALFORMED,
    NOT_SUPPORTED,
    TOO_LARGE,
    UNKNOWN_KIND,
    InvalidProposal,
    flaw,
)
from tidegate_committer.intake.row_intents import (
    NO_MOVES,
    Relocations,
    RowDelete,
    check_not_in_actions,
    read_intents,
    read_moves,
)
from tidegate_committer.policy import Policy
from tidegate_delta.errors import MalformedRecord
from tidegate_delta.log import file_names
from tidegate_delta.log.commit import sha256
from tidegate_delta.log.file_names import in_log, staged_version
from tidegate_delta.value_limits import LONG_MAX
from tidegate_messages.codec import (
    FORMATS,
    Headers,
    decode,
    other_format,
    parse_json,
    producer_of,
)
from tidegate_messages.message import Message
from tidegate_messages.metadata_patch import MetadataPatch
from tidegate_messages.outcome import Rejection
from tidegate_messages.proposal import (
    OPERATOR_REQUESTS,
    ROW_INTENT,
    ClaimCheck,
    Proposal,
    ProposalKind,
    ReadSet,
    RowIntent,
    RowMapping,
)
from tidegate_messages.record_headers import passed_on, reply_request

_NAME_CHARS: Final = 64
_OBJECTS: Final[Mapping[type[Message], tuple[str, ...]]] = {
    Proposal: ("operation", "reads", "claim_check", "app_txn", "metadata_patch"),
}
"""The fields of a message that hold one."""

_LISTS: Final[Mapping[type[Message], tuple[str, ...]]] = {
    Proposal: ("app_txns", "dv_intents", "identity_usage", "identity_leases", "row_mapping"),
    RowMapping: ("sources",),
    MetadataPatch: ("changes",),
}
"""The fields of a message that hold a list of them."""


def unknown_field(message: Message, location: str = "") -> Rejection | None:
    """Return the refusal of a message's first unknown field, or None. `location` is its place."""
    if message.model_extra:
        return _refused(message, f"{location}{min(message.model_extra)[:_NAME_CHARS]}")
    kind, fields = type(message), vars(message)
    for name in _OBJECTS.get(kind, ()):
        child = fields[name]
        if child is not None and (child.model_extra or type(child) in _LISTS):
            rejection = unknown_field(child, f"{location}{name}.")
            if rejection is not None:
                return rejection
    for name in _LISTS.get(kind, ()):
        if fields[name]:
            for index, child in enumerate(fields[name]):
                rejection = unknown_field(child, f"{location}{name}[{index}].")
                if rejection is not None:
                    return rejection
    return None


def _refused(message: Message, field: str) -> Rejection:
    kind = type(message)
    if kind is ReadSet:
        # It may say that more was read, and no conflict check would see that.
        problem = f"is not known: a read set has {', '.join(ReadSet.model_fields)}"
        remedy = "correct the name, say `whole_table`, or upgrade the committer"
        return flaw(NOT_SUPPORTED, field, problem, remedy)
    if kind is Proposal:
        problem = f"is not a field of {FORMATS[Proposal]}"
    else:
        problem = f"is not known: there are {', '.join(kind.model_fields)}"
    remedy = "correct the name (the schema lists all fields), or upgrade the committer"
    return flaw(NOT_SUPPORTED, field, problem, remedy)


CLAIM_FOLDER: Final = "_tidegate/proposals/"
STAGED_FOLDER: Final = in_log(file_names.STAGED_FOLDER)
KINDS: Final = frozenset(get_args(ProposalKind))

_REQUESTS: Final = ("cancel", "register", *OPERATOR_REQUESTS)
"""The kinds that propose no content. One with a flaw becomes a dead letter, and is not carried out:
it is no fact of the table's log.
"""

_IDENTITY: Final = ("proposal_id", "table")

_NAMED: Final = {
    name: re.compile(rb'"%b"\s*:\s*"([0-9a-fA-F-]{36})"' % name.encode()) for name in _IDENTITY
}
"""How the bytes of a record name the ids, whatever else is wrong with them."""

NO_INTENTS: Final[tuple[RowDelete, ...]] = ()

QUESTION_BYTES_MAX: Final = 512 * 1024
"""The largest record that asks for the versions of applications."""

UNREAD: Final = 4
"""A record is still parsed up to this many times the allowed size."""


@dataclass(frozen=True)
class DeadLetter:
    """A dead letter: the record's bytes go to the topic `dead-letters`, with the reason.

    If `proposal_id` and `table` could be read from the record or its headers, the writer gets an
    outcome as well.
    """

    rule: str
    reason: str
    sha256: str
    proposal_id: UUID | None = None
    table: UUID | None = None


_NOT_REBASED: Final[Mapping[str, object]] = {
    "came": (),
    "packed": frozenset(),
    "leaving": (),
    "returned": frozenset(),
    "moved_away": (),
    "removed_domains": frozenset(),
}
"""What only a rebase over winners sets."""


def read_record(
    value: bytes | None,
    offset: int,
    policy: Policy,
    headers: Headers = (),
    sent_ms: int | None = None,
) -> Candidate | DeadLetter:
    """Return the candidate that a record proposes, or the dead letter that it becomes.

    What is wrong with a readable proposal is the candidate's `flaw`. A claim check is not read yet:
    `with_claim` adds its actions. A record of many times the allowed size is not parsed.
    Units: `sent_ms`, the timestamp of the record, in ms since the Unix epoch.
    """
    size, digest = len(value or b""), sha256(value or b"")
    if (unread := _unread(value, digest, policy, headers)) is not None:
        return unread
    try:
        proposal = decode(Proposal, value)
    except MalformedRecord as error:
        unreadable = flaw(MALFORMED, error.field, error.what, "write it as its schema says")
        return read_identity(value, offset, unreadable, headers)
    content, moves, intents = EMPTY, NO_MOVES, NO_INTENTS
    if (rejection := _problem(proposal, size, policy)) is None:
        try:
            content, moves, intents = _content_of(proposal, policy)
        except InvalidProposal as error:
            rejection = error.rejection
    if rejection is not None and proposal.kind in _REQUESTS:
        return DeadLetter(
            rejection.rule, rejection.reason, digest, proposal.proposal_id, proposal.table
        )
    is_question = proposal.kind == "app_versions"
    fields = {
        "id": proposal.proposal_id,
        "sha256": digest,
        "offset": offset,
        "table": proposal.table,
        # A question is about the head, whatever version it names.
        "read_version": LONG_MAX if is_question else min(proposal.read_version, LONG_MAX),
        "size": size,
        "proposal": proposal,
        "content": content,
        "flaw": rejection,
        "intents": intents,
        "producer": producer_of(headers),
        "trace": passed_on(headers),
        "tags": None,
        "numbers": None,
        "moves": moves,
        **_NOT_REBASED,
        "sent_ms": sent_ms,
        "is_admin": False,
        "reply": reply_request(headers),
        "files_verified": False,
    }
    return make_fast(Candidate, fields)


def _content_of(
    proposal: Proposal, policy: Policy
) -> tuple[CheckedActions, Relocations, tuple[RowDelete, ...]]:
    """Return a proposal's actions, the rows that it moves, and those that it deletes; without a
    claim check's actions. Raises: InvalidProposal.
    """
    intents = read_intents(proposal.dv_intents, policy) if proposal.dv_intents else NO_INTENTS
    if proposal.claim_check is not None:
        return EMPTY, NO_MOVES, intents
    content = read_content(proposal.actions, policy)
    check_not_in_actions(intents, content)
    return content, read_moves(proposal.row_mapping, content), intents


def _unread(
    value: bytes | None, digest: str, policy: Policy, headers: Headers
) -> DeadLetter | None:
    """Return the dead letter for a record that is not parsed: too large, or of another format."""
    size = len(value or b"")
    if size > UNREAD * policy.record_bytes_max:
        allowed = f"{size} bytes, {policy.record_bytes_max} are allowed"
        reason = f"(record): it is not read, for it has {allowed}"
        return DeadLetter(TOO_LARGE, reason, digest, *_identity(_named_in(value), headers))
    other = other_format(headers, Proposal)
    if other is not None:
        remedy = f"say {FORMATS[Proposal]}, or upgrade the committer"
        reason = f"(header) format: {other!r} is not known; {remedy}"
        return DeadLetter(UNKNOWN_KIND, reason, digest, *_identity(_body(value), headers))
    return None


def _problem(proposal: Proposal, size: int, policy: Policy) -> Rejection | None:
    """Return what is wrong with a proposal apart from its actions, or None."""
    if size > policy.record_bytes_max:
        remedy = "put the actions into a file and give a claim check"
        problem = f"{size} bytes, {policy.record_bytes_max} are allowed"
        return flaw(TOO_LARGE, "(record)", problem, remedy)
    if proposal.kind == "verbatim" and not policy.verbatim:
        problem = "the operator takes no verbatim bytes"
        return flaw("verbatim_not_allowed", "kind", problem, "propose actions")
    if proposal.kind == "app_versions" and size > QUESTION_BYTES_MAX:
        # The answer repeats the names, and must fit into a record of the topic of outcomes.
        problem = f"a question of {size} bytes, {QUESTION_BYTES_MAX} are allowed"
        return flaw(TOO_LARGE, "app_ids", problem, "ask for fewer applications at a time")
    unknown = unknown_field(proposal)
    if unknown is not None:
        return unknown
    if proposal.table_id is None and proposal.read_version >= 0:
        if proposal.kind == "commit":
            problem = "is missing; it says which table `read_version` is a version of"
            remedy = "give metaData.id at that version, or read_version -1 to create a table"
            return flaw(MALFORMED, "table_id", problem, remedy)
    elif proposal.is_create and proposal.table_id is not None:
        problem = f"is {proposal.table_id[:64]!r}, and read_version -1 says that there is no table"
        remedy = "leave it out to create a table, or give the version that was read"
        return flaw(MALFORMED, "table_id", problem, remedy)
    if proposal.claim_check is not None:
        return _claim_problem(proposal, proposal.claim_check, policy)
    return None


def with_claim(candidate: Candidate, content: bytes | str | None, policy: Policy) -> Candidate:
    """Return a candidate with the actions of its claim check's file, or with a flaw.

    `content` is None if there is no file, and a text if the file can't be read: the reason.
    """
    check = candidate.claim
    problem = None
    if content is None:
        problem = "names a file that is not there"
    elif isinstance(content, str):
        problem = f"names what cannot be read: {content}"
    elif len(content) != check.size:
        has = "more" if len(content) > check.size else str(len(content))
        problem = f"says {check.size} bytes, the file has {has}"
    elif sha256(content) != check.sha256:
        problem = "has another sha256 than the file"
    if problem or not isinstance(content, bytes):
        remedy = "write the file first, whole, and propose again"
        return replace(candidate, flaw=flaw("claim_check", "claim_check", str(problem), remedy))
    size = candidate.size + len(content)
    crowd = overfull(content, policy)
    if crowd is not None:
        return replace(candidate, size=size, flaw=crowd)
    try:
        row_intents: list[RowIntent] = []
        claimed = read_content(_actions(content, row_intents), policy)
        intents = read_intents(row_intents, policy)
        check_not_in_actions(intents, claimed)
        mapping = candidate.proposal.row_mapping if candidate.proposal else ()
        moves = read_moves(mapping, claimed)
        return replace(candidate, size=size, content=claimed, intents=intents, moves=moves)
    except InvalidProposal as error:
        return replace(candidate, size=size, flaw=error.rejection)


def needs_claim(candidate: Candidate) -> bool:
    """Return whether the actions are in a file that has not been read yet."""
    if candidate.flaw is not None or candidate.content is not EMPTY:
        return False
    return candidate.proposal is not None and candidate.proposal.claim_check is not None


def full_size(candidate: Candidate) -> int:
    """Return the size of a candidate with its claim check's file, read or not. In bytes."""
    claimed = needs_claim(candidate) and candidate.proposal and candidate.proposal.claim_check
    return candidate.size + (claimed.size if claimed else 0)


def _actions(content: bytes, row_intents: list[RowIntent]) -> Iterator[dict[str, Any]]:
    """Yield the actions of a claim check's file, and append its row intents to `row_intents`.

    Raises: InvalidProposal, for a line that is neither.
    """
    for line in content.split(b"\n"):
        if not line.strip():
            continue
        try:
            row = parse_json(line)
        except MalformedRecord as error:
            problem = f"the file holds a line that is no action: {error}"
            remedy = "write newline-delimited JSON, an action a line"
            raise InvalidProposal(flaw(MALFORMED, "claim_check", problem, remedy)) from error
        if ROW_INTENT in row:
            row_intents.append(_intent(row[ROW_INTENT]))
        else:
            yield row


def _intent(body: Any) -> RowIntent:
    try:
        intent = RowIntent.model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        problem = f"the file holds a row intent that is none: {first['msg']}"
        remedy = "write it as the schema of proposals says"
        raise InvalidProposal(flaw(MALFORMED, "claim_check", problem, remedy)) from error
    unknown = unknown_field(intent, "claim_check.dv_intent.")
    if unknown is not None:
        raise InvalidProposal(unknown)
    return intent


def _claim_problem(proposal: Proposal, check: ClaimCheck, policy: Policy) -> Rejection | None:
    expected = f"{CLAIM_FOLDER}{proposal.proposal_id}.ndjson"
    is_there = check.path == expected
    if proposal.kind == "verbatim":
        expected = f"{STAGED_FOLDER}/{proposal.exact_version:020d}.<uuid>.json"
        folder, _, name = check.path.rpartition("/")
        is_there = folder == STAGED_FOLDER and staged_version(name) == proposal.exact_version
    if not is_there:
        problem = f"{check.path[:128]!r} is not where claim checks lie"
        return flaw("claim_check", "claim_check.path", problem, f"name {expected}")
    if check.size > policy.claim_bytes_max:
        problem = f"{check.size} bytes, {policy.claim_bytes_max} are allowed"
        return flaw(TOO_LARGE, "claim_check.size", problem, "propose it in several steps")
    return None


def read_identity(
    value: bytes | None, offset: int, rejection: Rejection, headers: Headers = ()
) -> Candidate | DeadLetter:
    """Return a candidate that has only a record's identity, with `rejection` as its flaw.

    If the identity can't be read, or the record is no commit, return a dead letter.
    """
    digest = sha256(value or b"")
    try:
        body = parse_json(value)
    except MalformedRecord:
        named = _identity(_named_in(value), headers)
        return DeadLetter(rejection.rule, rejection.reason, digest, *named)
    identity = _identity(body, headers)
    kind, read_version = body.get("kind", "commit"), body.get("read_version")
    if not isinstance(kind, str) or kind not in KINDS:
        remedy = f"say {', '.join(get_args(ProposalKind))}, or upgrade the committer"
        reason = f"kind: {str(kind)[:64]!r} is not known; {remedy}"
        return DeadLetter(UNKNOWN_KIND, reason, digest, *identity)
    readable = type(read_version) is int and -1 <= read_version <= LONG_MAX
    if kind != "commit" or None in _identity(body) or not readable:
        return DeadLetter(rejection.rule, rejection.reason, digest, *identity)
    return Candidate(
        id=UUID(str(body["proposal_id"])),
        sha256=digest,
        offset=offset,
        table=UUID(str(body["table"])),
        read_version=int(str(read_version)),
        size=len(value or b""),
        flaw=rejection,
        producer=producer_of(headers),
        trace=passed_on(headers),
        reply=reply_request(headers),
    )


def _body(value: bytes | None) -> Mapping[str, Any]:
    try:
        return parse_json(value)
    except MalformedRecord:
        return _named_in(value)


def _named_in(value: bytes | None) -> Mapping[str, str]:
    """Return the ids that the bytes of a record that is no JSON name, each if it names only one.

    The writer finds the outcome of its record by them. They decide nothing else.
    """
    found = ((name, set(pattern.findall(value or b""))) for name, pattern in _NAMED.items())
    return {name: ids.pop().decode("ascii") for name, ids in found if len(ids) == 1}


def _identity(body: Mapping[str, Any], headers: Headers = ()) -> tuple[UUID | None, UUID | None]:
    """Return the ids of a record's proposal and table, from its body or else from its headers."""
    ids = {name: value.decode("ascii", "replace") for name, value in headers if name in _IDENTITY}
    proposal, table = (_uuid(body, name) or _uuid(ids, name) for name in _IDENTITY)
    return proposal, table


def _uuid(body: Mapping[str, Any], name: str) -> UUID | None:
    try:
        return UUID(body[name])
    except (KeyError, ValueError, TypeError, AttributeError):
        return None

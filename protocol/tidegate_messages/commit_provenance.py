"""Provenance: the object `tidegate` in the commitInfo of an entry that the committer wrote.

From it the committer recovers which proposals the entry accepted and which it refused. Readers of
the table ignore it, as every field of commitInfo that they do not know.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, Final
from uuid import UUID

import orjson
from pydantic import JsonValue, NonNegativeInt, ValidationError

from tidegate_delta.log.commit import Commit
from tidegate_messages.message import Message
from tidegate_messages.outcome import Rejection
from tidegate_messages.proposal import IdentityBlock, IdentityUsage, RowMapping, Sha256


class Accepted(Message):
    """A proposal whose actions are in the entry, with the offset and SHA-256 of its record.

    `rows_deleted` counts the rows that it was the first to delete by deletion vectors. `patched`
    says that the entry's metadata comes from its metadata patch. `identity_blocks` are the identity
    values that it leased, `identity_used` those from earlier leases that its files hold.
    `row_mapping` says where its compaction moved rows. `returned` are files that a compaction had
    replaced and that the entry adds again, as they were, because the proposal removes others that
    it had replaced.
    """

    id: UUID
    offset: NonNegativeInt
    sha256: Sha256
    operation: str | None = None
    metrics: Mapping[str, JsonValue] = {}
    rows_deleted: NonNegativeInt | None = None
    patched: bool = False
    identity_blocks: tuple[IdentityBlock, ...] = ()
    identity_used: tuple[IdentityUsage, ...] = ()
    row_mapping: tuple[RowMapping, ...] = ()
    returned: tuple[str, ...] = ()


class Refused(Message):
    """A proposal that will never be in the table.

    `sha256` is absent if the proposal was cancelled: then any bytes under that id are refused.
    """

    id: UUID
    offset: NonNegativeInt
    sha256: Sha256 | None = None
    reason: Rejection


class Provenance(Message):
    """What the committer records in an entry about how it was made.

    `epoch` identifies the assignment of the topic partition, `stream` the topic partition
    (`clusterId/topicId/partition`), `offsets` the first and last record in the entry, `rules` the
    version of the conflict rules. If `accepted` has several proposals, `files_added`,
    `files_removed`, `applications` and `domains` say how many actions each of them contributed: the
    entry holds them in this order. Removes of files that lost rows through row intents come last.
    For each of these, in order, `rows_by` lists the proposals whose rows they were, as indexes into
    `accepted`.
    """

    epoch: UUID
    stream: str
    offsets: tuple[NonNegativeInt, NonNegativeInt]
    rules: int
    accepted: tuple[Accepted, ...] = ()
    refused: tuple[Refused, ...] = ()
    files_added: tuple[NonNegativeInt, ...] = ()
    files_removed: tuple[NonNegativeInt, ...] = ()
    applications: tuple[NonNegativeInt, ...] = ()
    domains: tuple[NonNegativeInt, ...] = ()
    rows_by: tuple[tuple[NonNegativeInt, ...], ...] = ()


_BEFORE_ACCEPTED: Final = ("epoch", "stream", "offsets", "rules")

_IDENTITY: Final = frozenset(
    name for name, field in Accepted.model_fields.items() if field.is_required()
)
"""The fields that identify a proposal. Without them the object is not taken for provenance."""

_COUNTS: Final = Provenance.model_fields.keys() - {*_BEFORE_ACCEPTED, "accepted", "refused"}

_STAND_INS: Final[Mapping[str, JsonValue]] = {
    "epoch": str(UUID(int=0)),
    "stream": "",
    "offsets": [0, 0],
    "rules": 0,
}
"""Placeholders for unreadable fields. With them an entry counts as written by another committer,
under conflict rules that this release does not have.
"""

_UNREAD: Final[Mapping[str, JsonValue]] = {
    "rule": "unknown",
    "reason": "the gate refused it, and this release cannot read why: see the entry itself",
}

_PLAIN: Final = frozenset({str, int, bool, type(None)})
"""Types of metric values that orjson and pydantic write alike."""


def spelled(provenance: Provenance) -> bytes:
    """Return provenance as JSON, without fields that have their default value.

    An entry holds as many proposals as there are concurrent writers, and nearly all set the same
    five fields. These are encoded here directly, for a fifth of what pydantic's serializer costs.
    Law: spelled(p) == p.model_dump_json(exclude_none=True, exclude_defaults=True).encode()
    """
    body = provenance.model_dump(
        mode="json", exclude_none=True, exclude_defaults=True, exclude={"accepted"}
    )
    if not provenance.accepted:
        return orjson.dumps(body)
    accepted = [_accepted_body(proposal) for proposal in provenance.accepted]
    # The fields keep the order in which pydantic's serializer writes them.
    before = {name: body.pop(name) for name in _BEFORE_ACCEPTED if name in body}
    return orjson.dumps({**before, "accepted": accepted, **body})


def _accepted_body(accepted: Accepted) -> Any:
    fields = vars(accepted)
    metrics = fields["metrics"]
    counted = fields["rows_deleted"] is not None or fields["patched"]
    numbered = fields["identity_blocks"] or fields["identity_used"]
    moved = fields["row_mapping"] or fields["returned"]
    if counted or numbered or moved or accepted.model_extra:
        return orjson.Fragment(accepted.model_dump_json(exclude_none=True, exclude_defaults=True))
    if not _PLAIN.issuperset(map(type, metrics.values())):
        return orjson.Fragment(accepted.model_dump_json(exclude_none=True, exclude_defaults=True))
    body = {"id": fields["id"], "offset": fields["offset"], "sha256": fields["sha256"]}
    if fields["operation"] is not None:
        body["operation"] = fields["operation"]
    if metrics:
        body["metrics"] = metrics
    return body


def deleting_proposals(origin: Provenance, removed: Sequence[str], path: str) -> Sequence[int]:
    """Return the proposals that deleted rows of a file which stays, as indexes into `accepted`.

    `removed` are the paths of the removed files in the entry's order, in the same form as `path`.
    The result is empty if the entry does not say.
    """
    if path not in removed:
        return ()
    index = removed.index(path) - sum(origin.files_removed)
    return origin.rows_by[index] if 0 <= index < len(origin.rows_by) else ()


def of(commit: Commit) -> Provenance | None:
    """Return the provenance of an entry, or None for a version that another program wrote."""
    content = commit.info.tidegate if commit.info else None
    if content is None:
        return None
    try:
        return Provenance.model_validate(content)
    except ValidationError as error:
        return _readable_part(content, error)


def _readable_part(content: Any, error: ValidationError) -> Provenance | None:
    """Return provenance without the fields that are unreadable, or None if it is not ours.

    Another release may write fields differently. Which proposals the entry accepted and refused
    must be known all the same: a proposal that is sent again would be committed twice. Unreadable
    other fields are left out, which is the safe reading of each. Any writer may use this field
    name.
    """
    known = deepcopy(content)
    for fault in error.errors(include_url=False, include_context=False, include_input=False):
        match fault["loc"]:
            case ("accepted", int(), str(name), *_) if name not in _IDENTITY:
                known["accepted"][fault["loc"][1]].pop(name, None)
            case ("refused", int(index), "reason", *_):
                known["refused"][index]["reason"] = _readable(
                    content["refused"][index].get("reason")
                )
            case (str(name), *_) if name in _STAND_INS:
                known[name] = _STAND_INS[name]
            case (str(name), *_) if name in _COUNTS:
                # The counts refer to one another, so none is usable without the others.
                known = {key: value for key, value in known.items() if key not in _COUNTS}
            case _:
                return None
    try:
        provenance = Provenance.model_validate(known)
    except ValidationError:
        return None
    return provenance if provenance.accepted or provenance.refused else None


def _readable(reason: Any) -> Mapping[str, JsonValue]:
    """Return the readable part of a refusal reason that another release wrote."""
    fields = reason if isinstance(reason, dict) else {}
    return {
        **_UNREAD,
        **{name: fields[name] for name in _UNREAD if isinstance(fields.get(name), str)},
    }

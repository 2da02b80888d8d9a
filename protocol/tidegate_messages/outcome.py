"""An outcome: committed, rejected, expired, denied, answered. The record of the topic `outcomes`.

`committed` and `rejected` are final. `expired` and `denied` promise nothing about another delivery
of the same proposal. `answered` is the answer to a question, which changes nothing.
"""

from collections.abc import Mapping
from typing import Literal
from uuid import UUID

from pydantic import JsonValue, NonNegativeInt

from tidegate_messages.message import Message
from tidegate_messages.proposal import Sha256

Status = Literal["committed", "rejected", "expired", "denied", "answered"]
ClientAdvice = Literal["retry", "resend", "rebase", "rerun", "fix", "skip"]


class Rejection(Message):
    """Why a proposal was not committed, and what its writer can do.

    `rule` is the rule's name (`concurrent_append`, `malformed`, `deadline_passed`). `error_class`
    and `exception` are delta-spark's names for it, if it has them. `advice`: `retry` the same bytes
    later, `resend` them at once to where they belong (`topic_partition` or `topic`), `rebase` on
    the new snapshot, `rerun` the operation on the newest version, `fix` the request, or `skip` the
    work, which the table has by its application's version. `field` is the proposal's field that is
    wrong.

    A conflict names its cause: `winner_version`, and what both commits touch: the file at `path`,
    with the index in `reads.predicates` of the `predicate` that may match its rows; the metadata
    `domain`; or the application `app_id`. `winner_proposal_id` is set if it is certain which
    proposal of that version won: the only one, the one that brought this file, domain or
    application, or one of the same group. `head_version` is the table's version, for a verbatim
    entry that came too late and for an application. `app_version` is the version of `app_id` that
    the table has, and `expected_app_version` the one that the proposal expected; -1 is none.
    `topic_partition` is the table's own, if the proposal came on another one: send the same bytes
    there, and read the outcome from the partition of that number. `topic` is the one that takes
    this kind, if the proposal came on another one: send the same bytes to the same number of it.
    """

    rule: str
    reason: str
    advice: ClientAdvice = "rerun"
    error_class: str | None = None
    exception: str | None = None
    winner_version: int | None = None
    winner_proposal_id: str | None = None
    head_version: int | None = None
    field: str | None = None
    path: str | None = None
    predicate: NonNegativeInt | None = None
    domain: str | None = None
    app_id: str | None = None
    app_version: int | None = None
    expected_app_version: int | None = None
    topic_partition: NonNegativeInt | None = None
    topic: str | None = None


class Outcome(Message):
    """The answer to one delivery of a proposal.

    `proposal_sha256` and `offset` are those of the answered record. Writers check that the hash is
    of their bytes. `repeat` says that the same answer was given before, or is in the log.
    `sub_index` is the proposal's index among those of its version, from 0. `assigned` is what the
    committer added: `base_row_ids` of new files by path (not in a repeat: the log has them);
    `deletion_vectors` of files that lost rows, by path, and `rows_deleted`, how many rows it was
    the first to delete; `identity`, the blocks of values that it leased; `moved`, files with its
    row intents that a compaction had moved. `left_out` names what is too large for a record: the
    log has it. `app_versions` answers the kind `app_versions`: each application's version in the
    table, -1 if it has none, as of the table's `version`.
    `warnings` say what was committed with less protection than its writer may think, and which
    headers could not be heeded.
    Units: `in_commit_timestamp` and `decided_ms` in ms since the Unix epoch.
    """

    proposal_id: UUID
    proposal_sha256: Sha256
    table: UUID
    status: Status
    repeat: bool = False
    offset: int | None = None
    version: int | None = None
    sub_index: int | None = None
    in_commit_timestamp: int | None = None
    rejection: Rejection | None = None
    assigned: Mapping[str, JsonValue] = {}
    app_versions: Mapping[str, int] | None = None
    warnings: tuple[str, ...] | None = None
    decided_ms: int | None = None

"""An outcome: committed, rejected, expired or denied. The record of the topic `outcomes`.

`committed` and `rejected` are promises; `expired` and `denied` say nothing about other deliveries
of the same proposal.
"""

from collections.abc import Mapping
from typing import Literal
from uuid import UUID

from pydantic import JsonValue, NonNegativeInt

from tidegate.pipeline.message import Message
from tidegate.pipeline.proposal import Sha256

Status = Literal["committed", "rejected", "expired", "denied"]
Advice = Literal["retry", "rebase", "rerun", "fix"]


class Rejection(Message):
    """Why a proposal was not committed, and what its writer may do.

    `rule` is the rule's name in the code (`concurrent_append`, `malformed`, `deadline_passed`);
    `error_class` and `exception` are delta-spark's names where it has one. `advice`: `retry` the
    same bytes later, `rebase` on the new snapshot, `rerun` the work, or `fix` the request.
    A conflict names what both are about, where it is about one thing: the file at `path`, with the
    place in `reads.predicates` of the `predicate` that may match its rows; the metadata domain; or
    the application `app_id`. `winner_proposal_id` is told where the winner's version holds that
    proposal alone, or tells that this file, domain or application is its own (of a file that lost
    rows: that nobody else in it deleted any), or where both came in one group; `head_version` is
    told to who came too late with ready bytes.
    """

    rule: str
    reason: str
    advice: Advice = "rerun"
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


class Outcome(Message):
    """The answer to one delivery of a proposal.

    `proposal_sha256` is of the record's value that is answered; writers check that it is theirs.
    `offset` is of that record. `sub_index` is the proposal's place in its group, from 0.
    `assigned` is what the committer settled: `base_row_ids` of new files by path (told once, not in
    a repeat: the entry has them), `deletion_vectors` of files that lost rows by path and how many
    rows were still there (`rows_deleted`), `identity`, the blocks that a lease got. What is too
    much for a record is named in `left_out`, and stands in the entry alone.
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
    decided_ms: int | None = None

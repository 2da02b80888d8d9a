"""Row intents, checked as far as that is possible without the table."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from tidegate_committer.intake import path_checks
from tidegate_committer.intake.proposal_actions import CheckedActions, canonical
from tidegate_committer.intake.refusals import BAD_PATH, DUPLICATE, MALFORMED, TOO_LARGE, refuse
from tidegate_committer.policy import Policy
from tidegate_delta.deletion_vectors.descriptors import INLINE, frame_of, inline_rows, path_of
from tidegate_delta.deletion_vectors.roaring_bitmap import Bitmap
from tidegate_delta.log.actions import DeletionVector
from tidegate_messages.proposed_actions import RowsToDelete
from tidegate_messages.row_intent import RowIntent

_SPELLING: Final = "write the vector as PROTOCOL.md spells a descriptor"


@dataclass(frozen=True)
class RowDelete:
    """Rows of one file that a proposal deletes.

    `path` is canonical. `base` is the unique id of the file's deletion vector at the read version,
    `vector` the descriptor of the rows, and `inline` the rows themselves if the vector is inline.
    `has_moved` says that `path` is the new file to which a compaction moved the rows.
    """

    path: str
    base: str | None
    vector: DeletionVector
    inline: Bitmap | None
    num_records: int
    is_update: bool
    has_moved: bool = False


def read_intents(row_intents: Sequence[RowIntent], policy: Policy) -> tuple[RowDelete, ...]:
    """Return a proposal's checked intents.

    Raises: InvalidProposal, for the first that is refused.
    """
    if len(row_intents) > policy.actions_max:
        problem = f"more than {policy.actions_max} files"
        refuse(TOO_LARGE, "dv_intents", problem, "propose them in several steps")
    intents: dict[str, RowDelete] = {}
    size = 0
    for index, row_intent in enumerate(row_intents):
        intent = _read(row_intent, f"dv_intents[{index}]")
        if intents.setdefault(intent.path, intent) is not intent:
            problem = f"{intent.path[:128]!r} stands there twice"
            refuse(DUPLICATE, "dv_intents", problem, "give each file once", path=intent.path)
        size += intent.vector.size_in_bytes
        if size > policy.vector_bytes_max:
            problem = f"vectors of more than {policy.vector_bytes_max} bytes"
            refuse(TOO_LARGE, "dv_intents", problem, "propose them in several steps")
    return tuple(intents.values())


def check_apart(intents: Sequence[RowDelete], content: CheckedActions) -> None:
    """Refuse a row delete of a file that the actions add or remove. Raises: InvalidProposal."""
    if not intents:
        return
    acted_on = content.removed.union(path for path, _ in content.added)
    for intent in intents:
        if intent.path in acted_on:
            problem = f"{intent.path[:128]!r} stands among the actions, too"
            refuse(DUPLICATE, "dv_intents", problem, "give each file once", path=intent.path)


def _read(row_intent: RowIntent, location: str) -> RowDelete:
    mistake = path_checks.wrong_with_old(row_intent.path)
    if mistake:
        remedy = "name a file below the table root, percent-encoded once"
        problem = f"{row_intent.path[:128]!r} {mistake}"
        refuse(BAD_PATH, f"{location}.path", problem, remedy, path=row_intent.path[:1024])
    vector = _vector(row_intent, f"{location}.rows")
    if vector.cardinality > row_intent.num_records:
        problem = f"says {vector.cardinality} rows, of {row_intent.num_records}"
        refuse(
            MALFORMED,
            f"{location}.rows.cardinality",
            problem,
            "name rows of the file only",
        )
    inline = None
    try:
        if vector.storage_type == INLINE:
            inline = inline_rows(vector)
        else:
            path_of(vector)
            frame_of(vector)
    except ValueError as error:
        refuse(MALFORMED, f"{location}.rows", str(error), _SPELLING)
    return RowDelete(
        path=canonical(row_intent.path),
        base=row_intent.base,
        vector=vector,
        inline=inline,
        num_records=row_intent.num_records,
        is_update=row_intent.op == "update",
    )


def _vector(row_intent: RowIntent, location: str) -> DeletionVector:
    try:
        return RowsToDelete.model_validate(
            row_intent.rows, strict=True, by_alias=True, by_name=False
        )
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = "".join(f".{str(part)[:64]}" for part in first["loc"])
        refuse(MALFORMED, f"{location}{field}", first["msg"], _SPELLING)

"""Row intents, checked as far as that is possible without the table."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from tidegate_committer.intake import path_checks
from tidegate_committer.intake.proposal_actions import CheckedActions, canonical
from tidegate_committer.intake.refusals import BAD_PATH, DUPLICATE, MALFORMED, TOO_LARGE, refuse
from tidegate_committer.policy import Policy
from tidegate_delta.deletion_vectors.descriptors import (
    INLINE,
    RELATIVE,
    frame_of,
    inline_rows,
    path_of,
)
from tidegate_delta.deletion_vectors.roaring_bitmap import Bitmap
from tidegate_delta.log.actions import DeletionVector
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


def read_intents(stated: Sequence[RowIntent], policy: Policy) -> tuple[RowDelete, ...]:
    """Return a proposal's checked intents.

    Raises: InvalidProposal, for the first that is refused.
    """
    if len(stated) > policy.actions_max:
        what = f"more than {policy.actions_max} files"
        refuse(TOO_LARGE, "dv_intents", what, "propose them in several steps")
    found: dict[str, RowDelete] = {}
    size = 0
    for index, one in enumerate(stated):
        intent = _read(one, f"dv_intents[{index}]")
        if found.setdefault(intent.path, intent) is not intent:
            what = f"{intent.path[:128]!r} stands there twice"
            refuse(DUPLICATE, "dv_intents", what, "give each file once", path=intent.path)
        size += intent.vector.size_in_bytes
        if size > policy.vector_bytes_max:
            what = f"vectors of more than {policy.vector_bytes_max} bytes"
            refuse(TOO_LARGE, "dv_intents", what, "propose them in several steps")
    return tuple(found.values())


def check_apart(intents: Sequence[RowDelete], content: CheckedActions) -> None:
    """Refuse a row delete of a file that the actions add or remove. Raises: InvalidProposal."""
    if not intents:
        return
    acted_on = content.removed.union(path for path, _ in content.added)
    for intent in intents:
        if intent.path in acted_on:
            what = f"{intent.path[:128]!r} stands among the actions, too"
            refuse(DUPLICATE, "dv_intents", what, "give each file once", path=intent.path)


def _read(stated: RowIntent, where: str) -> RowDelete:
    wrong = path_checks.wrong_with_old(stated.path)
    if wrong:
        remedy = "name a file below the table root, percent-encoded once"
        what = f"{stated.path[:128]!r} {wrong}"
        refuse(BAD_PATH, f"{where}.path", what, remedy, path=stated.path[:1024])
    vector = _vector(stated, f"{where}.rows")
    if not 0 < vector.cardinality <= stated.num_records:
        what = f"says {vector.cardinality} rows, of {stated.num_records}"
        refuse(MALFORMED, f"{where}.rows.cardinality", what, "delete one row at least, of the file")
    inline = None
    try:
        if vector.storage_type == INLINE:
            inline = inline_rows(vector)
        else:
            path_of(vector)
            frame_of(vector)
    except ValueError as error:
        refuse(MALFORMED, f"{where}.rows", str(error), _SPELLING)
    return RowDelete(
        path=canonical(stated.path),
        base=stated.base,
        vector=vector,
        inline=inline,
        num_records=stated.num_records,
        is_update=stated.op == "update",
    )


def _vector(stated: RowIntent, where: str) -> DeletionVector:
    try:
        vector = DeletionVector.model_validate(
            stated.rows, strict=True, by_alias=True, by_name=False
        )
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = "".join(f".{str(part)[:64]}" for part in first["loc"])
        refuse(MALFORMED, f"{where}{field}", first["msg"], _SPELLING)
    if vector.storage_type not in (INLINE, RELATIVE):
        what = f"is {vector.storage_type[:16]!r}, so it may lie outside of the table"
        refuse(MALFORMED, f"{where}.storageType", what, "write the rows inline, or below the root")
    return vector

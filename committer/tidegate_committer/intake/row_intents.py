"""What a proposal does to single rows, checked as far as that is possible without the table.

Row intents: the rows of files to delete. Relocations: where a compaction moved the rows of files,
so that it and row deletes both commit.

Row i of an old file, with k rows before it deleted when the compaction read it, is row
`offset` + i - k of the new file. So a delete that conflicts with a compaction is committed with its
row numbers mapped, and a compaction that conflicts with a delete adds its file with these rows
deleted. docs/adr/0022 has the proof.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

from pydantic import ValidationError

from tidegate_committer.intake import path_checks
from tidegate_committer.intake.proposal_actions import CheckedActions, canonical, vector_text
from tidegate_committer.intake.refusals import BAD_PATH, DUPLICATE, MALFORMED, TOO_LARGE, refuse
from tidegate_committer.policy import Policy
from tidegate_delta.deletion_vectors.descriptors import INLINE, frame_of, inline_rows, path_of
from tidegate_delta.deletion_vectors.roaring_bitmap import NO_ROWS, Bitmap, of_rows
from tidegate_delta.features.row_tracking import physical_records
from tidegate_delta.log.actions import Add, DeletionVector, Remove
from tidegate_delta.log.file_paths import encoded_path
from tidegate_messages.commit_provenance import Provenance
from tidegate_messages.proposal import RowIntent, RowMapping, Source
from tidegate_messages.proposed_actions import RowsToDelete

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


def check_not_in_actions(intents: Sequence[RowDelete], content: CheckedActions) -> None:
    """Refuse a row delete of a file that the actions add or remove. Raises: InvalidProposal."""
    if not intents:
        return
    acted_on = content.removed.union(path for path, _ in content.added)
    for intent in intents:
        if intent.path in acted_on:
            problem = f"{intent.path[:128]!r} stands among the actions, too"
            refuse(DUPLICATE, "dv_intents", problem, "give each file once", path=intent.path)


def _read(row_intent: RowIntent, location: str) -> RowDelete:
    mistake = path_checks.existing_path_problem(row_intent.path)
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


SOURCES_MAX: Final = 4_096
"""Most old files in the row mappings of a proposal."""

ROWS_MAX: Final = 200_000
"""Most deleted rows that are mapped one by one: a larger delete is better run again."""


@dataclass(frozen=True)
class Relocation:
    """Where the rows of a file went: into `target`, which has `total` rows, from `offset` on.

    `base` is the deletion vector that the file had when the compaction read it, `gone` the one with
    which it was removed. `rows` is the number of rows of the file without those in `base`.
    """

    target: str
    offset: int
    rows: int
    total: int
    base: DeletionVector | None
    gone: DeletionVector | None

    @property
    def num_records(self) -> int:
        """The number of rows in the file, deleted ones included."""
        return self.rows + (self.base.cardinality if self.base else 0)


Relocations = Mapping[str, Relocation]
"""Canonical path of a removed file -> where its rows went."""

NO_MOVES: Final[Relocations] = {}


def moved_rows(rows: Bitmap, move: Relocation, base: Bitmap) -> Bitmap:
    """Return rows of a removed file as rows of the file that holds them now.

    `base` are the rows that were already deleted when the compaction read the file: the new file
    lacks them.
    Law: len(moved_rows(r, m, b)) == len(r - b); order is kept
    """
    if not base:
        return rows.shift(move.offset)
    return of_rows(_moved(rows - base, move.offset, iter(base)))


def _moved(rows: Iterable[int], offset: int, base: Iterator[int]) -> Iterator[int]:
    before, next_gone = 0, next(base, None)
    for row in rows:
        while next_gone is not None and next_gone < row:
            before, next_gone = before + 1, next(base, None)
        yield offset + row - before


@dataclass(frozen=True)
class MovedRows:
    """Rows that compactions moved: those from `start` to before `stop` of a file of `total` rows.

    `before` is where they were one compaction earlier; the last one of the chain is the whole file
    that a proposal named. There, `vector` is the deletion vector with which that file was removed,
    as `vector_text` writes it.
    """

    path: str
    start: int
    stop: int
    total: int
    vector: str | None = None
    before: "MovedRows | None" = None

    @property
    def rows(self) -> Bitmap:
        """The rows as a set."""
        return Bitmap(range(self.start, self.stop))

    @property
    def origin(self) -> "MovedRows":
        """The whole file that held them at first."""
        return self if self.before is None else self.before.origin


@dataclass(frozen=True)
class MovedRemoval:
    """A file that a proposal removes, where a compaction has moved its rows to."""

    remove: Remove
    rows: MovedRows


def moved_file(path: str, move: Relocation) -> MovedRows:
    """Return the rows of a whole file where a compaction moved them."""
    whole = MovedRows(path, 0, move.num_records, move.num_records)
    return moved_range(whole, move, NO_ROWS)


def moved_range(rows: MovedRows, move: Relocation, base: Bitmap) -> MovedRows:
    """Return a range of rows of a removed file where a compaction moved them.

    `base` are the rows of `move.base`; they are not needed for the rows of a whole file.
    Law: the same rows as moved_rows(rows.rows, move, base)
    """
    if (rows.start, rows.stop) == (0, move.num_records):
        start, stop = 0, move.rows
    else:
        start, stop = (row - (base.rank(row - 1) if row else 0) for row in (rows.start, rows.stop))
    vector = None if move.gone is None else vector_text(move.gone)
    return MovedRows(
        path=move.target,
        start=move.offset + start,
        stop=move.offset + stop,
        total=move.total,
        before=replace(rows, vector=vector),
    )


def read_moves(row_mapping: Sequence[RowMapping], content: CheckedActions) -> Relocations:
    """Return the relocations that a proposal's row mapping states.

    Raises: InvalidProposal, for the first that is wrong.
    """
    if not row_mapping:
        return NO_MOVES
    if sum(len(mapping.sources) for mapping in row_mapping) > SOURCES_MAX:
        problem = f"more than {SOURCES_MAX} files"
        refuse(TOO_LARGE, "row_mapping", problem, "compact in several steps, or without a mapping")
    if any(file.data_change for file in (*content.adds, *content.removes)):
        problem = "comes with files that change data"
        refuse(MALFORMED, "row_mapping", problem, "map rows that move, and no others")
    adds = {path: add for (path, _), add in zip(content.added, content.adds, strict=True)}
    moves = _relocations(row_mapping, content.removes, adds)
    for index, mapping in enumerate(row_mapping):
        _check(mapping, f"row_mapping[{index}]", moves, adds)
    if len(moves) < sum(len(mapping.sources) for mapping in row_mapping):
        problem = "names a file twice"
        refuse(DUPLICATE, "row_mapping", problem, "give each file once")
    return moves


def moves_of(
    provenance: Provenance | None, removes: Sequence[Remove], adds: Sequence[Add]
) -> Relocations:
    """Return the relocations that the provenance of an entry states."""
    mappings = (
        [accepted.row_mapping for accepted in provenance.accepted if accepted.row_mapping]
        if provenance
        else ()
    )
    if not mappings:
        return NO_MOVES
    adds_by_path = {canonical(add.path): add for add in adds if not add.data_change}
    removed = [remove for remove in removes if not remove.data_change]
    return _relocations(
        [mapping for row_mapping in mappings for mapping in row_mapping], removed, adds_by_path
    )


def row_mapping_of(moves: Relocations) -> tuple[RowMapping, ...]:
    """Return relocations as the provenance of an entry states them.

    Law: moves_of(... row_mapping_of(m) ...) == m
    """
    ordered = sorted(moves.items(), key=lambda item: (item[1].target, item[1].offset, item[0]))
    return tuple(
        RowMapping(
            path=encoded_path(target),
            sources=tuple(_source(path, move) for path, move in target_moves),
        )
        for target, target_moves in groupby(ordered, key=lambda item: item[1].target)
    )


def _source(path: str, move: Relocation) -> Source:
    base = None
    if move.base != move.gone:
        # An empty object means that there was no vector; None means the same vector as `gone`.
        base = move.base.model_dump(by_alias=True, exclude_none=True) if move.base else {}
    return Source(path=encoded_path(path), offset=move.offset, rows=move.rows, base=base)


def _relocations(
    row_mapping: Sequence[RowMapping], removes: Sequence[Remove], adds: Mapping[str, Add]
) -> dict[str, Relocation]:
    vectors = {canonical(remove.path): remove.deletion_vector for remove in removes}
    moves: dict[str, Relocation] = {}
    for mapping in row_mapping:
        total = sum(source.rows for source in mapping.sources)
        target = canonical(mapping.path)
        for source in mapping.sources:
            path = canonical(source.path)
            if path in vectors and target in adds:
                vector = vectors[path]
                base = vector if source.base is None else _vector_of(source)
                moves[path] = Relocation(target, source.offset, source.rows, total, base, vector)
    return moves


def _vector_of(source: Source) -> DeletionVector | None:
    if not source.base:
        return None
    try:
        return DeletionVector.model_validate(source.base, by_alias=True, by_name=False)
    except ValidationError:
        return None


def _check(mapping: RowMapping, location: str, moves: Relocations, adds: Mapping[str, Add]) -> None:
    target, rows = canonical(mapping.path), 0
    add = adds.get(target)
    if add is None or add.deletion_vector is not None:
        problem = f"{mapping.path[:128]!r} is no new file, or has a deletion vector"
        refuse(MALFORMED, f"{location}.path", problem, "name a file that the proposal adds whole")
    for index, source in enumerate(mapping.sources):
        move = moves.get(canonical(source.path))
        if move is None or source.base is not None:
            problem = f"{source.path[:128]!r} is not removed by the proposal, or says a base"
            remedy = "name files that the proposal removes"
            refuse(MALFORMED, f"{location}.sources[{index}].path", problem, remedy)
        if source.offset != rows:
            problem = f"is {source.offset}, {rows} rows come before"
            remedy = "give the sources in the order of their rows, each whole"
            refuse(MALFORMED, f"{location}.sources[{index}].offset", problem, remedy)
        rows += source.rows
    count = physical_records(add.stats)
    if count != rows:
        problem = f"come to {rows} rows, {mapping.path[:128]!r} says {count}"
        refuse(MALFORMED, f"{location}.sources", problem, "map every row of the file")


def leaving_with(moves: Relocations, vectors: Mapping[str, DeletionVector | None]) -> Relocations:
    """Return relocations with `gone` set to other deletion vectors, by path."""
    return {
        path: replace(move, gone=vectors[path]) if path in vectors else move
        for path, move in moves.items()
    }

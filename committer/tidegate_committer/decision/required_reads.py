"""Lists what must be read from the store to decide a batch, so that deciding stays pure.

`wanted` is called again after each read, because one read may lead to another: the add action of a
file names its deletion vector. Most batches need nothing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from tidegate_committer.admission.admission_rules import level_of
from tidegate_committer.conflicts.concurrent_appends import needs_statistics
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.row_level.moved_removals import files_that_lose_rows, files_to_return
from tidegate_committer.row_level.row_deletes import concerned
from tidegate_committer.row_level.row_relocation import (
    at_head,
    depends_on_rows,
    passed,
    vectors_of_moves,
)
from tidegate_committer.state.fetched_inputs import (
    FetchedInputs,
    Growth,
    ReplacedFile,
    key_of,
    new_vectors,
    size_of,
)
from tidegate_committer.state.log_entry import Revision
from tidegate_committer.state.table_state import TableState
from tidegate_delta.log.actions import DeletionVector


@dataclass(frozen=True)
class RequiredReads:
    """What must be read.

    `files` are live files, by canonical path; `vectors` deletion vectors, by `key_of`; `growths`
    pairs of vectors, before and after a version, to be compared; `versions` those whose added files
    are needed in full, with their statistics, `replaced` files that compactions replaced.
    """

    files: frozenset[str]
    vectors: Mapping[str, DeletionVector]
    growths: Mapping[Growth, Revision]
    versions: frozenset[int]
    replaced: frozenset[ReplacedFile] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.files or self.vectors or self.growths or self.versions or self.replaced)


def wanted(
    state: TableState, batch: Sequence[Candidate], known: FetchedInputs, vector_bytes_max: int
) -> RequiredReads:
    """Return what is not in `known` and the decision on the batch may depend on.

    A proposal whose vectors exceed `vector_bytes_max` is refused without reading them.
    Law: plan(state, batch, policy, terms, known) reads nothing else once nothing is wanted
    """
    files: set[str] = set()
    vectors: dict[str, DeletionVector] = {}
    growths: dict[Growth, Revision] = {}
    versions: set[int] = set()
    replaced: set[ReplacedFile] = set()
    for candidate in batch:
        if candidate.flaw is None and candidate.id not in state.decisions:
            unread = new_vectors(candidate, state.files)
            vectors |= unread if size_of(unread) <= vector_bytes_max else {}
        if candidate.is_plain_append or not _is_open(state, candidate):
            continue
        versions.update(_versions(state, candidate, known))
        winners = list(state.since(candidate.read_version))
        if not depends_on_rows(candidate, winners):
            continue
        last = at_head(candidate, winners)
        for path in files_that_lose_rows(last) & state.files.keys():
            if path not in known.files:
                files.add(path)
        to_return = files_to_return(last, state.table_definition, winners)
        replaced |= to_return - known.replaced.keys()
        if burden(state, candidate, known) > vector_bytes_max:
            continue
        for revision in _revisions(state, candidate):
            pair = key_of(revision.before), key_of(revision.after)
            if pair not in known.growths:
                growths[pair] = revision
        vectors |= known_vectors(state, candidate, known)
    unread = {key: vector for key, vector in vectors.items() if key not in known.rows}
    return RequiredReads(
        frozenset(files), unread, growths, frozenset(versions), frozenset(replaced)
    )


def burden(state: TableState, candidate: Candidate, known: FetchedInputs) -> int:
    """Return how many bytes of deletion vectors must be read for a candidate."""
    if not depends_on_rows(candidate, state.since(candidate.read_version)):
        return 0
    return size_of(known_vectors(state, candidate, known))


def known_vectors(
    state: TableState, candidate: Candidate, known: FetchedInputs
) -> Mapping[str, DeletionVector]:
    """Return the deletion vectors that decide on a candidate, by key, as far as they are known.

    Law: the result grows with the known files, and with the log
    """
    winners = list(state.since(candidate.read_version))
    revisions = _revisions(state, candidate)
    vectors = chain(
        _vectors(at_head(candidate, winners), revisions, known),
        vectors_of_moves(candidate, winners),
    )
    return {key_of(vector): vector for vector in vectors}


def _is_open(state: TableState, candidate: Candidate) -> bool:
    """Return whether a candidate will be checked against the versions after its read version."""
    return (
        candidate.flaw is None
        and candidate.id not in state.decisions
        and state.remembers(candidate.read_version)
    )


def _versions(state: TableState, candidate: Candidate, known: FetchedInputs) -> Iterator[int]:
    if candidate.is_blind_append or not candidate.reads.predicates:
        return
    level = level_of(candidate, state.table_definition_at(candidate.read_version))
    if level == "SnapshotIsolation":
        return
    for winner in state.since(candidate.read_version):
        if level == "WriteSerializable" and winner.is_blind_append:
            continue
        if winner.version not in known.adds and needs_statistics(candidate, winner):
            yield winner.version


def _revisions(state: TableState, candidate: Candidate) -> Iterator[Revision]:
    for winner, rebased in passed(candidate, state.since(candidate.read_version)):
        for path in sorted(concerned(rebased, winner)):
            yield winner.revised[path]


def _vectors(
    candidate: Candidate, revisions: Iterable[Revision], known: FetchedInputs
) -> Iterator[DeletionVector]:
    for intent in candidate.intents:
        if intent.inline is None:
            yield intent.vector
    for path in sorted(files_that_lose_rows(candidate)):
        file = known.files.get(path)
        if file is not None and file.deletion_vector is not None:
            yield file.deletion_vector
    for revision in revisions:
        yield from (vector for vector in revision if vector is not None)

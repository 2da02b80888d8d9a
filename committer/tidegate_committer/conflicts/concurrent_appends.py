"""Which new files of a winner may hold a row that the proposal should have read.

delta-spark compares partition values alone. Here a file is also cleared if its statistics exclude
every read predicate, and a proposal without predicates can't have missed a row: docs/adr/0017 has
the proof.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.proposal_actions import PartitionValues, canonical
from tidegate_committer.row_level.row_deletes import come_for
from tidegate_committer.state.fetched_inputs import FetchedInputs
from tidegate_committer.state.log_entry import Entry
from tidegate_delta.data_skipping.file_predicates import FileTest, FileTests
from tidegate_delta.data_skipping.predicate_tree import Predicate, paths_of
from tidegate_delta.log.actions import Add, Metadata
from tidegate_delta.schema.column_mapping import ColumnMappingMode, mode_of, physical_name
from tidegate_delta.schema.field_paths import FieldPath
from tidegate_delta.schema.types import StructType, parse_schema
from tidegate_messages.proposal import ReadSet

VERSIONS_MAX: Final = 64
"""Versions after the read version that are compared by statistics. Later ones are not, so that an
old proposal costs a bounded number of reads and gets the same decision each time.
"""

LOOKS_MAX: Final = 1 << 16
"""Most tests of one proposal's predicates against the files of one version, because all proposals
wait meanwhile. If it would take more, every file counts as one that may match.
"""

AddedFiles = tuple[tuple[str, PartitionValues], ...]


def needs_statistics(candidate: Candidate, winner: Entry) -> bool:
    """Return whether a version's new files are compared by their statistics."""
    return (
        bool(candidate.reads.predicates)
        and not candidate.reads.whole_table
        and bool(winner.added)
        and winner.version - candidate.read_version <= VERSIONS_MAX
    )


def needs_too_many_tests(candidate: Candidate, files: int) -> bool:
    """Return whether comparing this many new files would take more than `LOOKS_MAX` tests."""
    reads = candidate.reads
    if candidate.is_blind_append or reads.whole_table:
        return False
    return candidate.weight * files > LOOKS_MAX


def may_have_been_read(
    candidate: Candidate,
    winner: Entry,
    tests_of: Callable[[], Sequence[FileTest]],
    known: FetchedInputs,
) -> AddedFiles:
    """Return the new files of a winner that may hold a row which the proposal should have read.

    `tests_of` returns the tests of a file under the metadata that the writer read, and under the
    current metadata (`file_test_of`). A file is left out only if it holds no matching row under
    either.
    """
    added = come_for(candidate, winner, known)
    reads = candidate.reads
    if reads.whole_table or not added:
        return added
    if not reads.predicates:
        return ()
    adds = stated(candidate, winner, known)
    if adds is None:
        return added
    tests = tests_of()
    kept = {path for path, add in adds.items() if any(test(add) for test in tests)}
    return tuple(file for file in added if file[0] in kept or file[0] not in adds)


def meant_by_reads(reads: ReadSet, metadata: Metadata) -> Sequence[Predicate]:
    """Return the read predicates in every reading that their column names allow (`meant_by`)."""
    return [reading for predicate in reads.predicates for reading in meant_by(predicate, metadata)]


def file_test_of(predicates: Sequence[Predicate], tests: FileTests) -> FileTest:
    """Return the test whether a file may hold a row that one of the predicates matches."""
    return tests.of(predicates[0] if len(predicates) == 1 else {"op": "or", "args": predicates})


def stated(candidate: Candidate, winner: Entry, known: FetchedInputs) -> Mapping[str, Add] | None:
    """Return a winner's add actions by canonical path, or None if they are not compared."""
    adds: Sequence[Add] | None = None
    if needs_too_many_tests(candidate, len(winner.added)):
        return None
    if winner.proposal_id is not None:
        adds = winner.adds
    elif needs_statistics(candidate, winner):
        adds = known.adds.get(winner.version, winner.adds)
    if adds is None:
        return None
    return {canonical(add.path): add for add in adds}


def meant_by(predicate: Predicate, metadata: Metadata) -> Sequence[Predicate]:
    """Return the readings of a predicate: its columns may be physical names or logical ones."""
    mode = mode_of(metadata)
    if mode is ColumnMappingMode.NONE:
        return [predicate]
    schema = parse_schema(metadata.schema_string)
    paths = paths_of(predicate)
    logical = {
        path: logical_path for path in paths if (logical_path := _logical(schema, path, mode))
    }
    if len(logical) < len(paths):
        return [predicate]
    physically = _renamed(predicate, logical)
    are_physical = all(_is_there(schema, path) for path in paths)
    return [predicate, physically] if are_physical else [physically]


def _logical(schema: StructType, path: FieldPath, mode: ColumnMappingMode) -> FieldPath | None:
    """Return the logical path of a physical one."""
    names: list[str] = []
    kind: Any = schema
    for name in path:
        fields = kind.fields if isinstance(kind, StructType) else ()
        field = next((field for field in fields if physical_name(field, mode) == name), None)
        if field is None:
            return None
        names.append(field.name)
        kind = field.kind
    return tuple(names)


def _is_there(schema: StructType, path: FieldPath) -> bool:
    kind: Any = schema
    for name in path:
        fields = kind.fields if isinstance(kind, StructType) else ()
        field = next((field for field in fields if field.name.lower() == name.lower()), None)
        if field is None:
            return False
        kind = field.kind
    return True


def _renamed(node: Predicate, names: Mapping[FieldPath, FieldPath]) -> Predicate:
    if "args" in node:
        return {**node, "args": [_renamed(arg, names) for arg in node["args"]]}
    if "arg" in node:
        return {**node, "arg": _renamed(node["arg"], names)}
    if "column" not in node:
        return node
    column = node["column"]
    path = (column,) if isinstance(column, str) else tuple(column)
    return {**node, "column": list(names[path])}

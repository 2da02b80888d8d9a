"""The actions of a proposal, checked as far as that is possible without the table.

The log lines are kept beside the parsed actions, as the writer wrote them, so that fields which
this release does not know survive.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

import orjson

from tidegate_committer.intake.action_reader import ActionLine, add_line, body_of, is_add, read_row
from tidegate_committer.intake.refusals import (
    DUPLICATE,
    TOO_LARGE,
    InvalidProposal,
    flaw,
    refuse,
)
from tidegate_committer.policy import Policy
from tidegate_delta.log.actions import (
    Action,
    Add,
    Cdc,
    DeletionVector,
    DomainMetadata,
    FileAction,
    Metadata,
    Protocol,
    Remove,
    Txn,
)
from tidegate_delta.log.commit import Commit, sha256
from tidegate_delta.log.file_paths import canonical_path
from tidegate_messages.outcome import Rejection

T = TypeVar("T")

_set: Final = object.__setattr__


def make_fast(kind: type[T], fields: dict[str, Any]) -> T:
    """Return a frozen dataclass made from all its fields, in their order; it keeps the dict.

    Law: vars(made(kind, fields)) == vars(kind(**fields))
    """
    instance = kind.__new__(kind)
    _set(instance, "__dict__", fields)
    return instance


PartitionValues = Mapping[str, str | None]
PartitionKey = frozenset[tuple[str, str | None]]
"""The partition values of a file, in a form that can be compared and hashed."""
A = TypeVar("A", bound=Action)

_VECTOR_NAME_CHARS_MAX: Final = 80
_ODD: Final = re.compile(r"%|^[A-Za-z][A-Za-z0-9+.-]*:|^/|//|(^|/)\.{1,2}(/|$)")
_ODD_START: Final = ("", "/", ".")

_SPELLED_LATE: Final = frozenset({Metadata.wire_name, Protocol.wire_name, Txn.wire_name})
"""The actions whose lines are written by the version that they land in."""


@dataclass(frozen=True)
class CheckedActions:
    """Checked actions.

    `lines` are the log lines of files and domains, in the proposal's order. `added` holds canonical
    path and partition values of each new file, `removed` the canonical paths of removed ones.
    `vectors` and `removed_vectors` map canonical paths to deletion vectors, as `vector_text` writes
    them, for files that have one. `has_row_ids` says whether a new file has a base row id or a
    default row commit version. `is_plain` says that every path is known to be its own canonical
    form in the usual encoding; False if this was not checked.
    """

    lines: tuple[ActionLine, ...] = ()
    adds: tuple[Add, ...] = ()
    removes: tuple[Remove, ...] = ()
    changes: tuple[Cdc, ...] = ()
    txns: tuple[Txn, ...] = ()
    domains: tuple[DomainMetadata, ...] = ()
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    added: tuple[tuple[str, PartitionValues], ...] = ()
    removed: frozenset[str] = frozenset()
    vectors: Mapping[str, str] = field(default_factory=dict)
    removed_vectors: Mapping[str, str] = field(default_factory=dict)
    has_row_ids: bool = False
    is_plain: bool = field(default=False, compare=False)

    @property
    def has_files(self) -> bool:
        """Whether any data or change file is named."""
        return bool(self.adds or self.removes or self.changes)

    def with_adds(self, change: Callable[[Add, str], Add | None]) -> "CheckedActions":
        """Return the content with each new file replaced, or left out if `change` returns None.

        `change` gets the file and its canonical path.
        """
        after = [change(add, path) for add, (path, _) in zip(self.adds, self.added, strict=True)]
        if all(new is add for new, add in zip(after, self.adds, strict=True)):
            return self
        changed = iter(zip(self.adds, after, strict=True))
        lines: list[ActionLine] = []
        for line in self.lines:
            if not is_add(line):
                lines.append(line)
                continue
            add, new = next(changed)
            if new is not None:
                lines.append(line if new is add else add_line(new))
        fields = _fields_from_adds([add for add in after if add])
        # Stays true after the ids are dropped: such files must still be checked for a row count.
        fields["has_row_ids"] = self.has_row_ids or fields["has_row_ids"]
        return replace(self, lines=tuple(lines), **fields)

    def with_more(self, adds: Sequence[Add]) -> "CheckedActions":
        """Return the content with more files added."""
        if not adds:
            return self
        lines = (*self.lines, *map(add_line, adds))
        fields = _fields_from_adds([*self.adds, *adds])
        return replace(self, lines=lines, is_plain=False, **fields)

    def with_removes(self, fields: Mapping[str, Mapping[str, Any]]) -> "CheckedActions":
        """Return the content with some fields set on some removes, by canonical path."""
        removes = tuple(
            remove.with_(**fields[path]) if (path := canonical(remove.path)) in fields else remove
            for remove in self.removes
        )
        changed = iter(removes)
        lines = tuple(
            line if isinstance(line, bytes) else body_of(next(changed)) for line in self.lines
        )
        return replace(self, lines=lines, removes=removes)

    def with_other_removes(
        self, without: Collection[str], more: Sequence[Remove] = ()
    ) -> "CheckedActions":
        """Return the content without the removes of some canonical paths, and with more removes."""
        kept = [remove for remove in self.removes if canonical(remove.path) not in without]
        removes = (*kept, *more)
        lines = (
            *(line for line in self.lines if isinstance(line, bytes)),
            *map(body_of, removes),
        )
        return replace(
            self,
            lines=lines,
            removes=removes,
            removed=frozenset(canonical(remove.path) for remove in removes),
            removed_vectors=vectors_of(removes),
            is_plain=False,
        )


EMPTY: Final = CheckedActions()
_NONE: Final = vars(EMPTY)


def _fields_from_adds(adds: Sequence[Add]) -> dict[str, Any]:
    """Return the fields of `CheckedActions` that follow from the new files."""
    return {
        "adds": tuple(adds),
        "added": _paths_of(adds),
        "vectors": vectors_of(adds),
        "has_row_ids": any(map(_has_row_ids, adds)),
    }


def canonical(path: str) -> str:
    """Return the canonical form of a path, which is equal for all encodings of one file's path."""
    # A cheap test first: the pattern alone would take ten times as long.
    if "%" in path or "/." in path or "//" in path or ":" in path or path[:1] in _ODD_START:
        return canonical_path(path) if _ODD.search(path) else path
    return path


def vector_text(vector: DeletionVector) -> str:
    """Return a text that identifies a deletion vector: equal texts mean equal in every field.

    A remove must repeat its file's vector in every field, or readers of the change feed fail. A
    long vector (inline) is hashed, because the text is kept for each live file.
    """
    name = vector.unique_id
    if len(name) > _VECTOR_NAME_CHARS_MAX:
        name = f"{vector.storage_type}#{sha256(name.encode())}"
    return f"{name}:{vector.size_in_bytes}:{vector.cardinality}"


def vectors_of(files: Iterable[FileAction]) -> Mapping[str, str]:
    """Return the deletion vectors of those files that have one, by canonical path."""
    return {
        canonical(file.path): vector_text(file.deletion_vector)
        for file in files
        if file.deletion_vector is not None
    }


def overfull(content: bytes, policy: Policy) -> Rejection | None:
    """Return why a claim check's file has too many or too long lines to be parsed, or None.

    Blank lines count too: a parsed line takes many times its bytes in memory.
    """
    lines_max = 2 * policy.actions_max
    if content.count(b"\n") > lines_max:
        problem = f"the file has more than {lines_max} lines"
        return flaw(TOO_LARGE, "claim_check", problem, "propose them in several steps")
    longest = max(map(len, content.split(b"\n")))
    if longest > policy.line_bytes_max:
        problem = f"the file has a line of {longest} bytes, {policy.line_bytes_max} are allowed"
        return flaw(TOO_LARGE, "claim_check", problem, "give each action a line of its own")
    return None


def read_content(rows: Iterable[Any], policy: Policy) -> CheckedActions:
    """Return the checked actions of a proposal's rows.

    Raises: InvalidProposal, for the first row that is refused.
    """
    actions: dict[str, list[Any]] = {}
    kept: list[ActionLine] = []
    unknown, are_plain = 0, True
    for index, row in enumerate(rows):
        if index >= policy.actions_max:
            refuse(
                TOO_LARGE,
                "actions",
                f"more than {policy.actions_max} actions",
                "propose them in several steps",
            )
        try:
            line, action, is_plain = read_row(row, policy)
        except InvalidProposal as error:
            raise error.within(f"actions[{index}]") from None
        are_plain = are_plain and is_plain
        if action.model_extra:
            unknown += len(orjson.dumps(action.model_extra))
            if unknown > policy.record_bytes_max:
                problem = f"fields that this release does not know, {unknown} bytes of them"
                refuse(TOO_LARGE, "actions", problem, "leave them out")
        actions.setdefault(action.wire_name, []).append(action)
        if action.wire_name not in _SPELLED_LATE:
            kept.append(line)
    return _content(actions, tuple(kept), are_plain=are_plain)


def content_of(commit: Commit) -> CheckedActions:
    """Return the content of a commit by another writer, without its lines.

    Raises: InvalidProposal, if it has duplicate actions.
    """
    actions: dict[str, list[Any]] = {}
    for action in commit.actions:
        actions.setdefault(action.wire_name, []).append(action)
    return _content(actions, (), are_plain=False)


def _content(
    actions: Mapping[str, list[Any]], lines: tuple[ActionLine, ...], *, are_plain: bool
) -> CheckedActions:
    """Return the content of actions; `are_plain` says that all are of the usual form."""
    adds, removes = _of(actions, Add), _of(actions, Remove)
    fields = dict(_NONE)
    fields["lines"], fields["adds"], fields["removes"] = lines, adds, removes
    if are_plain:
        fields["is_plain"] = True
        fields["added"] = tuple([(add.path, add.partition_values) for add in adds])
        fields["removed"] = frozenset([remove.path for remove in removes])
    else:
        special = [add for add in adds if add.deletion_vector is not None or _has_row_ids(add)]
        fields["added"] = _paths_of(adds)
        fields["removed"] = frozenset([canonical(remove.path) for remove in removes])
        fields["vectors"] = vectors_of(special)
        fields["removed_vectors"] = vectors_of(removes)
        fields["has_row_ids"] = any(map(_has_row_ids, special))
        fields["changes"] = _of(actions, Cdc)
        fields["txns"] = _one_per_application(_of(actions, Txn))
        fields["domains"] = _of(actions, DomainMetadata)
        fields["metadata"] = _single(_of(actions, Metadata))
        fields["protocol"] = _single(_of(actions, Protocol))
    content = make_fast(CheckedActions, fields)
    if len(lines) != 1:
        _check_duplicates(content)
    return content


def _of(actions: Mapping[str, list[Any]], kind: type[A]) -> tuple[A, ...]:
    return tuple(actions.get(kind.wire_name, ()))


def _paths_of(adds: Sequence[Add]) -> tuple[tuple[str, PartitionValues], ...]:
    return tuple([(canonical(add.path), add.partition_values) for add in adds])


def _single(actions: tuple[A, ...]) -> A | None:
    if len(actions) > 1:
        name = actions[0].wire_name
        refuse(DUPLICATE, "actions", f"{len(actions)} {name} actions", "give one at most")
    return actions[0] if actions else None


def _one_per_application(txns: tuple[Txn, ...]) -> tuple[Txn, ...]:
    by_app: dict[str, Txn] = {}
    for txn in txns:
        if by_app.setdefault(txn.app_id, txn).version != txn.version:
            refuse(
                DUPLICATE,
                "actions",
                f"application {txn.app_id[:64]!r} has several versions",
                "give each application once",
            )
    return tuple(by_app.values())


def _check_duplicates(content: CheckedActions) -> None:
    added = [path for path, _ in content.added]
    change_files = [canonical(change.path) for change in content.changes]
    domains = {domain.domain for domain in content.domains}
    if len(set(change_files)) < len(change_files):
        _refuse_twice("named as a change file twice", _first_repeated(change_files))
    if len(set(added)) < len(added):
        _refuse_twice("added twice", _first_repeated(added))
    if len(content.removed) < len(content.removes):
        _refuse_twice("removed twice", _first_repeated([remove.path for remove in content.removes]))
    if not content.removed.isdisjoint(added):
        _check_pairs(content, content.removed.intersection(added))
    if len(domains) < len(content.domains):
        refuse(DUPLICATE, "actions", "one domain several times", "give each domain once")


def _check_pairs(content: CheckedActions, paths: frozenset[str]) -> None:
    """Refuse a file that is removed and added again with the same deletion vector."""
    new = {path: add for (path, _), add in zip(content.added, content.adds, strict=True)}
    for remove in content.removes:
        path = canonical(remove.path)
        if path in paths and remove.key.dv_id == new[path].key.dv_id:
            _refuse_twice("both added and removed, with one deletion vector", path)


def _has_row_ids(add: Add) -> bool:
    return add.base_row_id is not None or add.default_row_commit_version is not None


def _refuse_twice(problem: str, path: str) -> None:
    refuse(DUPLICATE, "actions", f"{path[:128]!r} is {problem}", "give each file once", path=path)


def _first_repeated(paths: list[str]) -> str:
    seen: set[str] = set()
    for path in map(canonical, paths):
        if path in seen:
            return path
        seen.add(path)
    raise AssertionError("a path is repeated")

"""The form of paths in the log. Engines compare paths character by character.

One file (one canonical path) can be written in several ways, for example by percent-encoding. A
remove whose path differs from its add's path would leave the file in the table for those engines.
Most paths have the usual form of their canonical path; only the others are kept.
"""

from collections.abc import Iterable, Iterator, Mapping

from tidegate_committer.intake.proposal_actions import CheckedActions, canonical
from tidegate_committer.intake.refusals import flaw
from tidegate_committer.persistent_map import PersistentMap
from tidegate_delta.log.actions import Add, Remove
from tidegate_delta.log.file_paths import encoded_path, unusual_paths
from tidegate_messages.outcome import Rejection

NormalForms = Mapping[str, str]
"""Canonical path -> the path in the log, if that is not the usual form."""


def unusual(files: Iterable[Add]) -> NormalForms:
    """Return the paths that are not in the usual form, by canonical path."""
    return dict(unusual_paths((file.path, canonical(file.path)) for file in files))


def spelling_of(key: str, normal_forms: NormalForms) -> str:
    """Return the path of a live file as it is in the log, by its canonical path."""
    return normal_forms.get(key) or encoded_path(key)


def spelt_after(
    known: PersistentMap[str, str],
    added: Iterable[str],
    removed: Iterable[str],
    normal_forms: NormalForms,
) -> PersistentMap[str, str]:
    """Return the unusual paths after a version that added and removed files, by canonical path."""
    if not (known or normal_forms):
        return known
    return known.changed(normal_forms, drop=[*removed, *added])


def path_spelling_problem(
    content: CheckedActions, live: Mapping[str, str | None], normal_forms: NormalForms
) -> Rejection | None:
    """Refuse a live file whose path differs from its path in the log; None if there is none.

    Law: what is removed is live. A file that was removed may be added again under any form of path.
    """
    if content.is_plain and not normal_forms:
        return None
    for action in (*content.removes, *_repeated(content, live)):
        key = canonical(action.path)
        logged_path = spelling_of(key, normal_forms)
        if action.path == logged_path:
            continue
        is_removed = isinstance(action, Remove)
        return flaw(
            "removed_file_not_live" if is_removed else "added_file_live",
            f"actions.{action.wire_name}.path",
            f"{action.path[:128]!r} is spelt {logged_path[:128]!r} in the log, and readers "
            "compare letters",
            "spell it as its add action does, letter by letter",
            path=action.path,
        )
    return None


def _repeated(content: CheckedActions, live: Mapping[str, str | None]) -> Iterator[Add]:
    for add, (key, _) in zip(content.adds, content.added, strict=True):
        if key in live and key not in content.removed:
            yield add

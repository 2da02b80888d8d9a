"""Check which paths an action may name: files of this table, in a form that all readers can read.

A new file lies below the root or, as those of a shallow clone, under another root that the operator
allows, and then its path is a URI.

Readers decode a path once. A path that decodes to something outside the table root is refused, and
so is one that would leave the root if it were decoded twice.
"""

import re
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import unquote

from tidegate_delta.log.file_paths import canonical_place, is_absolute

ELSEWHERE: Final = "lies outside of the table, and under none of committer.roots"
NEARER: Final = "write it below the table's root, or have the prefix of the place added"
"""What is wrong with a file in a place that the operator does not allow, and what to do."""

PATH_CHARS_MAX: Final = 1_024
SEGMENT_BYTES_MAX: Final = 255
CHANGE_FOLDER: Final = "_change_data"

_SCHEME: Final = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:")
_ABSOLUTE: Final = re.compile(r"^(?:[A-Za-z][A-Za-z0-9+.-]*:)?[/\\]")
_PLACE: Final = re.compile(r"([a-z][a-z0-9]*)://([A-Za-z0-9@._-]*)/(.+)")
"""Matches the URI of a file: scheme, bucket or none, and the path in it."""

_HADOOP: Final = re.compile(r"^file:/(?!/)")
_SEPARATOR: Final = re.compile(r"[/\\]")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_plain: Final = re.compile(r"(?!.*/[/._])[A-Za-z0-9](?:[A-Za-z0-9_=./-]*[A-Za-z0-9])?").fullmatch
"""Matches most paths: nothing to decode, and no segment that is too long, empty, dotted or hidden.
"""


_NO_URI: Final = re.compile(
    '[ "#<>?\\[\\]^`{|}\x80-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]'
)
"""Characters that Java's URI class rejects or cuts the path at. delta-spark could then read no file
of the table, or would read the path before the character.
"""


def is_plain(path: Any) -> bool:
    """Return whether a value is a valid path that is its own canonical form, by a cheap test.

    Most paths pass. One that does not may still be valid.
    """
    return type(path) is str and len(path) <= SEGMENT_BYTES_MAX and _plain(path) is not None


def data_path_problem(path: str, *, is_change_file: bool = False) -> str | None:
    """Return what is wrong with the path of a data file or a change file, or None."""
    if not is_change_file and is_plain(path):
        return None
    if len(path) > PATH_CHARS_MAX:
        return f"is longer than {PATH_CHARS_MAX} characters"
    if _SCHEME.match(path):
        return "has a scheme, and so leads out of the table"
    if path.startswith(("/", "\\")):
        return "is absolute, and so leads out of the table"
    problem = _characters_problem(path)
    return problem or _segments_problem(unquote(path), is_change_file=is_change_file)


def foreign_uri_problem(path: str) -> str | None:
    """Return what is wrong with the URI of a file outside of the table's root, or None.

    Whether a file may lie there is another question.
    """
    if len(path) > PATH_CHARS_MAX:
        return f"is longer than {PATH_CHARS_MAX} characters"
    place = _PLACE.fullmatch(path)
    if place is None:
        return "is no path below the root and no URI as file:///… or s3://bucket/…"
    problem = _characters_problem(place[3])
    if problem is None and (match := _NO_URI.search(place[3])):
        problem = f"holds {match[0]!r}, which a URI holds only percent-encoded"
    return problem or _names_problem(unquote(place[3]).split("/"))


def with_two_slashes(path: str) -> str:
    """Return the URI of a file whose path Hadoop has written, as `file:/lake/a`."""
    return _HADOOP.sub("file:///", path)


def lies_under(path: str, prefixes: Iterable[str]) -> bool:
    """Return whether an absolute path lies under one of some roots, or prefixes of roots."""
    place = canonical_place(path)
    return any(place.startswith(f"{prefix.rstrip('/')}/") for prefix in prefixes)


def _characters_problem(path: str) -> str | None:
    """Return what is wrong with the characters of a path, or None."""
    if _BAD_ESCAPE.search(path):
        return "has a percent sign without two hexadecimal digits"
    try:
        key = unquote(path, errors="strict")
    except UnicodeDecodeError:
        return "does not decode to UTF-8"
    if _CONTROL.search(key):
        return "holds a control character"
    if "\\" in key:
        return "holds a backslash"
    if "%" in key and _leaves(unquote(key, errors="replace")):
        return "leads out of the table where it is decoded twice"
    return None


def existing_path_problem(path: str) -> str | None:
    """Return what is wrong with the path of a file that is already in the table, or None.

    Such a file may lie anywhere, as those of a shallow clone do, and may be encoded as its writer
    chose (`./a`, `x//a`). Law: the log has this path, character for character; the caller checks
    that.
    """
    if is_plain(path):
        return None
    if len(path) > PATH_CHARS_MAX:
        return f"is longer than {PATH_CHARS_MAX} characters"
    key = unquote(path)
    if _CONTROL.search(key):
        return "holds a control character"
    if not is_absolute(path) and (_leaves(key) or _leaves(unquote(key))):
        return "leads out of the table"
    return None


def new_path_problem(path: str, *, is_change_file: bool = False) -> str | None:
    """Return what is wrong with the path of a file that joins the table, or None.

    A file that another writer added under some other form of path may still be removed, or lose
    rows by a deletion vector: `existing_path_problem` checks those.
    """
    problem = data_path_problem(path, is_change_file=is_change_file)
    if problem is not None or is_plain(path):
        return problem
    if match := _NO_URI.search(path):
        return f"holds {match[0]!r}, which a URI holds only percent-encoded"
    if ":" in path.partition("/")[0]:
        return "has a colon before its first slash, where a URI has one after its scheme"
    return None


def _leaves(path: str) -> bool:
    """Return whether a path leads out of the folder that it starts from."""
    if _ABSOLUTE.match(path):
        return True
    depth = 0
    for part in _SEPARATOR.split(path):
        depth += {"..": -1, ".": 0, "": 0}.get(part, 1)
        if depth < 0:
            return True
    return False


def _names_problem(segments: list[str]) -> str | None:
    for segment in segments:
        if not segment:
            return "has an empty segment"
        if unquote(segment, errors="replace") in (".", "..") or segment in (".", ".."):
            return "has a dotted segment"
        if len(segment.encode()) > SEGMENT_BYTES_MAX:
            return f"has a segment longer than {SEGMENT_BYTES_MAX} bytes"
    return None


def _segments_problem(key: str, *, is_change_file: bool) -> str | None:
    segments = key.split("/")
    if problem := _names_problem(segments):
        return problem
    folders = segments[:-1]
    if is_change_file and folders[:1] == [CHANGE_FOLDER]:
        folders = folders[1:]
    for folder in folders:
        if folder.startswith(".") or (folder.startswith("_") and "=" not in folder):
            return f"lies in the hidden folder {folder!r}"
    if segments[-1].startswith(("_", ".")):
        return "names a hidden file"
    return None

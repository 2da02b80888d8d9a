"""File paths: as written in the log, as object keys, and when two paths name the same file.

`is_hidden` says which files and folders of a table's root hold no data of the table.

Spec: "Add File and Remove File"
"""

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Final
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc

SCHEMES: Final = {
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "gs": "gs",
    "gcs": "gs",
    "abfss": "abfss",
    "abfs": "abfss",
    "memory": "memory",
}
"""The canonical form of each scheme of an object store."""

_ABSOLUTE: Final = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*):/|^/")
_UNCHANGED: Final = "/-._~!$&'()*+,;=@"
_ODD: Final = r"^$|%|^[A-Za-z][A-Za-z0-9+.\-]*:|^/|//|(^|/)\.{1,2}(/|$)"
"""Matches a path whose form in the log may differ from its object key (RE2)."""


_ODD_STEP: Final = re.compile(rb"/[./]")

PIECE_BYTES: Final = 1 << 20
"""Bytes of all paths together that are scanned in one piece."""

_LETTERS: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_ESCAPED: Final = r"[^A-Za-z0-9/\-._~!$&'()*+,;=@]"
"""Matches the characters that `encode_path` escapes (RE2)."""

_holds_escaped: Final = re.compile(_ESCAPED).search


def is_absolute(path: str) -> bool:
    """Return whether a path of the log is a URI or begins at the root of a file system."""
    return _ABSOLUTE.match(path) is not None


def decode_path(path: str) -> str:
    """Return the object key, relative to the table root, of a path in the log.

    Percent escapes are decoded once. An absolute path is returned unchanged.
    Law: decode_path(encode_path(key)) == key
    """
    return path if is_absolute(path) else _decoded(path)


def encode_path(key: str) -> str:
    """Return the form in which the log writes an object key: percent-encoded as a URI."""
    return quote(key, safe=_UNCHANGED)


def encode_place(path: str) -> str:
    """Return a path as a URI with a scheme holds it: percent-encoded, the colon excepted.

    So do Java's `Path.toUri` and the registry, which has a table's root in this form.
    Law: unquote(encode_place(path)) == path
    """
    return quote(path, safe=f"{_UNCHANGED}:", errors="surrogatepass")


def encoded_path(key: str) -> str:
    """Return the form in which most writers put a canonical path in the log.

    Law: canonical_path(encoded_path(canonical_path(path))) == canonical_path(path) below the root
    """
    return key if is_absolute(key) else encode_path(key)


def unusual_paths(paths: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the pairs (canonical path, path) whose path is not written in the usual form.

    Shape: `paths` are pairs of a path and its canonical path.
    """
    for path, key in paths:
        if (path != key or _holds_escaped(path)) and path != encoded_path(key):
            yield key, path


def unusual_in(paths: pa.ChunkedArray, keys: pa.ChunkedArray) -> Iterator[tuple[str, str]]:
    """Yield the same pairs for columns of paths; only paths with escapes become Python strings.

    Law: list(unusual_in(p, canonical_paths(p))) == list(unusual_paths(pairs of both))
    """
    escapes = any(map(_may_hold_escaped, paths.chunks))
    if keys is paths and not escapes:
        return
    unusual = pc.not_equal(paths, keys)
    if escapes:
        unusual = pc.or_(unusual, pc.match_substring_regex(paths, _ESCAPED))
    pairs = zip(paths.filter(unusual).to_pylist(), keys.filter(unusual).to_pylist(), strict=True)
    yield from unusual_paths(pairs)


def canonical_path(path: str) -> str:
    """Return a text that is equal for all forms of one file's path, and differs between files.

    A path from the root of a file system gets the scheme `file`, as delta-spark writes it when it
    removes the file.
    """
    match = _ABSOLUTE.match(path)
    if match is None:
        return _normal(_decoded(path))
    if match[1] is None:
        return f"file://{_normal(_decoded(path))}"
    rest = path[len(match[1]) + 1 :]
    authority, _, path_part = (
        rest[2:].partition("/") if rest.startswith("//") else ("", "", rest[1:])
    )
    return f"{match[1].lower()}://{authority}{_normal('/' + _decoded(path_part))}"


def canonical_place(path: str) -> str:
    """Return the URI of the file at an absolute path, with one scheme for each store.

    It begins with the root of its table as the registry has it.
    Law: canonical_place(canonical_place(path)) == canonical_place(path)
    """
    scheme, _, rest = canonical_path(path).partition("://")
    authority, slash, key = rest.partition("/")
    return f"{SCHEMES.get(scheme, scheme)}://{authority}{encode_place(slash + key)}"


def canonical_paths(paths: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return `canonical_path` of each path; only paths in unusual form become Python strings."""
    if not any(_may_be_odd(chunk) for chunk in paths.chunks) and not _any_below_zero(paths):
        return paths
    unusual = pc.match_substring_regex(paths, _ODD)
    if not pc.any(unusual).as_py():
        return paths
    fixed = [canonical_path(path) for path in paths.filter(unusual).to_pylist()]
    fixed_paths = pa.array(fixed, pa.string())
    replaced = pc.replace_with_mask(paths.combine_chunks(), unusual.combine_chunks(), fixed_paths)
    return pa.chunked_array([replaced])


def _may_be_odd(paths: pa.StringArray) -> bool:
    """Return whether any path may be unusual in its middle; scans all paths as one text."""
    return any(
        b"%" in text or b":" in text or _ODD_STEP.search(text) is not None
        for text in _pieces(paths)
    )


def _may_hold_escaped(paths: pa.StringArray) -> bool:
    """Return whether any path may need escapes of `encode_path`; scans as `_may_be_odd`."""
    kept = _LETTERS + _UNCHANGED.encode()
    return any(text.translate(None, kept) for text in _pieces(paths))


def _pieces(paths: pa.StringArray) -> Iterator[bytes]:
    """Yield all paths as one text in pieces; each begins with the last byte of the one before.

    A copy of the whole text would touch as much new memory, which takes longer than the scan.
    """
    _, offsets, text = paths.buffers()
    if text is None or not len(paths):
        return
    ends = pa.Array.from_buffers(pa.int32(), len(paths) + 1, [None, offsets], offset=paths.offset)
    first, end = ends[0].as_py(), ends[-1].as_py()
    for start in range(first, end, PIECE_BYTES):
        before = max(start - 1, first)
        yield text.slice(before, min(start + PIECE_BYTES, end) - before).to_pybytes()


def _any_below_zero(paths: pa.ChunkedArray) -> bool:
    """Return whether any path begins with `/`, `.` or a character that sorts before them."""
    return bool(pc.any(pc.less(paths, "0")).as_py())


def _decoded(path: str) -> str:
    try:
        return unquote(path, errors="strict")
    except UnicodeDecodeError:
        return path


def _normal(path: str) -> str:
    normal = posixpath.normpath(path)
    if normal.startswith("//"):
        normal = normal[1:]
    # In an object store `a/` and `a` are different keys.
    return f"{normal}/" if path.endswith("/") and not normal.endswith("/") else normal


_SHOWN = ("_change_data", "_delta_index")


def is_hidden(name: str, partition_columns: Collection[str]) -> bool:
    """Return whether a file or folder of this name, anywhere below the root, is none of the table.

    Names that begin with `_` or `.` are hidden, except change data, indexes, and the folders of
    partition columns whose names begin so.

    Spec: "Data Files"
    """
    if not name.startswith(("_", ".")) or name.startswith(_SHOWN):
        return False
    column, equals, _ = name.partition("=")
    return not (equals and unquote(column) in partition_columns)

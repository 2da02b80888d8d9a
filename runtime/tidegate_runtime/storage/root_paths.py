"""Table roots and paths below them: one canonical form, and never a path outside the root."""

import os
import posixpath
import re
from typing import Final
from urllib.parse import unquote

from tidegate_delta.errors import InvalidRequest, Misconfigured
from tidegate_delta.log.file_paths import SCHEMES, encode_place

_ACCOUNT: Final = re.compile(r"[^@/]+@[^@/.:]+\.[^@/:]+")

_SINGLE_SLASH: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
"""Hadoop's form of a path in its default store: `hdfs:/data`."""


def checked(path: str, root: str) -> str:
    """Return the path unchanged if it names a file below the root.

    Raises: InvalidRequest (`PathOutsideTable`), for anything that could name another place.
    """
    parts = path.split("/")
    if "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise InvalidRequest(
            f"{path!r} does not name a file below the table root {root}; give a path relative to "
            "the root, without empty parts, '.' or '..'",
            error_class="PathOutsideTable",
        )
    return path


def checked_folder(folder: str, root: str) -> str:
    """Return the folder without a trailing slash; an empty one is the root itself.

    Raises: InvalidRequest (`PathOutsideTable`).
    """
    trimmed = folder.removesuffix("/")
    return checked(trimmed, root) if trimmed else ""


def joined(folder: str, name: str) -> str:
    """Return the path of a name in a folder; the empty folder is the root."""
    return f"{folder}/{name}" if folder else name


def canonical_root(uri_or_path: str) -> str:
    """Return the canonical form of a table root: `file:///abs`, `s3://bucket/key` or similar.

    A path is taken literally; in a URI percent escapes are decoded once. The canonical form is a
    URI, encoded by `encode_place` (ADR 52).
    Law: canonical_root(canonical_root(x)) == canonical_root(x)
    Raises: Misconfigured, for another scheme or a root that names no place of its own.
    """
    scheme, separator, rest = uri_or_path.partition("://")
    if not separator:
        if uri_or_path.startswith("file:/"):
            return _local_root(_decoded(uri_or_path.removeprefix("file:"), uri_or_path))
        if not _SINGLE_SLASH.match(uri_or_path):
            return _local_root(uri_or_path)
    if scheme == "file":
        return _local_root(_decoded(_local_path(rest, uri_or_path), uri_or_path))
    known = SCHEMES.get(scheme) if separator else None
    if known is None:
        raise Misconfigured(
            f"no store for {uri_or_path!r}: tables lie under file://, s3:// (s3a:// is the same), "
            "gs:// or abfss://container@account.dfs.core.windows.net/"
        )
    return _object_root(known, rest, uri_or_path)


def recorded_root(root: str) -> str:
    """Return the canonical form of a root in a record that an earlier release may have written.

    A root that this release can't read is returned unchanged.
    """
    try:
        return canonical_root(root)
    except Misconfigured:
        return root


def decoded_root(root: str) -> str:
    """Return a canonical root, or a prefix of roots, with nothing in it percent-encoded.

    Stores have their folders and keys so, and Hadoop and Spark their paths.
    """
    return unquote(root)


def root_prefix(uri_or_path: str) -> str:
    """Return the canonical form of a prefix of table roots: a store, or a part of it.

    Law: where root_prefix(x) is p, canonical_root(f"{x}/t") begins with p
    Raises: Misconfigured, for another scheme or a relative path.
    """
    scheme, separator, rest = uri_or_path.partition("://")
    is_local = scheme == "file" or not separator
    path = (rest.removeprefix("localhost") or "/") if separator else scheme.removeprefix("file:")
    if is_local and path.startswith("/"):
        return "file:///" if not path.strip("/") else canonical_root(uri_or_path)
    known = SCHEMES.get(scheme)
    if is_local or known is None:
        raise Misconfigured(
            f"{uri_or_path!r} is no place for tables: write file:///…, s3://bucket/…, "
            "gs://bucket/… or abfss://container@account.dfs.core.windows.net/…"
        )
    bucket, slash, below = rest.partition("/")
    path = encode_place(_decoded(below, uri_or_path))
    return f"{known}://{_canonical_azure_host(known, bucket)}{slash}{path}"


def lies_under(root: str, prefix: str) -> bool:
    """Return whether a canonical root lies under a `root_prefix`, comparing text only."""
    trimmed = prefix.rstrip("/")
    return root == trimmed or root.startswith(f"{trimmed}/")


def _local_root(path: str) -> str:
    if not path.strip():
        raise Misconfigured("the table root is empty; give a path or a URI")
    normal = posixpath.normpath(os.path.abspath(path))
    normal = "/" + normal.lstrip("/")
    if normal == "/":
        raise Misconfigured("the table root '/' is the whole file system; give a folder of its own")
    return f"file://{_encoded(normal)}"


def _local_path(rest: str, uri: str) -> str:
    """Return the path of a URI of the scheme `file`, which comes after the host."""
    host, slash, path = rest.partition("/")
    if host not in ("", "localhost"):
        raise Misconfigured(
            f"the table root {uri!r} names the host {host!r}, and files are opened on this "
            f"machine alone; write file:///{rest} for the path /{rest}"
        )
    return f"{slash}{path.lstrip('/')}"


def _object_root(scheme: str, rest: str, uri: str) -> str:
    bucket, _, key = rest.rstrip("/").partition("/")
    parts = _decoded(key, uri).split("/") if key else []
    if not bucket or any(part in ("", ".", "..") for part in parts):
        raise Misconfigured(
            f"the table root {uri!r} needs the form {scheme}://bucket/key, without empty parts, "
            "'.' or '..'"
        )
    bucket = _canonical_azure_host(scheme, bucket)
    if scheme == "abfss" and not _ACCOUNT.fullmatch(bucket):
        raise Misconfigured(
            f"the table root {uri!r} names no account; give "
            "abfss://container@account.dfs.core.windows.net/key"
        )
    return f"{scheme}://{'/'.join([bucket, *map(_encoded, parts)])}"


def _decoded(path: str, uri: str) -> str:
    try:
        return unquote(path, errors="strict")
    except UnicodeDecodeError:
        raise Misconfigured(
            f"the table root {uri!r} has percent escapes that are no UTF-8; write each `%` of a "
            "name as `%25`"
        ) from None


def _encoded(path: str) -> str:
    if any(letter < " " or "\ud800" <= letter <= "\udfff" for letter in path):
        raise Misconfigured(f"the table root {path!r} has control characters, or is no UTF-8")
    return encode_place(path)


def _canonical_azure_host(scheme: str, bucket: str) -> str:
    """Return the place with the canonical host of an Azure account, which has several.

    It has no port, is in lower case, and is the name for the protocol with folders.
    """
    container, separator, host = bucket.partition("@")
    if scheme != "abfss" or not separator:
        return bucket
    canonical = host.lower().removesuffix(":443").removesuffix(".")
    return f"{container}@{canonical.replace('.blob.', '.dfs.', 1)}"

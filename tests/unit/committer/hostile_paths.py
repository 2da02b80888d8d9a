"""A corpus of paths that no action may name, combined from known attack patterns."""

from collections.abc import Iterator
from itertools import product
from typing import Final

UPS: Final = ("..", "%2e%2e", "%2E%2E", ".%2e", "%2e.", "%252e%252e", "%252E%252e", ".%252e")
SLASHES: Final = ("/", "%2f", "%2F", "%252f", "%252F", "\\", "%5c", "%5C", "%255c")
STAYS: Final = (".", "%2e", "%2E", "%252e", "%252E")
CLOUDS: Final = ("s3", "s3a", "s3n", "gs", "abfs", "abfss", "wasb", "wasbs", "adl", "dbfs")
SCHEMES: Final = (
    *CLOUDS,
    "file",
    "hdfs",
    "viewfs",
    "http",
    "https",
    "ftp",
    "jar",
    "data",
    "C",
    "c+1",
)
HIDDEN: Final = ("_delta_log", "_change_data", "_tidegate", "_temporary", ".git", ".x")
NOT_UTF8: Final = (
    "%ff",
    "%80",
    "%c0%ae%c0%ae/x",
    "a%c0%afb",
    "%ed%a0%80",
    "%f5%80%80%80",
    "a%e2%82",
)
BAD_ESCAPES: Final = ("%", "a%", "a%2", "a%zz", "a%%", "a%g0", "a% 20", "a%-1", "%u002e%u002e/x")
CONTROLS: Final = (*range(0x20), 0x7F)


def _climbing() -> Iterator[str]:
    for up, slash in product(UPS, SLASHES):
        yield f"{up}{slash}x"
        yield f"a{slash}{up}{slash}{up}{slash}x"
    for dots in (*UPS, *STAYS):
        yield from (dots, f"a/{dots}", f"a/{dots}/b", f"{dots}/b", f"p=1/{dots}/b")


def _elsewhere() -> Iterator[str]:
    for slash in SLASHES:
        yield f"{slash}etc/passwd"
        yield f"{slash}{slash}host/share/x"
    for scheme in SCHEMES:
        yield from (f"{scheme}://b/x", f"{scheme}:///x", f"{scheme}:/x", f"{scheme}:x")
    yield "file%253a%252f%252fx"


def _hidden() -> Iterator[str]:
    for folder in HIDDEN:
        yield from (f"{folder}/x", f"a/{folder}/x", f"%{ord(folder[0]):02X}{folder[1:]}/x")
    for name in ("_SUCCESS", "_x.parquet", ".x.crc", "%5Fx", "%2ex", "%2Ex.parquet"):
        yield from (name, f"a/{name}", f"p=1/{name}")


def _malformed() -> Iterator[str]:
    for code in CONTROLS:
        yield from (f"a{chr(code)}b", f"p=1/a%{code:02x}b")
    yield from (*BAD_ESCAPES, *NOT_UTF8)
    yield from ("a//b", "a/", "/", "//", "a%2f%2fb", "a%2f", "a///b", "p=1//x")
    yield from (
        "a" * 1025,
        "a/" * 512 + "b",
        "b" * 256,
        "a/" + "b" * 256,
        "é" * 128,
        "%C3%A9" * 128,
    )


PATHS: Final = tuple(dict.fromkeys((*_climbing(), *_elsewhere(), *_hidden(), *_malformed())))

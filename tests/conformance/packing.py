"""Pack this project's part of the corpus: `python -m tests.conformance.packing` writes it again.

The same files give the same archive: names in order, no times, no owners.
"""

import io
import json
import lzma
import sys
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from tests.corpora import ARCHIVE, CORPUS

OWN: Final = "spark44"
"""The folder of the tables that delta-spark wrote for this project."""

_TREES: Final = (f"tables/{OWN}", f"expected/{OWN}", "conflicts")
_FILES: Final = ("run.py", "LICENSE-APACHE-2.0.txt", "NOTICE.txt")
_MANIFEST: Final = "manifest.json"


def is_own(entry: Mapping[str, Any]) -> bool:
    """Return whether a table or case of the manifest belongs to this project."""
    return str(entry["table"]).startswith(f"tables/{OWN}/")


def manifest_of(corpus: Path) -> bytes:
    """Return the manifest with this project's entries only, one per line."""
    whole = json.loads((corpus / _MANIFEST).read_text(encoding="utf-8"))
    lists = {
        "sources": [item for item in whole["sources"] if item["repo"].startswith("delta-spark")],
        "tables": [one for one in whole["tables"] if is_own(one)],
        "cases": [one for one in whole["cases"] if is_own(one)],
    }
    head = {name: value for name, value in whole.items() if name not in lists}
    lines = [f" {_json(name)}: {_json(value)}" for name, value in head.items()]
    lines += [
        f" {_json(name)}: [\n" + ",\n".join(f"  {_json(entry)}" for entry in entries) + "\n ]"
        for name, entries in lists.items()
    ]
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def members_of(corpus: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name and bytes of each file in the archive, in order."""
    result = {name: corpus / name for name in _FILES}
    for tree in _TREES:
        for path in (corpus / tree).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                result[path.relative_to(corpus).as_posix()] = path
    contents = {name: path.read_bytes() for name, path in result.items()}
    contents[_MANIFEST] = manifest_of(corpus)
    yield from sorted(contents.items(), key=lambda member: member[0].encode())


def tar_of(corpus: Path) -> bytes:
    """Return the archive before it is compressed."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as packed:
        for name, content in members_of(corpus):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o644
            packed.addfile(member, io.BytesIO(content))
    return out.getvalue()


def main() -> int:
    """Write the archive from the corpus beside the clone."""
    packed = lzma.compress(tar_of(CORPUS), preset=9 | lzma.PRESET_EXTREME)
    ARCHIVE.write_bytes(packed)
    Console().print(f"{ARCHIVE}: {len(packed):,} bytes")
    return 0


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


if __name__ == "__main__":
    sys.exit(main())

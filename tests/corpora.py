"""Locate the conformance corpus: the whole one beside the clone, or the archive in the repository.

The archive holds the tables that delta-spark wrote for this project and its conflict vectors; it
does not hold the tables of other projects. `TIDEGATE_CORPUS` names another folder.
"""

import hashlib
import os
import shutil
import tarfile
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
CORPUS: Final = Path(
    os.environ.get("TIDEGATE_CORPUS") or ROOT.parent / "shared" / "conformance"
).absolute()
ARCHIVE: Final = ROOT / "tests" / "conformance" / "spark44.tar.xz"
ABSENT: Final = (
    f"no conformance corpus beside this clone ({CORPUS}): of its cases only those that travel in "
    f"{ARCHIVE.relative_to(ROOT)} are judged"
)


def whole_corpus() -> Path | None:
    """Return the folder of the whole corpus, or None if the clone has none beside it."""
    return CORPUS if (CORPUS / "manifest.json").is_file() else None


@cache
def own_corpus() -> Path:
    """Return a folder with this project's part of the corpus; unpack it if the whole is missing."""
    return whole_corpus() or unpacked(ARCHIVE, ROOT / ".cache" / "conformance")


def unpacked(archive: Path, cache_folder: Path) -> Path:
    """Return the folder with an archive's content; each archive is unpacked once."""
    folder = cache_folder / hashlib.sha256(archive.read_bytes()).hexdigest()[:16]
    if folder.is_dir():
        return folder
    cache_folder.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(dir=cache_folder, prefix="unpacking-"))
    with tarfile.open(archive, "r:xz") as packed:
        packed.extractall(fresh, filter="data")
    try:
        fresh.rename(folder)
    except OSError:
        # Another process unpacked the same content first.
        shutil.rmtree(fresh)
    return folder

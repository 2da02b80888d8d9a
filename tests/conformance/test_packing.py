"""The archive in the repository equals this project's part of the corpus, byte for byte."""

import lzma
from pathlib import Path

from tests.conformance import packing
from tests.corpora import ARCHIVE, unpacked

SIZE_MAX = 1 << 20
"""Limit on the archive's size in bytes, so that clones stay small."""


def test_the_archive_is_what_the_corpus_beside_the_clone_holds(corpus: Path) -> None:
    assert lzma.decompress(ARCHIVE.read_bytes()) == packing.tar_of(corpus)


def test_the_archive_is_small() -> None:
    assert ARCHIVE.stat().st_size <= SIZE_MAX


def test_names_survive_the_archive_byte_for_byte(corpus: Path, tmp_path: Path) -> None:
    folder = unpacked(ARCHIVE, tmp_path)
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert there == {name for name, _ in packing.members_of(corpus)}
    odd = [name for name in there if any(mark in name for mark in " %:\N{GRINNING FACE}")]
    assert len(odd) > 20


def test_an_archive_is_unpacked_once(tmp_path: Path) -> None:
    folder = unpacked(ARCHIVE, tmp_path)
    (folder / "mine").touch()
    assert unpacked(ARCHIVE, tmp_path) == folder
    assert (folder / "mine").exists()
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]


def test_the_licence_travels_with_the_data(tmp_path: Path) -> None:
    folder = unpacked(ARCHIVE, tmp_path)
    assert "Apache License" in (folder / "LICENSE-APACHE-2.0.txt").read_text(encoding="utf-8")
    assert (folder / "NOTICE.txt").stat().st_size > 0

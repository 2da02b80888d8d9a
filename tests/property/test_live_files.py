"""The map of live files equals a dict with the same changes, whatever the hashes are."""

from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate_committer.state import live_files
from tidegate_committer.state.live_files import LiveFiles
from tidegate_delta.log.file_paths import canonical_path, canonical_paths

Files = dict[str, str | None]
Change = tuple[Files, list[str]]

spellings = st.sampled_from(
    ["a", "./a", "%61", "p=a%20b/c", "p=a b/c", "s3://b/d", "S3://b//d", "a/../e", "\0", "\u00e4"]
) | st.text(st.characters(codec="utf-8"), max_size=6)
paths = spellings.map(canonical_path)
vectors = st.none() | st.sampled_from(["u1", "u2"])
changes = st.tuples(st.dictionaries(paths, vectors, max_size=6), st.lists(paths, max_size=6))
hashes = st.sampled_from([hash, len, lambda text: 0, lambda text: (len(text) % 5 - 2) << 61])


@pytest.fixture(autouse=True)
def _small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live_files, "PART_FILES", 2)
        patch.setattr(live_files, "CHANGES_MIN", 1)
        patch.setattr(live_files, "SLICE", 3)
        yield


@st.composite
def columns(draw: st.DrawFn) -> pa.ChunkedArray:
    """Draw paths as a log writes them, each file once, in chunks."""
    spelled = draw(st.lists(spellings, unique_by=canonical_path, max_size=30))
    edges = sorted(draw(st.lists(st.integers(0, len(spelled)), max_size=3)))
    pieces = zip([0, *edges], [*edges, len(spelled)], strict=True)
    return pa.chunked_array([spelled[start:end] for start, end in pieces], pa.string())


@given(columns(), st.dictionaries(paths, st.just("u0")), st.lists(changes, max_size=8), hashes)
def test_it_is_a_dict_of_canonical_paths_changed_alike(
    column: pa.ChunkedArray, held: dict[str, str], after: list[Change], hashed: object
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live_files, "hash", hashed, raising=False)
        found = LiveFiles.of(canonical_paths(column), held)
        plain: Files = {
            (path := canonical_path(item)): held.get(path) for item in column.to_pylist()
        }
        versions = [(found, plain)]
        for put, drop in after:
            found = found.changed(put, drop)
            plain = {**{one: said for one, said in plain.items() if one not in drop}, **put}
            versions.append((found, plain))
        for found, plain in versions:
            asked = {*held, *(path for put, drop in after for path in (*put, *drop))}
            assert {path: found.get(path, "gone") for path in asked} == {
                path: plain.get(path, "gone") for path in asked
            }
            assert dict(found) == plain
            assert (len(found), found.with_vector) == (
                len(plain),
                sum(said is not None for said in plain.values()),
            )

import pyarrow as pa
import pytest

from tidegate_delta.log import file_paths as paths_module
from tidegate_delta.log.file_paths import (
    canonical_path,
    canonical_paths,
    decode_path,
    encode_path,
    unusual_in,
)


@pytest.mark.parametrize(
    ("log", "key"),
    [
        ("a.parquet", "a.parquet"),
        ("p=US%252FEast/a.parquet", "p=US%2FEast/a.parquet"),
        ("p=%20lead/q=trail%20/a.parquet", "p= lead/q=trail /a.parquet"),
        ("p=😀/q=a+b&c;d/a.parquet", "p=😀/q=a+b&c;d/a.parquet"),
    ],
)
def test_a_relative_path_is_decoded_once(log: str, key: str) -> None:
    assert decode_path(log) == key
    assert decode_path(encode_path(key)) == key


@pytest.mark.parametrize("path", ["s3://b/a%20b.parquet", "file:/t/a.parquet", "/t/a.parquet"])
def test_an_absolute_path_stays_as_the_log_spells_it(path: str) -> None:
    assert decode_path(path) == path


def test_a_hive_escaped_value_is_escaped_again_for_the_log() -> None:
    assert encode_path("p=US%2FEast/a b.parquet") == "p=US%252FEast/a%20b.parquet"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a b.parquet", "a%20b.parquet"),
        ("p=%C3%BC/a", "p=ü/a"),
        ("./x/a", "x//a"),
        ("file:/t/a%20b", "file:///t/a b"),
        ("/t/a%20b", "file:/t/a b"),
        ("S3://b/a", "s3://b/a"),
    ],
)
def test_spellings_of_one_file_are_equal(one: str, other: str) -> None:
    assert canonical_path(one) == canonical_path(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a%2520b", "a%20b"),
        ("s3://b/a", "s3://c/a"),
        ("/t/a", "t/a"),
        ("p=./a", "p=../a"),
        ("a", "a/"),
    ],
)
def test_two_files_are_never_equal(one: str, other: str) -> None:
    assert canonical_path(one) != canonical_path(other)


def test_an_undecodable_path_is_kept() -> None:
    assert canonical_path("a%FFb") == "a%FFb"


def test_many_paths_are_what_each_is_alone() -> None:
    paths = [
        "plain",
        "plain/",
        "a%20b",
        "x//y",
        "s3://b/a%20b",
        "./z",
        "p=.",
        "../up",
        "a%FFb",
        "ü",
    ]
    table = pa.chunked_array([paths[:4], paths[4:]], pa.string())
    assert canonical_paths(table).to_pylist() == [canonical_path(path) for path in paths]


ODD = ["a%20b", "x//y", "s3://b/c", "x:/y", "/abs", "./z", "../up", ".", "..", "a/./b", "a/..", ""]


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("start", [0, 1, 2])
def test_one_odd_path_among_plain_ones_is_found(odd: str, start: int) -> None:
    paths = ["%", "plain", odd, "p=1/a.parquet", "z"][start:]
    column = pa.chunked_array([["%", "plain", odd, "p=1/a.parquet", "z"]], pa.string())
    result = canonical_paths(column.slice(start)).to_pylist()
    assert result == [canonical_path(path) for path in paths]


def test_plain_paths_are_handed_back_as_they_are() -> None:
    column = pa.chunked_array([["p=1/a.parquet", "b-0.c"], []], pa.string())
    assert canonical_paths(column) is column


@pytest.mark.parametrize("piece_bytes", range(1, 24))
def test_odd_paths_are_found_wherever_the_text_of_all_is_cut(
    monkeypatch: pytest.MonkeyPatch, piece_bytes: int
) -> None:
    monkeypatch.setattr(paths_module, "PIECE_BYTES", piece_bytes)
    for odd in ("p=1//b", "p=1/./b", "p=1%41", "s3://b/c", "p= 1"):
        column = pa.chunked_array([pa.array(["first", "p=0/a", odd, "p=2/c"]).slice(1)])
        keys = canonical_paths(column)
        assert keys.to_pylist() == ["p=0/a", canonical_path(odd), "p=2/c"]
        is_unusual = odd != "s3://b/c"
        assert dict(unusual_in(column, keys)) == ({canonical_path(odd): odd} if is_unusual else {})

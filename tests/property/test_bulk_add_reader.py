"""The bulk reader of adds returns what the reader of single lines returns."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate_delta.errors import BrokenLog
from tidegate_delta.snapshots import replay
from tidegate_delta.snapshots.file_action_columns import ADD_SCHEMA, KEY_SCHEMA
from tidegate_delta.snapshots.replay import parse_log_file, parse_log_files

texts = st.sampled_from(["", "a", "ä\U0001f600", 'q"\\/', "\u0000\u007f", "%20", "2024-01-01"])
vectors = st.fixed_dictionaries(
    {"storageType": st.just("u"), "pathOrInlineDv": texts, "sizeInBytes": st.integers(1, 9)},
    optional={"offset": st.integers(0, 9), "cardinality": st.integers(0, 9)},
)
OPTIONAL: dict[str, st.SearchStrategy[Any]] = {
    "stats": texts | st.none(),
    "tags": st.dictionaries(texts, texts | st.none(), max_size=2) | st.none(),
    "deletionVector": vectors | st.none(),
    "baseRowId": st.integers(-(2**63), 2**63 - 1) | st.none(),
    "clusteringProvider": texts,
    "unknown": st.sampled_from([None, 1, {"a": []}]),
}
regular = st.fixed_dictionaries(
    {
        "path": texts,
        "partitionValues": st.fixed_dictionaries({"p": texts, "q": texts}),
        "size": st.integers(0, 2**40),
        "modificationTime": st.integers(0, 2**40),
        "dataChange": st.booleans(),
        "stats": texts,
    }
)
irregular = st.fixed_dictionaries(
    {"path": texts, "partitionValues": st.dictionaries(texts, texts | st.none(), max_size=2)},
    optional={
        "size": st.sampled_from([1, 1.0, 1.5, "1", True, 2**63]),
        "dataChange": st.sampled_from([True, None, 0, "true"]),
        **OPTIONAL,
    },
)
commits = st.lists(
    st.lists(regular, max_size=4) | st.lists(regular | irregular, max_size=4), min_size=1
)
around: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [{"commitInfo": {"timestamp": 1}}, {"txn": {"appId": "a", "version": 1}}]
)


def line(row: dict[str, Any], spaced: bool) -> str:
    return json.dumps(row, ensure_ascii=False, separators=None if spaced else (",", ":"))


@st.composite
def contents(draw: st.DrawFn) -> list[tuple[str, bytes]]:
    result = []
    for number, adds in enumerate(draw(commits)):
        head, tail = (draw(st.lists(around, max_size=1)) for _ in range(2))
        rows: list[dict[str, Any]] = [*head, *({"add": add} for add in adds), *tail]
        spaced = draw(st.booleans()) and draw(st.booleans())
        text = "\n".join(line(row, spaced) for row in rows) + draw(st.sampled_from(["", "\n"]))
        result.append((f"{number:020d}.json", text.encode()))
    return result


def rows(files: pa.Table) -> list[dict[str, Any]]:
    """Return the rows with mappings as dicts, because the order of keys means nothing."""
    return [
        {key: dict(value) if isinstance(value, list) else value for key, value in row.items()}
        for row in files.to_pylist()
    ]


def read(named: list[tuple[str, bytes]], files: pa.Schema) -> list[Any]:
    try:
        return [(rows(p.files), p.txns, p.info) for p in parse_log_files(named, files)]
    except BrokenLog as error:
        return [error.error_class]


@settings(max_examples=200, deadline=None)
@given(contents(), st.sampled_from([ADD_SCHEMA, KEY_SCHEMA]))
def test_lines_read_together_equal_lines_read_one_by_one(
    named: list[tuple[str, bytes]], files: pa.Schema
) -> None:
    one_by_one = read(named, files)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay, "BYTES_MIN", 1)
        assert read(named, files) == one_by_one


@settings(max_examples=200, deadline=None)
@given(contents(), st.data())
def test_damaged_lines_give_a_value_or_our_error(
    named: list[tuple[str, bytes]], data: st.DataObject
) -> None:
    damaged = []
    for name, content in named:
        at = data.draw(st.integers(0, len(content)))
        put = data.draw(st.sampled_from([b"", b"\n", b"}", b"\xff", b"\\ud800", b"{}", b"0"]))
        damaged.append((name, content[:at] + put + content[at + 1 :]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay, "BYTES_MIN", 1)
        fast = read(damaged, ADD_SCHEMA)
    assert fast == read(damaged, ADD_SCHEMA)


def test_a_run_of_like_lines_is_read_by_columns() -> None:
    run = b"\n".join(
        b'{"add":{"path":"f%d","partitionValues":{"p":"1"},"size":%d}}' % (at, at)
        for at in range(2_000)
    )

    tables = replay.read_runs([run, b"", run[: run.index(b"\n")]])

    assert tables is not None
    assert [table.num_rows for table in tables] == [2_000, 0, 1]
    named = [("a", run), ("b", b""), ("c", run[: run.index(b"\n")])]
    assert [t.to_pylist() for t in tables] == [
        parse_log_file(*item).files.to_pylist() for item in named
    ]

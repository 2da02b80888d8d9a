"""Deletion vectors of many proposals merge into one per file; the rest of the file is unchanged."""

import json
from typing import Any
from uuid import UUID

import pytest

from tests import builders
from tests.support.decisions import flawless
from tidegate_committer.intake.action_reader import dated
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.row_level.merged_row_deletes import (
    FileDeletes,
    MergedDeletes,
    MergeEffects,
    effects,
    with_wide_bounds,
)
from tidegate_committer.state.fetched_inputs import FetchedInputs
from tidegate_delta.deletion_vectors.descriptors import framed_rows, inline, inline_rows
from tidegate_delta.deletion_vectors.roaring_bitmap import Bitmap, of_rows
from tidegate_delta.log.actions import Add
from tidegate_messages.proposal import Proposal, RowIntent

NAME = UUID(int=7)


def file(path: str = "a", rows: int = 10, gone: Bitmap | None = None, **fields: Any) -> Add:
    stats = json.dumps({"numRecords": rows, "minValues": {"x": 1}})
    body = {**builders.add(path)["add"], "stats": stats, **fields}
    return Add.model_validate(body).with_(deletion_vector=inline(gone) if gone else None)


def merged(
    *deletes: RowIntent, files: list[Add], gone: Bitmap | None = None, inline_max: int = 1_024
) -> MergeEffects:
    rows: dict[str, Bitmap | str] = {}
    if gone is not None:
        rows = {key: gone for key in [_key(file) for file in files] if key}
    known = FetchedInputs(files={file.path: file for file in files}, rows=rows)
    merges = MergedDeletes()
    for delete in deletes:
        merges.take(considered(delete), known)
    return effects(merges, NAME, inline_max)


def considered(one: RowIntent | Proposal) -> Candidate:
    return flawless(builders.row_delete(one) if isinstance(one, RowIntent) else one)


def _key(one: Add) -> str:
    vector = one.deletion_vector
    return f"{vector.unique_id}:{vector.size_in_bytes}:{vector.cardinality}" if vector else ""


def lines(found: MergeEffects) -> list[builders.Row]:
    return [json.loads(dated(line, builders.NOW_MS)) for line in found.content.lines]


def test_nothing_is_written_where_nothing_is_deleted() -> None:
    assert effects(MergedDeletes(), NAME) == MergeEffects()


def test_a_file_leaves_with_its_vector_and_comes_back_with_the_union() -> None:
    gone = of_rows([0])
    kept: builders.Row = {"baseRowId": 40, "defaultRowCommitVersion": 3, "tags": {"k": "v"}}
    there = file(gone=gone, clusteringProvider="liquid", **kept)
    result = merged(
        builders.rows_of("a", [1, 2]), builders.rows_of("a", [2, 9]), files=[there], gone=gone
    )
    [removed, added] = lines(result)
    assert there.deletion_vector is not None
    old = there.deletion_vector.model_dump(by_alias=True, exclude_none=True)
    assert removed["remove"] == {
        "path": "a",
        "dataChange": True,
        "deletionTimestamp": builders.NOW_MS,
        "extendedFileMetadata": True,
        "partitionValues": {},
        "size": 100,
        "deletionVector": old,
        **kept,
    }
    [back] = result.files.values()
    assert back.deletion_vector is not None
    assert list(inline_rows(back.deletion_vector)) == [0, 1, 2, 9]
    assert json.loads(added["add"].pop("stats")) == {
        "numRecords": 10,
        "minValues": {"x": 1},
        "tightBounds": False,
    }
    assert added["add"].pop("deletionVector")["cardinality"] == 4
    assert added["add"] == {
        "path": "a",
        "partitionValues": {},
        "size": 100,
        "modificationTime": builders.NOW_MS,
        "dataChange": True,
        "clusteringProvider": "liquid",
        **kept,
    }


def test_a_file_without_rows_only_leaves() -> None:
    result = merged(
        builders.rows_of("a", range(6)), builders.rows_of("a", range(5, 10)), files=[file()]
    )
    assert [list(row) for row in lines(result)] == [["remove"]]
    assert result.content.removed == {"a"}
    assert not result.content.added
    assert not result.revised


@pytest.mark.parametrize(("inline_max", "kinds"), [(0, "uuu"), (1_024, "uiu")])
def test_vectors_go_into_one_file_under_a_new_name(inline_max: int, kinds: str) -> None:
    files = [file("a", 100_000), file("b", 100_000), file("c", 100_000)]
    wide = {"num_records": 100_000}
    gone = {"a": range(0, 2_000, 2), "b": [7], "c": range(1, 3_000, 2)}
    deletes = [builders.rows_of(name, rows, **wide) for name, rows in gone.items()]
    result = merged(*deletes, files=files, inline_max=inline_max)
    assert result.written is not None
    path, content = result.written
    assert path == f"deletion_vector_{NAME}.bin"
    for (name, rows), kind in zip(gone.items(), kinds, strict=True):
        vector = result.files[name].deletion_vector
        assert vector is not None
        assert vector.storage_type == kind
        if kind == "u":
            assert vector.offset is not None
            frame = content[vector.offset : vector.offset + vector.size_in_bytes + 8]
            assert framed_rows(vector, frame) == of_rows(rows)
        else:
            assert inline_rows(vector) == of_rows(rows)


def test_a_tally_counts_each_row_once() -> None:
    tally = FileDeletes(file(), of_rows([3, 70_000]))
    assert tally.take(of_rows([3, 4])) == 1
    assert tally.take(of_rows([4, 5, 140_000])) == 2
    assert tally.rows == of_rows([3, 4, 5, 70_000, 140_000])


def test_rows_far_apart_in_one_file_are_apart() -> None:
    wide = {"num_records": 200_000}
    there = FetchedInputs(files={"a": file("a", 200_000)})
    merges = MergedDeletes()
    merges.take(considered(builders.rows_of("a", [1], **wide)), there)
    for rows, apart in (([2], True), ([70_000], True), ([1, 70_000], False)):
        other = considered(builders.rows_of("a", rows, **wide))
        assert merges.are_apart_from(other, there) == apart
    assert not merges.are_apart_from(considered(builders.delete("a")), there)


@pytest.mark.parametrize(
    "stats",
    [
        "{}",
        " { } ",
        '{"numRecords":1}',
        '{"numRecords":1,"tightBounds":true}',
        '{"tightBounds" : true , "numRecords" : 1.50 }',
        '{"numRecords":1,"tightBounds":false}',
        '{"minValues":{"tightBounds":true,"d":12345678901234567890.123456789},"numRecords":1}',
        '{"minValues":{"s":"\\"tightBounds\\":true"},"tightBounds":true,"maxValues":{"s":"}"}}\n',
    ],
)
def test_bounds_become_wide_and_every_number_stays_as_it_was_written(stats: str) -> None:
    result = with_wide_bounds(stats)
    assert json.loads(result) == {**json.loads(stats), "tightBounds": False}
    for number in ("12345678901234567890.123456789", "1.50"):
        assert (number in result) == (number in stats)

"""Row groups are copied into another file as they are, and pyarrow reads them there."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidegate_runtime.table_io.row_group_copying import RowGroup, append_row_groups, read_row_groups

GROUP_ROWS = 100
PIECES = (3, 7, 8, 9, 1)


def rows(count: int = 1_000) -> pa.Table:
    numbers = range(count)
    return pa.table(
        {
            "number": pa.array(numbers),
            "text": [None if number % 5 == 0 else f"text {number % 7}" for number in numbers],
            "nothing": pa.nulls(count, pa.string()),
            "nested": [{"list": [number] * (number % 3)} for number in numbers],
        }
    )


def written(table: pa.Table, **options: object) -> io.BytesIO:
    buffer = io.BytesIO()
    pq.write_table(table, buffer, **options)
    return buffer


def groups(source: io.BytesIO, *numbers: int) -> list[RowGroup]:
    every = read_row_groups(source).groups
    chosen = [every[number] for number in numbers]
    return [group for group in chosen if group is not None]


def read(target: io.BytesIO) -> pa.Table:
    return pq.read_table(io.BytesIO(target.getvalue()))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"compression": "zstd"},
        {"use_dictionary": False, "write_statistics": False},
        {"write_page_index": True},
        {"data_page_version": "2.0", "data_page_size": 64},
    ],
)
def test_the_rows_of_copied_groups_follow_those_of_the_file(options: dict[str, object]) -> None:
    source = written(rows(), row_group_size=GROUP_ROWS, **options)
    target = written(rows().slice(0, 50))
    append_row_groups(target, source, groups(source, *PIECES))
    parts = [rows().slice(number * GROUP_ROWS, GROUP_ROWS) for number in PIECES]
    assert read(target).equals(pa.concat_tables([rows().slice(0, 50), *parts]))


def test_statistics_and_sizes_go_with_a_group() -> None:
    source = written(rows(), row_group_size=GROUP_ROWS)
    target = written(rows().slice(0, 0))
    append_row_groups(target, source, groups(source, *PIECES))
    before, after = pq.read_metadata(source), pq.read_metadata(io.BytesIO(target.getvalue()))
    assert after.num_rows == len(PIECES) * GROUP_ROWS
    copies = range(after.num_row_groups - len(PIECES), after.num_row_groups)
    for number, copy in zip(PIECES, copies, strict=True):
        for column in range(after.num_columns):
            own, theirs = (
                after.row_group(copy).column(column),
                before.row_group(number).column(column),
            )
            assert own.statistics == theirs.statistics
            assert own.total_compressed_size == theirs.total_compressed_size


def test_a_copied_group_is_copied_again() -> None:
    source = written(rows(), row_group_size=GROUP_ROWS)
    for _ in range(3):
        target = written(rows().slice(0, 10))
        count = len(read_row_groups(source).groups)
        append_row_groups(target, source, groups(source, *range(count)))
        source = target
    assert read(source).num_rows == 1_000 + 3 * 10
    assert read(source).slice(30).equals(rows())


def test_files_of_other_columns_have_another_shape() -> None:
    shape = read_row_groups(written(rows())).shape
    assert read_row_groups(written(rows(10), compression="zstd")).shape == shape
    for other in (
        rows().drop_columns(["nothing"]),
        rows().select(["text", "number", "nothing", "nested"]),
        rows().cast(rows().schema.set(0, pa.field("number", pa.int64(), nullable=False))),
        rows().set_column(0, "number", rows()["number"].cast(pa.int32())),
    ):
        assert read_row_groups(written(other)).shape != shape


def test_a_group_that_is_cut_off_is_not_copied() -> None:
    source = written(rows(), row_group_size=GROUP_ROWS)
    [last] = groups(source, 9)
    with pytest.raises(ValueError, match="shorter than its footer says"):
        append_row_groups(written(rows(1)), io.BytesIO(source.getvalue()[: last.end - 1]), [last])


def test_any_bit_flipped_in_a_footer_gives_a_value_or_our_error() -> None:
    content = written(rows(10)).getvalue()
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    refused = 0
    for at in range(start, len(content)):
        for bit in range(8):
            flipped = content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]
            source = io.BytesIO(flipped)
            try:
                found = [group for group in read_row_groups(source).groups if group]
                append_row_groups(written(rows(1)), source, found)
            except ValueError:
                refused += 1
    assert refused > 100

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.fakes.memory_store import MemoryStore
from tests.support.table_files import parquet
from tidegate_delta.errors import BrokenLog
from tidegate_delta.log.file_names import LogFile, LogFileKind, Version, checkpoint_name, in_log
from tidegate_runtime.table_io.checkpoint_reader import read_checkpoint
from tidegate_runtime.table_io.parquet_footers import TAIL_BYTES, read_footer

REFUSED = (ValueError, OSError, pa.ArrowException)
NAME = checkpoint_name(1)
FILE = LogFile(Version(1), LogFileKind.CHECKPOINT_CLASSIC, NAME, Version(1))


def rows(count: int = 3) -> pa.Table:
    adds = [{"path": f"f{at}", "size": at, "tags": [("a", None)]} for at in range(count)]
    kind = pa.struct(
        [("path", pa.string()), ("size", pa.int64()), ("tags", pa.map_(pa.string(), pa.string()))]
    )
    return pa.table({"add": pa.array([*adds, None], kind), "flag": [None, *[True] * count]})


@pytest.mark.parametrize("options", [{}, {"row_group_size": 1}, {"write_statistics": ["flag"]}])
def test_nulls_are_those_that_arrow_counts(options: dict[str, object]) -> None:
    content = parquet(rows(), **options)
    result = read_footer(io.BytesIO(content))
    metadata = pq.read_metadata(io.BytesIO(content))
    assert result.metadata.equals(metadata)
    assert len(result.groups) == metadata.num_row_groups
    for at, group in enumerate(result.groups):
        of_arrow = metadata.row_group(at)
        assert group.rows == of_arrow.num_rows
        chunks = [of_arrow.column(leaf) for leaf in range(metadata.num_columns)]
        stated = {chunk.path_in_schema: chunk.statistics for chunk in chunks}
        assert group.nulls == {
            path: one.null_count for path, one in stated.items() if one and one.has_null_count
        }


def test_a_footer_longer_than_the_first_read_is_read() -> None:
    wide = pa.table({f"column{at:04}": [at] for at in range(2_000)})
    content = parquet(wide)
    assert len(content) > 2 * TAIL_BYTES
    result = read_footer(io.BytesIO(content))
    assert len(result.groups[0].nulls) == 2_000


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PAR1",
        b"PAR1\x00\x00\x00\x00PAR1",
        b"PAR1\xff\xff\xff\xffPAR1",
        parquet(rows())[:-1],
        parquet(rows())[:-8] + b"\x01\x00\x00\x00PAR1",
    ],
)
def test_what_is_no_footer_is_refused(content: bytes) -> None:
    with pytest.raises(REFUSED):
        read_footer(io.BytesIO(content))


def test_a_footer_with_any_bit_flipped_is_read_or_refused_and_the_process_lives() -> None:
    content = parquet(rows(1))
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    refused: list[str] = []
    for at in range(start, len(content)):
        for bit in range(8):
            flipped = bytes([content[at] ^ 1 << bit])
            store = MemoryStore()
            store.files[in_log(NAME)] = content[:at] + flipped + content[at + 1 :]
            try:
                read_checkpoint(store, [FILE])
            except BrokenLog as error:
                refused.append(str(error))
    assert len(refused) > 100
    assert [result for result in refused if NAME not in result] == []

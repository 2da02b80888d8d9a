"""Partition values that we accept, as delta-rs reads them; it cannot read those that we refuse."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder

from tests.builders import add, info, metadata, protocol, schema, to_bytes
from tests.unit.delta.schema.partition_samples import READ, UNREAD
from tidegate_delta.log.file_names import commit_name, in_log
from tidegate_delta.schema import partition_values
from tidegate_delta.schema.types import parse_type
from tidegate_runtime.storage.local_store import LocalStore

NTZ = ["timestampNtz"]


def read(folder: Path, kind: str, *texts: str) -> dict[int, object]:
    """Return the partition values that delta-rs reads, by file number."""
    pq.write_table(pa.table({"x": [0]}), folder / "some")
    columns = metadata(["p"])["metaData"]
    columns["schemaString"] = schema(x="long", n="long", p=kind)
    columns["partitionColumns"] = ["p", "n"]
    rows = [info(), protocol(3, 7, readerFeatures=NTZ, writerFeatures=NTZ), {"metaData": columns}]
    for number, text in enumerate(texts):
        path = f"f{number}.parquet"
        pq.write_table(pa.table({"x": [number]}), folder / path)
        size = (folder / path).stat().st_size
        rows.append(add(path, size=size, partitionValues={"p": text, "n": str(number)}))
    LocalStore(folder.as_uri()).put(in_log(commit_name(0)), to_bytes(rows))
    query = QueryBuilder().register("t", DeltaTable(folder))
    result = pa.table(query.execute("select n, p from t").read_all())
    return dict(zip(result["n"].to_pylist(), result["p"].to_pylist(), strict=True))


@pytest.mark.parametrize("kind", READ)
def test_delta_rs_reads_what_is_taken(tmp_path: Path, kind: str) -> None:
    result = read(tmp_path, kind, *READ[kind])
    ours = [partition_values.parse(text, parse_type(kind)) for text in READ[kind]]
    there = [result[number] for number in range(len(ours))]
    assert [str(item) for item in there] == [str(our) for our in ours] or there == ours


@pytest.mark.parametrize(
    ("kind", "text"), [(kind, item) for kind in UNREAD for item in UNREAD[kind]]
)
def test_delta_rs_reads_no_table_with_what_is_refused(tmp_path: Path, kind: str, text: str) -> None:
    with pytest.raises(Exception, match="Failed to parse value"):
        read(tmp_path, kind, text)

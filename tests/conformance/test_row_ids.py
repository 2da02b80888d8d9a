"""Row ids and row commit versions equal those that delta-spark reads."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.conformance.scoring import Case, table_cases
from tidegate_delta.errors import InvalidRequest
from tidegate_runtime.storage.open_store import open_store
from tidegate_runtime.table_io.data_file_reader import read_table
from tidegate_runtime.table_io.open_table import open_snapshot
from tidegate_runtime.table_io.row_ids import ROW_COMMIT_VERSION, ROW_ID

STATED = "rows_with_row_ids"


@pytest.fixture(scope="module")
def stated(own_corpus: Path) -> list[Case]:
    result = [case for case in table_cases(own_corpus) if STATED in case.get("extra", {})]
    assert len(result) > 15
    return result


def test_every_row_has_the_id_and_the_version_that_delta_spark_gives_it(
    own_corpus: Path, stated: list[Case]
) -> None:
    for case in stated:
        expected = pq.read_table(own_corpus / case["extra"][STATED])
        store = open_store(str(own_corpus / case["table"]))
        snapshot = open_snapshot(store, case.get("version"))
        assert {ROW_ID, ROW_COMMIT_VERSION} <= set(expected.column_names)
        found = read_table(store, snapshot, expected.column_names)
        result, wanted = (sorted(map(str, rows.to_pylist())) for rows in (found, expected))
        assert result == wanted, case["name"]
        alone = read_table(store, snapshot, [ROW_ID])
        assert sorted(alone[ROW_ID].to_pylist()) == sorted(expected[ROW_ID].to_pylist())


def test_rows_that_are_not_tracked_have_no_id(own_corpus: Path) -> None:
    store = open_store(str(own_corpus / "tables/spark44/row-tracking-backfill"))
    with pytest.raises(InvalidRequest, match="enableRowTracking"):
        read_table(store, open_snapshot(store, 0), [ROW_ID])


def test_a_table_without_them_named_has_none(own_corpus: Path, stated: list[Case]) -> None:
    store = open_store(str(own_corpus / stated[0]["table"]))
    assert ROW_ID not in read_table(store, open_snapshot(store)).column_names

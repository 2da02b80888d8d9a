"""What a restore would change, of tables that delta-rs wrote."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.builders import metadata
from tidegate_delta.log.actions import Metadata
from tidegate_producers.options import TableLocation
from tidegate_producers.writing.restore import RestorePoint, restored_metadata, survey


def test_files_of_a_compaction_come_back_as_a_change_of_data(tmp_path: Path) -> None:
    for number in range(2):
        write_deltalake(tmp_path, pa.table({"k": [number]}), mode="append")
    table = DeltaTable(tmp_path)
    table.optimize.compact()
    compacted = table.version()
    table.delete()
    [add] = survey(TableLocation(tmp_path.as_uri()), RestorePoint(version=compacted)).restored
    assert add.data_change, "else readers of changes would miss the rows"


@pytest.mark.parametrize(("now", "then", "highest"), [("9", "7", "9"), ("7", "7", "7")])
def test_ids_of_columns_that_came_since_are_not_given_again(
    now: str, then: str, highest: str
) -> None:
    def of(number: str) -> Metadata:
        properties = {"columnMapping.maxColumnId": number, "appendOnly": "true"}
        return Metadata.model_validate(metadata(**properties)["metaData"])

    assert restored_metadata(of(now), of(then)) == of(highest)

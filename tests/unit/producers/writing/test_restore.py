"""What a restore would change, of tables that delta-rs wrote."""

from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from tidegate_producers.options import TableLocation
from tidegate_producers.writing.restore import Moment, survey


def test_files_of_a_compaction_come_back_as_a_change_of_data(tmp_path: Path) -> None:
    for number in range(2):
        write_deltalake(tmp_path, pa.table({"k": [number]}), mode="append")
    table = DeltaTable(tmp_path)
    table.optimize.compact()
    compacted = table.version()
    table.delete()
    [add] = survey(TableLocation(tmp_path.as_uri()), Moment(version=compacted)).restored
    assert add.data_change, "else readers of changes would miss the rows"

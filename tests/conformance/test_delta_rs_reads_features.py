"""A table for each feature that we write: delta-rs and the Rust kernel read it, or refuse it."""

from collections.abc import Callable, Mapping
from typing import Final

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from tests.conformance.feature_tables import FEATURE_TABLES
from tests.conformance.grown_tables import Grown
from tests.conformance.other_readers import delta_rs_rows, kernel_rows
from tests.conformance.written_tables import Deployment
from tidegate_runtime.table_io.data_file_reader import read_table
from tidegate_runtime.table_io.open_table import open_snapshot

REFUSED: Final[Mapping[str, str]] = {
    "widened": r"Unsupported table features required: \[TypeWidening\]",
    "widened_in_preview": r"Unsupported table features required: \[TypeWideningPreview\]",
    "vacuum_checked": r"Unsupported table features required: \[VacuumProtocolCheck\]",
}
"""Table -> delta-rs 1.6.6's message when it refuses it."""

KERNEL_REFUSED: Final[Mapping[str, str]] = {"widened": "Cannot cast list to non-list"}
"""Table -> delta_kernel's message when it refuses it; this one has widened list elements."""


@pytest.fixture(scope="module", params=FEATURE_TABLES, ids=lambda build: build.__name__)
def built(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Grown]:
    build: Callable[[Deployment], Grown] = request.param
    return build.__name__, build(Deployment(tmp_path_factory.mktemp("tables")))


def test_the_rows_are_the_same_or_the_table_is_refused_by_name(built: tuple[str, Grown]) -> None:
    name, table = built
    if name in REFUSED:
        with pytest.raises(DeltaError, match=REFUSED[name]):
            delta_rs_rows(DeltaTable(table.path))
        return
    head = int(table.snapshot.version)
    for version in (head, head - 1):
        ours = read_table(table.store, open_snapshot(table.store, version)).sort_by("k")
        theirs = delta_rs_rows(DeltaTable(table.path, version=version))
        assert theirs.column_names == ours.column_names
        assert theirs.cast(ours.schema).to_pylist() == ours.to_pylist(), f"version {version}"
        assert ours.num_rows > 0


def test_the_kernel_reads_the_same_rows(built: tuple[str, Grown]) -> None:
    name, table = built
    version = int(table.snapshot.version)
    if name in KERNEL_REFUSED:
        with pytest.raises(ValueError, match=KERNEL_REFUSED[name]):
            kernel_rows(table.path, version)
        return
    ours = read_table(table.store, table.snapshot).sort_by("k")
    theirs = kernel_rows(table.path, version)
    assert theirs.column_names == ours.column_names
    assert theirs.cast(ours.schema).to_pylist() == ours.to_pylist()
    assert ours.num_rows > 0


def test_both_read_the_same_from_the_log(built: tuple[str, Grown]) -> None:
    _, table = built
    foreign, head = DeltaTable(table.path), table.snapshot
    result = foreign.protocol()
    assert result.min_reader_version == head.protocol.min_reader_version
    assert result.min_writer_version == head.protocol.min_writer_version
    assert set(result.reader_features or ()) == set(head.protocol.reader_features or ())
    assert set(result.writer_features or ()) == set(head.protocol.writer_features or ())
    metadata = foreign.metadata()
    assert metadata.configuration == head.metadata.configuration
    assert tuple(metadata.partition_columns) == tuple(head.metadata.partition_columns)
    assert len(foreign.file_uris()) == head.files.num_rows

"""Tables as delta-rs and the Rust kernel read them."""

from pathlib import Path

import delta_kernel_rust_sharing_wrapper as rust_kernel
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder


def delta_rs_rows(table: DeltaTable) -> pa.Table:
    """Return the rows that delta-rs reads, in the order of `k`."""
    result = QueryBuilder().register("t", table).execute("SELECT * FROM t ORDER BY k")
    return pa.table(result.read_all() if hasattr(result, "read_all") else result)


def kernel_rows(folder: Path, version: int) -> pa.Table:
    """Return the rows of the newest version, which must be this one, in the order of `k`.

    Raises: ValueError, where the kernel refuses the table.
    """
    where = folder.absolute().as_uri()
    engine = rust_kernel.PythonInterface(where)
    head = rust_kernel.Table(where).snapshot(engine)
    assert head.version() == version
    scan = rust_kernel.ScanBuilder(head).build()
    return pa.Table.from_batches(scan.execute(engine)).sort_by("k")

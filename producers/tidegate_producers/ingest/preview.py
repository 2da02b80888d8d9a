"""What a route would do, for `--dry-run`: its columns, where it begins, and rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from tidegate_producers.cli.output import plain, show
from tidegate_producers.ingest.positions import OffsetsBySource
from tidegate_producers.ingest.record_decoding import FIELD, REASON
from tidegate_producers.ingest.route_batches import good_rows
from tidegate_producers.ingest.settings import OWN_PREFIX
from tidegate_producers.ingest.target_table import TargetTable
from tidegate_producers.table.target_frame import quoted
from tidegate_runtime.cli.command import OUT, printable

ROWS: Final = 10


@dataclass(frozen=True)
class Preview:
    """The columns, the offsets at which each partition begins, and the first rows and faults."""

    name: str
    root: str
    is_there: bool
    columns: StructType
    begins: OffsetsBySource
    rows: Sequence[Sequence[Any]]
    faults: Sequence[tuple[str, str | None, str]]


def preview_of(
    name: str, target: TargetTable, rows: DataFrame, begins: OffsetsBySource, *, is_there: bool
) -> Preview:
    """Return what a route would do with the first records."""
    columns = [F.col(quoted(column)) for column in target.given.names]
    good = good_rows(rows).select(*columns)
    place = F.concat_ws("/", f"{OWN_PREFIX}topic", f"{OWN_PREFIX}partition")
    at = F.concat_ws("@", place, f"{OWN_PREFIX}offset")
    bad = rows.where(F.col(REASON).isNotNull()).select(at, FIELD, REASON)
    return Preview(
        name,
        target.place.root,
        is_there,
        target.given,
        begins,
        [tuple(row) for row in good.limit(ROWS).collect()],
        [(row[0], row[1], row[2]) for row in bad.limit(ROWS).collect()],
    )


def show_preview(preview: Preview) -> None:
    """Print a preview."""
    is_there = "it exists" if preview.is_there else "it would be made"
    OUT.print(printable(f"route {preview.name} into {preview.root}: {is_there}"), soft_wrap=True)
    show(("column", "type"), [(f.name, f.dataType.simpleString()) for f in preview.columns.fields])
    show(("partition", "begins at"), [(str(s), at) for s, at in sorted(preview.begins.items())])
    rows = [[None if cell is None else plain(str(cell)) for cell in row] for row in preview.rows]
    show(preview.columns.names, rows)
    if preview.faults:
        show(("dead letter", "field", "reason"), preview.faults)
    OUT.print("nothing was written")

"""Decides which files of a table's root go, and why each goes or stays. Deletes nothing."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_runtime.clock import instant

FOUND_SCHEMA: Final = pa.schema(
    [
        pa.field("path", pa.string()),
        pa.field("size_bytes", pa.int64()),
        pa.field("since_ms", pa.int64()),
        pa.field("version", pa.int64()),
    ]
)
"""The files that may go. `path` is relative to the root. `since_ms` is when a file was written or,
for one found in the log, removed; `version` is the one that removed it, -1 for a listed file.
"""

_CHANGES: Final = "_change_data/"


@dataclass(frozen=True)
class Needed:
    """The paths of the files that versions name which someone needs."""

    holder: str
    paths: pa.ChunkedArray


@dataclass(frozen=True)
class FileUses:
    """What the log says of files at `version`, and from when on they stay whoever names them.

    `live` are the files of that version, `recent` those removed at the cutoff or later, `removed`
    those removed before. `young_why` says why files since the cutoff stay.
    """

    version: int
    cutoff_ms: int
    young_why: str
    live: pa.ChunkedArray
    recent: pa.ChunkedArray
    removed: pa.ChunkedArray
    needed: tuple[Needed, ...] = ()


@dataclass(frozen=True)
class VacuumPlan:
    """The files that may go, and why each goes or stays.

    Shape: `verdicts` has FOUND_SCHEMA, `why` and `goes`. `notes` are sentences about the whole.
    """

    version: int
    cutoff_ms: int
    retention_ms: int
    verdicts: pa.Table
    notes: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def going(self) -> pa.Table:
        """The files that go."""
        return self.verdicts.filter(self.verdicts["goes"])

    @property
    def size_bytes(self) -> int:
        """The bytes of the files that go, as far as they are known."""
        return int(pc.sum(self.going["size_bytes"], min_count=0).as_py())

    @property
    def done_through(self) -> int:
        """The newest version up to which no file that a version removed is left."""
        left = pc.and_(pc.invert(self.verdicts["goes"]), pc.invert(self.verdicts["is_live"]))
        first = pc.min(self.verdicts["version"].filter(left)).as_py()
        return self.version if first is None else first - 1

    def reasons(self) -> Iterator[tuple[bool, str, int, int]]:
        """Yield whether files go, why, how many, and their bytes; what goes comes first."""
        grouped = self.verdicts.group_by(["goes", "why"]).aggregate(
            [("path", "count"), ("size_bytes", "sum")]
        )
        rows = grouped.sort_by([("goes", "descending"), ("why", "ascending")]).to_pylist()
        for row in rows:
            yield row["goes"], row["why"], row["path_count"], row["size_bytes_sum"]


def verdicts(found_files: pa.Table, uses: FileUses) -> pa.Table:
    """Return the found files with `goes`, `why` and `is_live`.

    Law: what a live action, one within the retention, or a needed version names stays.
    """
    paths = found_files["path"]
    until = instant(uses.cutoff_ms)
    is_live = pc.is_in(paths, uses.live)
    stay_rules = [
        (is_live, f"live in version {uses.version}"),
        (pc.is_in(paths, uses.recent), f"removed since {until}, and readers may still read it"),
        *((pc.is_in(paths, need.paths), f"{need.holder} needs it") for need in uses.needed),
        (pc.greater_equal(found_files["since_ms"], uses.cutoff_ms), uses.young_why),
    ]
    go_rules = [
        (pc.starts_with(paths, _CHANGES), f"change data from before {until}"),
        (pc.is_in(paths, uses.removed), f"removed before {until}"),
    ]
    masks = [mask for mask, _ in (*stay_rules, *go_rules)]
    texts = [pa.scalar(text) for _, text in (*stay_rules, *go_rules)]
    unnamed_reason = pa.scalar(
        f"no version that the log knows names it, and it is from before {until}"
    )
    reasons = pc.case_when(pc.make_struct(*masks), *texts, unnamed_reason)
    is_kept = stay_rules[0][0]
    for mask, _ in stay_rules[1:]:
        is_kept = pc.or_(is_kept, mask)
    columns = {"why": reasons, "goes": pc.invert(is_kept), "is_live": is_live}
    judged = found_files
    for name, column in columns.items():
        judged = judged.append_column(name, column)
    return judged

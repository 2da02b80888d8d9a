"""Finds the few rows of a checkpoint's file that commits name."""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_delta.snapshots.chunked_arrays import flat
from tidegate_delta.snapshots.replay import keys
from tidegate_delta.snapshots.snapshot import KeySet

SCANS_BEFORE_INDEX: Final = 64
"""An index of the keys costs about as much as so many scans.

Spec: "Action Reconciliation"
"""

ROWS_PER_KEY: Final = 256
"""For more keys than one to so many rows, a scan costs less than looking each of them up.

Spec: "Action Reconciliation"
"""


class StoredKeys:
    """The keys of some rows, and an index of them once they have been searched often.

    The index says whether a scan would find anything: mostly not.

    Spec: "Action Reconciliation"
    """

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        self._keys = keys(rows)
        self._scans = 0
        self._index: KeySet | None = None
        self._rows_bytes: int | None = None

    @property
    def size_bytes(self) -> int:
        """The memory that the rows and the index take, about.

        Spec: "Action Reconciliation"
        """
        if self._rows_bytes is None:
            # Counting visits each buffer.
            self._rows_bytes = int(self._rows.nbytes)
        return self._rows_bytes + (self._index.size_bytes if self._index else 0)

    def found(self, touched: pa.Array) -> pa.Array | None:
        """Return a mask of the rows whose keys are among some, or None if there are none.

        Law: found(touched) == is_in(keys, touched), whether there is an index or not
        Spec: "Action Reconciliation"
        """
        if len(touched) * ROWS_PER_KEY <= len(self._keys):
            if self._scans < SCANS_BEFORE_INDEX:
                self._scans += 1
            elif not any(key in self._indexed for key in touched.to_pylist()):
                return None
        mask = flat(pc.is_in(self._keys, value_set=touched))
        return mask if pc.any(mask, min_count=0).as_py() else None

    @property
    def _indexed(self) -> KeySet:
        if self._index is None:
            self._index = KeySet(self._keys)
        return self._index

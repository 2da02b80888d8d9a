"""Which columns the values of a stream have, and which of them are masked or hashed.

Keys are not touched: so a key column is neither left out nor masked nor hashed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_delta.errors import InvalidRequest
from tidegate_messages.schema_change import Column, SchemaStep

MASK: Final = "****"


@dataclass(frozen=True)
class ColumnRules:
    """The columns to include (all, if none are named), to leave out, to mask and to hash.

    Names are compared without their case. Masks and hashes are for text, and keep nulls.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    mask: tuple[str, ...] = ()
    hash: tuple[str, ...] = ()
    salt: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether values have all columns as they are."""
        return not (self.include or self.exclude or self.mask or self.hash)

    def has(self, name: str) -> bool:
        """Return whether values have a column."""
        is_included = not self.include or _in(name, self.include)
        return is_included and not _in(name, self.exclude)

    def schema(self, rows: pa.Schema) -> pa.Schema:
        """Return the columns of values, of a table with the columns `rows`."""
        return pa.schema([field for field in rows if self.has(field.name)])

    def applied(self, rows: pa.Table | pa.RecordBatch) -> pa.Table | pa.RecordBatch:
        """Return rows as values have them."""
        if self.is_empty:
            return rows
        kept = rows.select([name for name in rows.schema.names if self.has(name)])
        for number, name in enumerate(kept.schema.names):
            if _in(name, self.mask) or _in(name, self.hash):
                hidden = self._hidden(name, kept.column(number))
                kept = kept.set_column(number, kept.schema.field(number), hidden)
        return kept

    def visible(self, columns: Sequence[Column]) -> tuple[Column, ...]:
        """Return those of a table's columns that values have; one that they did not have is new."""
        return tuple(
            column
            if column.before is None or self.has(column.before)
            else Column(name=column.name, type=column.type)
            for column in columns
            if self.has(column.name)
        )

    def steps(self, steps: Sequence[SchemaStep]) -> tuple[SchemaStep, ...]:
        """Return the changes of a schema without those of columns that values do not have."""
        return tuple(
            step
            for step in steps
            if not step.column
            or self.has(step.column[0])
            or (step.change == "rename" and len(step.column) == 1 and self.has(str(step.after)))
        )

    def check(self, table: str, rows: pa.Schema, keys: Sequence[str] | None) -> None:
        """Refuse rules that leave a value in the open, or a reader without the key.

        Raises: InvalidRequest (`BadColumns`).
        """
        for name in keys or ():
            if not self.has(name) or _in(name, self.mask) or _in(name, self.hash):
                raise bad_columns(
                    f"table {table}: column {name!r} is a key column, and keys hold it as it is: "
                    "it can be neither left out nor masked nor hashed; choose other key columns"
                )
        for field in rows:
            is_hidden = _in(field.name, self.mask) or _in(field.name, self.hash)
            if is_hidden and self.has(field.name) and not pa.types.is_string(field.type):
                raise bad_columns(
                    f"table {table}: column {field.name!r} has the type {field.type}, and only "
                    "text is masked or hashed; put it into column_exclude_list"
                )

    def _hidden(self, name: str, texts: pa.Array | pa.ChunkedArray) -> pa.Array:
        array = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
        if _in(name, self.mask):
            return pc.if_else(pc.is_null(array), pa.scalar(None, array.type), MASK)
        # Bytes, as Spark writes text that is not UTF-8, too.
        salt = self.salt.encode()
        hashed = [
            None if text is None else sha256(salt + text).hexdigest()
            for text in array.cast(pa.binary()).to_pylist()
        ]
        return pa.array(hashed, array.type)


EVERY_COLUMN: Final = ColumnRules()


def _in(name: str, names: Sequence[str]) -> bool:
    return name.lower() in {listed.lower() for listed in names}


def bad_columns(message: str) -> InvalidRequest:
    """Return the error for columns that values can't have as the settings say."""
    return InvalidRequest(message, error_class="BadColumns")

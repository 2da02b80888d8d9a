"""Identity columns: values for rows, allocated in blocks before their files are written.

Data files contain the values, so these must be allocated first: a `Lease` is a block of values
that belongs to one writer. The high-water mark in the table's schema moves when a write commits,
and only in the direction of the step.

Spec: "Identity Columns"
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tidegate_delta.constraints.generated_columns import is_generated
from tidegate_delta.errors import BrokenLog, InvalidRequest
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_delta.log.protocol_versions import writer_features
from tidegate_delta.schema.column_mapping import ColumnMappingMode, mode_of, physical_name
from tidegate_delta.schema.field_paths import dotted, same_name
from tidegate_delta.schema.types import LONG, StructField, StructType, format_schema, parse_schema

START: Final = "delta.identity.start"
STEP: Final = "delta.identity.step"
MARK: Final = "delta.identity.highWaterMark"
EXPLICIT: Final = "delta.identity.allowExplicitInsert"

LONG_MIN: Final = -(2**63)
LONG_MAX: Final = 2**63 - 1


@dataclass(frozen=True)
class IdentityColumn:
    """A column with the values `start + k * step`; `mark` is the last one allocated, if any."""

    column: str
    physical: str
    start: int
    step: int
    mark: int | None = None
    allows_explicit: bool = False

    def is_beyond(self, value: int, other: int) -> bool:
        """Return whether one value is further in the direction of the step than another."""
        return value > other if self.step > 0 else value < other

    def next_after(self, mark: int | None) -> int:
        """Return the first value beyond a mark. Raises: InvalidRequest where there is none."""
        steps = 0 if mark is None else max(0, (mark - self.start) // self.step + 1)
        return self.check(self.start + steps * self.step)

    def rounded(self, value: int) -> int:
        """Return a value, or else the column's next one in the direction of the step.

        Raises: InvalidRequest where there is none.
        """
        steps = -((self.start - value) // self.step)
        return self.check(self.start + steps * self.step)

    def check(self, value: int) -> int:
        """Return a value of 64 bits. Raises: InvalidRequest for a wider one."""
        if not LONG_MIN <= value <= LONG_MAX:
            raise InvalidRequest(
                f"identity column {dotted((self.column,))!r} has no value left: the next one would "
                f"be {value}, beyond 64 bits; write to a table with another start or step",
                error_class="ARITHMETIC_OVERFLOW",
            )
        return value


@dataclass(frozen=True)
class Lease:
    """A block of an identity column's values for one writer: `first`, `first + step`, ...
    `last`.
    """

    column: str
    physical: str
    first: int
    step: int
    count: int

    def lapses(self, mark: int | None) -> bool:
        """Return whether the mark has reached the block, so that its values may be in use.

        Writers that do not know leases allocate from the mark.
        """
        if mark is None:
            return False
        return self.first <= mark if self.step > 0 else self.first >= mark

    @property
    def last(self) -> int:
        """The last value of the block, which is the mark once all of it is used."""
        return self.first + (self.count - 1) * self.step

    def value(self, row: int) -> int:
        """Return the value of a row of the block. Raises: IndexError beyond its end."""
        if not 0 <= row < self.count:
            raise IndexError(f"row {row} of a block of {self.count} values")
        return self.first + row * self.step

    def holds(self, least: int, greatest: int) -> bool:
        """Return whether both values, and so all values used between them, belong to the block."""
        low, high = sorted((self.first, self.last))
        aligned = (least - self.first) % self.step == 0 == (greatest - self.first) % self.step
        return low <= least <= greatest <= high and aligned


def identity_columns(metadata: Metadata, protocol: Protocol) -> tuple[IdentityColumn, ...]:
    """Return the identity columns of a table, in order; () without the table feature.

    Raises: BrokenLog for a column whose identity metadata is invalid or incomplete.
    """
    if "identityColumns" not in writer_features(protocol):
        return ()
    mode = mode_of(metadata)
    columns = (identity_of(column, mode) for column in parse_schema(metadata.schema_string))
    return tuple(column for column in columns if column is not None)


def identity_of(
    field: StructField, mode: ColumnMappingMode = ColumnMappingMode.NONE
) -> IdentityColumn | None:
    """Return a column's identity metadata, or None for a column that is no identity column.

    Raises: BrokenLog for identity metadata that is invalid or incomplete.
    """
    keys = [key for key in (START, STEP, EXPLICIT) if key in field.metadata]
    if not keys:
        return None
    if len(keys) < len((START, STEP, EXPLICIT)):
        raise _broken(
            field, f"has only {', '.join(keys)}", "DELTA_IDENTITY_COLUMN_INCONSISTENT_METADATA"
        )
    explicit = field.metadata[EXPLICIT]
    if not isinstance(explicit, bool):
        raise _broken(field, f"has {explicit!r} as {EXPLICIT}")
    step = _long(field, STEP)
    if step == 0:
        raise _broken(field, "has the step 0", "DELTA_IDENTITY_COLUMNS_ILLEGAL_STEP")
    mark = _long(field, MARK) if MARK in field.metadata else None
    physical = physical_name(field, mode)
    return IdentityColumn(field.name, physical, _long(field, START), step, mark, explicit)


def define(field: StructField, start: int, step: int, *, allows_explicit: bool) -> StructField:
    """Return a column of a table that is to be created, made an identity column.

    Raises: InvalidRequest for a column or numbers that do not allow it.
    """
    column = f"identity column {dotted((field.name,))!r}"
    if field.kind != LONG:
        raise InvalidRequest(
            f"{column} is a {field.kind}; make it a long",
            error_class="DELTA_IDENTITY_COLUMNS_UNSUPPORTED_DATA_TYPE",
        )
    if step == 0 or not all(LONG_MIN <= number <= LONG_MAX for number in (start, step)):
        raise InvalidRequest(
            f"{column} would start at {start} and go on by {step}; expected numbers of 64 bits, "
            "and a step that is not 0",
            error_class="DELTA_IDENTITY_COLUMNS_ILLEGAL_STEP",
        )
    if is_generated(field):
        raise InvalidRequest(
            f"{column} is generated by an expression; leave one out",
            error_class="DELTA_IDENTITY_COLUMNS_WITH_GENERATED_EXPRESSION",
        )
    numbers = {START: start, STEP: step, EXPLICIT: allows_explicit}
    return replace(field, metadata={**field.metadata, **numbers})


def check_identities(schema: StructType, partition_columns: Sequence[str]) -> None:
    """Refuse identity columns that no writer can fill.

    Raises: InvalidRequest, naming the column; as `identity_of`.
    """
    for field in schema:
        identity = identity_of(field)
        if identity is None:
            continue
        define(field, identity.start, identity.step, allows_explicit=identity.allows_explicit)
        if any(same_name(field.name, name) for name in partition_columns):
            raise InvalidRequest(
                f"the table is partitioned by its identity column {dotted((field.name,))!r}; "
                "partition it by another",
                error_class="DELTA_IDENTITY_COLUMNS_PARTITION_NOT_SUPPORTED",
            )


def check_alterable(field: StructField) -> None:
    """Refuse a change of an identity column beyond its name, position and comment.

    Raises: InvalidRequest.
    """
    if identity_of(field) is not None:
        raise InvalidRequest(
            f"column {dotted((field.name,))!r} is an identity column, whose type, nulls and "
            "default can't be changed; write a new column",
            error_class="DELTA_IDENTITY_COLUMNS_ALTER_COLUMN_NOT_SUPPORTED",
        )


def lease(column: IdentityColumn, count: int, given_out: Iterable[Lease] = ()) -> Lease:
    """Return the next block of values, beyond the mark and the leases that are not committed yet.

    Law: two blocks, of which the second knows the first, share no value
    Raises: InvalidRequest for an empty block, and where there are too few values left.
    """
    if count < 1:
        raise InvalidRequest(f"a block of {count} identity values; ask for one at least")
    mark = column.mark
    for other in given_out:
        if other.physical == column.physical and (
            mark is None or column.is_beyond(other.last, mark)
        ):
            mark = other.last
    block = Lease(column.column, column.physical, column.next_after(mark), column.step, count)
    column.check(block.last)
    return block


def raised(column: IdentityColumn, value: int) -> int | None:
    """Return a column's mark after a value was written to it; None where there is none yet.

    A value before the start does not move the mark. A value that a writer supplied is rounded in
    the direction of the step, so that the next value is one of the column's own.
    Law: the returned mark is never behind the old one
    Raises: InvalidRequest for a value beyond which none is left.
    """
    mark = column.mark
    is_repaired = mark is not None and column.is_beyond(column.start, mark)
    if column.is_beyond(column.start, value) and not is_repaired:
        return mark
    rounded = column.rounded(value)
    return rounded if mark is None or column.is_beyond(rounded, mark) else mark


def with_marks(metadata: Metadata, values: Mapping[str, Iterable[int]]) -> Metadata:
    """Return a table's metadata after values, by physical name, were written to its columns.

    Names of other columns are ignored.
    Law: with_marks(with_marks(m, v), v) == with_marks(m, v)
    Raises: as `raised` and `identity_of`.
    """
    mode = mode_of(metadata)
    schema = parse_schema(metadata.schema_string)
    fields = []
    for field in schema:
        column = identity_of(field, mode)
        if column is not None:
            for value in values.get(column.physical, ()):
                column = replace(column, mark=raised(column, value))
            if column.mark is not None and column.mark != field.metadata.get(MARK):
                field = replace(field, metadata={**field.metadata, MARK: column.mark})
        fields.append(field)
    new = StructType(tuple(fields))
    return metadata if new == schema else metadata.with_(schema_string=format_schema(new))


def with_marks_of(metadata: Metadata, other: Metadata) -> Metadata:
    """Return metadata whose marks are not behind those of another, such as a concurrent write's.

    Raises: as `with_marks`.
    """
    schema, mode = parse_schema(other.schema_string), mode_of(other)
    columns = (identity_of(field, mode) for field in schema)
    marks = {
        column.physical: (column.mark,) for column in columns if column and column.mark is not None
    }
    return with_marks(metadata, marks)


def moves_marks_only(before: Metadata, after: Metadata) -> bool:
    """Return whether two metadata differ in identity marks only, so that readers may go on."""
    first, second = (
        metadata.with_(schema_string=_unmarked(metadata)) for metadata in (before, after)
    )
    return first == second


def _unmarked(metadata: Metadata) -> str:
    fields = (
        replace(field, metadata={key: text for key, text in field.metadata.items() if key != MARK})
        for field in parse_schema(metadata.schema_string)
    )
    return format_schema(StructType(tuple(fields)))


def _long(field: StructField, key: str) -> int:
    value = field.metadata[key]
    if isinstance(value, bool) or not isinstance(value, int) or not LONG_MIN <= value <= LONG_MAX:
        raise _broken(field, f"has {value!r} as {key}")
    return value


def _broken(field: StructField, problem: str, error_class: str = "CorruptCommit") -> BrokenLog:
    return BrokenLog(
        f"identity column {dotted((field.name,))!r} {problem}",
        error_class=error_class,
        remedy="restore the table to a version before its schema was changed",
    )

"""`Table.createIfNotExists` and its kin: builders like delta-spark's."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, Protocol, TypeVar

from pyspark.sql.types import DataType, StructField, StructType

from tidegate_delta.constraints.identity_columns import EXPLICIT, START, STEP
from tidegate_delta.errors import InvalidRequest
from tidegate_producers.datasource.spark_schema import type_of

BuilderMode = Literal["create", "create if not exists", "replace", "create or replace"]

GENERATION: Final = "delta.generationExpression"
COMMENT: Final = "comment"

Made = TypeVar("Made")


@dataclass
class TableSpec:
    """What a builder has collected."""

    mode: BuilderMode
    path: str | None = None
    fields: list[StructField] = field(default_factory=list)
    partition_columns: tuple[str, ...] = ()
    properties: dict[str, str] = field(default_factory=dict)
    name: str | None = None
    clustered_by: tuple[str, ...] = ()
    comment: str | None = None


@dataclass(frozen=True)
class IdentityGenerator:
    """The numbers of an identity column; delta-spark's own class of this name does as well."""

    start: int = 1
    step: int = 1


class Numbers(Protocol):
    """What generates the numbers of an identity column."""

    @property
    def start(self) -> int:
        """The first number."""

    @property
    def step(self) -> int:
        """What is added to each."""


class TableBuilder(Generic[Made]):
    """Collects what a table shall be, and makes it; the names are delta-spark's."""

    def __init__(self, mode: BuilderMode, make: Callable[[TableSpec], Made]) -> None:
        self._spec = TableSpec(mode)
        self._make = make

    def location(self, location: str) -> "TableBuilder[Made]":
        """Set the table's path or URI."""
        self._spec.path = location
        return self

    def tableName(self, identifier: str) -> "TableBuilder[Made]":  # noqa: N802 - delta-spark's name
        """Set the name under which the table is registered; it has a location besides."""
        self._spec.name = identifier
        return self

    def addColumn(  # noqa: N802 - delta-spark's name
        self,
        colName: str,  # noqa: N803 - delta-spark's name
        dataType: str | DataType,  # noqa: N803
        nullable: bool = True,
        generatedAlwaysAs: str | Numbers | None = None,  # noqa: N803
        generatedByDefaultAs: Numbers | None = None,  # noqa: N803
        comment: str | None = None,
    ) -> "TableBuilder[Made]":
        """Add a column; a generated one with its SQL expression, or an identity column.

        Values of an identity column are always generated, or `generatedByDefaultAs` those that a
        write lacks.
        """
        metadata: dict[str, Any] = {}
        if isinstance(generatedAlwaysAs, str):
            metadata[GENERATION] = generatedAlwaysAs
        elif generatedAlwaysAs is not None:
            metadata |= _numbered(generatedAlwaysAs, allows_explicit=False)
        if generatedByDefaultAs is not None:
            metadata |= _numbered(generatedByDefaultAs, allows_explicit=True)
        if comment is not None:
            metadata[COMMENT] = comment
        kind = type_of(dataType, colName) if isinstance(dataType, str) else dataType
        self._spec.fields.append(StructField(colName, kind, nullable, metadata))
        return self

    def addColumns(self, cols: StructType) -> "TableBuilder[Made]":  # noqa: N802 - delta-spark's name
        """Add the columns of a schema."""
        self._spec.fields.extend(cols.fields)
        return self

    def partitionedBy(self, *cols: str) -> "TableBuilder[Made]":  # noqa: N802 - delta-spark's name
        """Set the partition columns."""
        self._spec.partition_columns = cols
        return self

    def property(self, key: str, value: str) -> "TableBuilder[Made]":
        """Set a table property."""
        self._spec.properties[key] = value
        return self

    def clusterBy(self, *cols: str) -> "TableBuilder[Made]":  # noqa: N802 - delta-spark's name
        """Set the columns by which files are sorted; `Table.optimize` does it."""
        self._spec.clustered_by = cols
        return self

    def comment(self, comment: str) -> "TableBuilder[Made]":
        """Set the table's comment."""
        self._spec.comment = comment
        return self

    def execute(self) -> Made:
        """Make the table, and return it.

        Raises: InvalidRequest, naming the column, the property or what is missing; Rejected;
        OutcomeUnknown; UnsupportedFeature.
        """
        if self._spec.path is None:
            raise InvalidRequest(
                "the builder has no location: call .location(path), as there is no catalog here",
                error_class="DELTA_TABLE_LOCATION_MISMATCH",
            )
        return self._make(self._spec)


def _numbered(numbers: Numbers, *, allows_explicit: bool) -> dict[str, Any]:
    return {START: numbers.start, STEP: numbers.step, EXPLICIT: allows_explicit}


def with_table_name(options: Mapping[str, str], spec: TableSpec) -> dict[str, str]:
    """Return options with the name of a builder's table."""
    return {**options, **({"name": spec.name} if spec.name else {})}

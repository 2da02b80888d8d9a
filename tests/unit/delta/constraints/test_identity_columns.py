"""Identity columns: what allocates values, what is allowed, and where the high-water mark is."""

from typing import Any

import pytest

from tests.definitions import of_schema
from tidegate_delta.constraints.identity_columns import (
    EXPLICIT,
    MARK,
    START,
    STEP,
    IdentityColumn,
    Lease,
    check_alterable,
    check_identities,
    define,
    identity_columns,
    identity_of,
    lease,
    moves_marks_only,
    raised,
    with_marks,
)
from tidegate_delta.errors import BrokenLog, InvalidRequest
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_delta.schema.column_mapping import ColumnMappingMode
from tidegate_delta.schema.types import (
    INTEGER,
    LONG,
    StructField,
    StructType,
    parse_schema,
)

WRITER = Protocol(min_reader_version=1, min_writer_version=6)


def field(name: str = "id", **numbers: Any) -> StructField:
    about = {START: 10, STEP: 5, EXPLICIT: False}
    about |= {f"delta.identity.{key}": value for key, value in numbers.items()}
    return StructField(name, LONG, metadata=about)


def table(*fields: StructField) -> Metadata:
    return of_schema(StructType(fields))


def test_a_column_is_numbered_where_the_table_supports_it() -> None:
    of = table(field(highWaterMark=20), StructField("v", LONG))
    assert identity_columns(of, WRITER) == (IdentityColumn("id", "id", 10, 5, 20),)
    assert identity_columns(of, Protocol(min_reader_version=1, min_writer_version=5)) == ()


def test_files_know_the_column_by_its_physical_name() -> None:
    one = field(**{})
    mapped = StructField(
        "id", LONG, True, {**one.metadata, "delta.columnMapping.physicalName": "p"}
    )
    result = identity_of(mapped, ColumnMappingMode.NAME)
    assert result is not None
    assert result.physical == "p"


@pytest.mark.parametrize(
    ("about", "error_class"),
    [
        ({START: 1}, "DELTA_IDENTITY_COLUMN_INCONSISTENT_METADATA"),
        ({START: 1, STEP: 1}, "DELTA_IDENTITY_COLUMN_INCONSISTENT_METADATA"),
        ({START: 1, STEP: 0, EXPLICIT: True}, "DELTA_IDENTITY_COLUMNS_ILLEGAL_STEP"),
        ({START: "1", STEP: 1, EXPLICIT: True}, "CorruptCommit"),
        ({START: True, STEP: 1, EXPLICIT: True}, "CorruptCommit"),
        ({START: 2**63, STEP: 1, EXPLICIT: True}, "CorruptCommit"),
        ({START: 1, STEP: 1.5, EXPLICIT: True}, "CorruptCommit"),
        ({START: 1, STEP: 1, EXPLICIT: "no"}, "CorruptCommit"),
        ({START: 1, STEP: 1, EXPLICIT: True, MARK: None}, "CorruptCommit"),
    ],
)
def test_numbers_that_are_none_are_refused(about: dict[str, Any], error_class: str) -> None:
    with pytest.raises(BrokenLog, match="identity column 'id'") as refused:
        identity_of(StructField("id", LONG, metadata=about))
    assert refused.value.error_class == error_class


def test_a_column_is_defined_for_a_new_table() -> None:
    assert define(StructField("id", LONG), 10, 5, allows_explicit=False) == field()


@pytest.mark.parametrize(
    ("column", "step", "error_class"),
    [
        (StructField("id", INTEGER), 1, "DELTA_IDENTITY_COLUMNS_UNSUPPORTED_DATA_TYPE"),
        (StructField("id", LONG), 0, "DELTA_IDENTITY_COLUMNS_ILLEGAL_STEP"),
        (StructField("id", LONG), 2**63, "DELTA_IDENTITY_COLUMNS_ILLEGAL_STEP"),
        (
            StructField("id", LONG, metadata={"delta.generationExpression": "1"}),
            1,
            "DELTA_IDENTITY_COLUMNS_WITH_GENERATED_EXPRESSION",
        ),
    ],
)
def test_a_column_that_cannot_be_numbered_is_refused(
    column: StructField, step: int, error_class: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        define(column, 1, step, allows_explicit=True)
    assert refused.value.error_class == error_class


def test_a_table_is_not_partitioned_by_its_numbers() -> None:
    schema = StructType((field(), StructField("v", LONG)))
    check_identities(schema, ("v",))
    with pytest.raises(InvalidRequest, match="partition it by another") as refused:
        check_identities(schema, ("ID",))
    expected = "DELTA_IDENTITY_COLUMNS_PARTITION_NOT_SUPPORTED"
    assert refused.value.error_class == expected


def test_a_numbered_column_stays_what_it_is() -> None:
    check_alterable(StructField("v", LONG))
    with pytest.raises(InvalidRequest, match="can't be changed"):
        check_alterable(field())


def test_blocks_follow_one_another() -> None:
    column = IdentityColumn("id", "id", 10, 5)
    first = lease(column, 3)
    assert first == Lease("id", "id", 10, 5, 3)
    assert first.last == 20
    assert lease(column, 1, [first]).first == 25
    other = Lease("n", "n", 1, 100, 9)
    assert lease(column, 1, [other]).first == 10
    with pytest.raises(IndexError):
        first.value(3)
    with pytest.raises(InvalidRequest, match="ask for one at least"):
        lease(column, 0)


def test_a_block_lapses_when_somebody_else_numbered_rows() -> None:
    block = Lease("id", "id", 10, 5, 3)
    assert not block.lapses(None)
    assert not block.lapses(5)
    assert block.lapses(10)
    down = Lease("id", "id", -10, -5, 3)
    assert not down.lapses(-5)
    assert down.lapses(-30)


@pytest.mark.parametrize(
    ("start", "step", "mark", "value", "found"),
    [
        (10, 5, None, 9, None),
        (10, 5, None, 10, 10),
        (10, 5, None, 11, 15),
        (10, 5, 20, 11, 20),
        (10, 5, 20, 21, 25),
        (10, -5, None, 11, None),
        (10, -5, 5, 3, 0),
        (10, -5, 0, 5, 0),
        (10, 5, -3, 1, 5),
        (10, 5, 4, 31, 35),
    ],
)
def test_a_mark_follows_what_was_written(
    start: int, step: int, mark: int | None, value: int, found: int | None
) -> None:
    assert raised(IdentityColumn("id", "id", start, step, mark), value) == found


def test_marks_stand_in_the_schema() -> None:
    of = table(field(), StructField("v", LONG))
    result = with_marks(of, {"id": [15, 20], "v": [7], "other": [1]})
    assert parse_schema(result.schema_string).fields[0].metadata[MARK] == 20
    assert with_marks(result, {"id": [15]}) is result
    assert moves_marks_only(of, result)
    assert not moves_marks_only(of, table(field(step=6), StructField("v", LONG)))
    assert not moves_marks_only(of, result.with_(partition_columns=("v",)))

"""Written data must fit the table; otherwise the error names the column."""

import json

import pytest

from tests.builders import TABLE, TABLE_ID, add, an_id, proposal
from tidegate_delta.constraints.column_defaults import column_defaults
from tidegate_delta.errors import InvalidRequest, UnsupportedFeature
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_delta.schema.types import (
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
)
from tidegate_messages.proposal import IdentityDemand, IdentityUsage
from tidegate_producers.writing import column_checks
from tidegate_producers.writing.column_checks import (
    LEASE,
    NOTHING,
    Attestation,
    as_nullable,
    check_frame,
    check_new,
    check_partitioning,
    fits,
    in_table_already,
    lease,
    resolve_partition_columns,
    with_attestation,
)
from tidegate_runtime.client.proposal_builders import Stamp, Target

ROOT = "file:///data/t"
COLUMNS = StructType(
    (
        StructField("id", LONG, nullable=False),
        StructField("Name", STRING),
        StructField("at", StructType((StructField("y", INTEGER),))),
    )
)


def columns(**kinds: DataType) -> StructType:
    return StructType(tuple(StructField(name, kind) for name, kind in kinds.items()))


def refused(frame: StructType, *, like: str) -> InvalidRequest:
    with pytest.raises(InvalidRequest, match=like) as raised:
        check_frame(frame, COLUMNS, ROOT)
    assert "nothing was proposed" in str(raised.value)
    return raised.value


def test_names_match_without_regard_to_case_and_nullable_columns_may_be_missing() -> None:
    check_frame(columns(ID=INTEGER, name=STRING), COLUMNS, ROOT)


def test_an_unknown_column_is_named_with_those_that_are_there() -> None:
    error = refused(
        columns(id=LONG, nmae=STRING), like="no column 'nmae'; its columns are id, Name"
    )
    assert error.error_class == "DELTA_METADATA_MISMATCH"


def test_a_wrong_type_names_the_column_what_was_expected_and_what_came() -> None:
    error = refused(
        columns(id=STRING), like="'id' has type long, but the DataFrame's has type string"
    )
    assert error.error_class == "DELTA_FAILED_TO_MERGE_FIELDS"


def test_a_field_inside_a_struct_is_named_by_its_path() -> None:
    refused(columns(id=LONG, at=columns(y=STRING)), like=r"'at\.y' has type integer")
    refused(columns(id=LONG, at=columns(z=INTEGER)), like=r"no column 'at\.z'")


def test_a_missing_not_null_column_is_named_with_its_type() -> None:
    error = refused(
        columns(Name=STRING), like="'id' is NOT NULL, and the DataFrame lacks it.*type long"
    )
    assert error.error_class == "DELTA_MISSING_NOT_NULL_COLUMN_VALUE"


def test_a_missing_struct_lacks_its_not_null_fields() -> None:
    inner = StructType((StructField("y", INTEGER), StructField("z", LONG, nullable=False)))
    table = StructType((StructField("id", LONG), StructField("at", inner)))
    with pytest.raises(InvalidRequest, match=r"'at\.z' is NOT NULL, and the DataFrame lacks 'at'"):
        check_frame(columns(id=LONG), table, ROOT)
    with pytest.raises(InvalidRequest, match=r"'at\.z' is NOT NULL, and the DataFrame lacks it"):
        check_frame(columns(id=LONG, at=columns(y=INTEGER)), table, ROOT)
    check_frame(columns(id=LONG), table, ROOT, filled=["at"])


def test_a_column_given_twice_is_refused() -> None:
    refused(columns(id=LONG, ID=LONG), like="'ID' is given twice")


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (BYTE, LONG),
        (SHORT, INTEGER),
        (INTEGER, DOUBLE),
        (FLOAT, DOUBLE),
        (INTEGER, DecimalType(12, 2)),
        (DecimalType(4, 1), DecimalType(6, 2)),
        (VOID, TIMESTAMP),
        (ArrayType(INTEGER), ArrayType(LONG)),
        (MapType(STRING, FLOAT), MapType(STRING, DOUBLE)),
        (columns(a=INTEGER), columns(a=LONG, b=STRING)),
    ],
    ids=str,
)
def test_what_loses_nothing_fits(given: DataType, wanted: DataType) -> None:
    assert fits(given, wanted)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (LONG, INTEGER),
        (LONG, DOUBLE),
        (INTEGER, FLOAT),
        (INTEGER, DecimalType(9, 0)),
        (DecimalType(6, 2), DecimalType(6, 1)),
        (DecimalType(6, 2), DecimalType(6, 3)),
        (DATE, TIMESTAMP),
        (STRING, INTEGER),
        (ArrayType(STRING), ArrayType(LONG)),
        (columns(a=INTEGER, c=LONG), columns(a=LONG)),
        (columns(b=LONG), StructType((StructField("a", LONG, nullable=False),))),
        (STRING, ArrayType(STRING)),
    ],
    ids=str,
)
def test_what_may_lose_something_does_not_fit(given: DataType, wanted: DataType) -> None:
    assert not fits(given, wanted)


@pytest.mark.parametrize(
    ("schema", "partitions", "like"),
    [
        (StructType(), (), "at least one column"),
        (columns(a=LONG, A=LONG), (), "differ only in case"),
        (StructType((StructField("a b", LONG),)), (), "'a b' holds one of"),
        (columns(a=columns(**{"b;c": LONG})), (), "'b;c' holds one of"),
        (columns(a=LONG), ("b",), "'b' is not in the schema; its columns are a"),
        (columns(a=LONG), ("a",), "every column is a partition column"),
        (columns(a=LONG, b=ArrayType(LONG)), ("b",), "'b' has type array"),
    ],
)
def test_a_table_that_cannot_be_is_not_created(
    schema: StructType, partitions: tuple[str, ...], like: str
) -> None:
    with pytest.raises(InvalidRequest, match=like):
        check_new(schema, partitions, ROOT)


def test_partition_columns_are_spelled_as_the_schema_spells_them() -> None:
    schema = columns(Month=INTEGER, x=LONG)
    assert resolve_partition_columns(schema, ["month", "MONTH"], ROOT) == ("Month",)


def test_partition_columns_given_must_be_the_tables() -> None:
    schema = columns(month=INTEGER, day=INTEGER, x=LONG)
    check_partitioning(None, schema, ["month"], ROOT)
    check_partitioning(["MONTH"], schema, ["month"], ROOT)
    with pytest.raises(InvalidRequest, match=r"partitioned by \['month'\], not by \['day'\]"):
        check_partitioning(["day"], schema, ["month"], ROOT)


def test_a_first_write_creates_nullable_columns_at_every_depth() -> None:
    strict = StructType(
        (
            StructField("a", ArrayType(LONG, False), nullable=False),
            StructField("m", MapType(STRING, LONG, False), nullable=False),
            StructField("s", StructType((StructField("y", LONG, nullable=False),))),
        )
    )
    generated = StructField("g", LONG, metadata={"delta.generationExpression": "1", "why": "x"})
    assert as_nullable(StructType((generated,))).fields[0].metadata == {"why": "x"}
    filled = StructField("d", LONG, metadata={"CURRENT_DEFAULT": "1", "EXISTS_DEFAULT": "1"})
    assert as_nullable(StructType((filled,))).fields[0].metadata == {}
    loose = as_nullable(strict)
    assert all(field.nullable for field in loose)
    assert loose.fields[0].kind == ArrayType(LONG, True)
    assert loose.fields[1].kind == MapType(STRING, LONG, True)
    assert loose.fields[2].kind == columns(y=LONG)


HASH, OTHER = "a" * 64, "b" * 64


def test_a_field_is_added_to_what_a_proposal_states() -> None:
    usage = IdentityUsage(column="x", low=1, high=9)
    said = Attestation((HASH,), "explicit", (usage,))
    one = proposal(add("a"), constraints_enforced=[OTHER], cdc_mode="implicit")
    result = with_attestation(one, said)
    assert result.constraints_enforced == (OTHER, HASH)
    assert (result.cdc_mode, result.identity_usage) == ("explicit", (usage,))
    assert with_attestation(one, NOTHING) == one


def test_a_lease_reads_nothing_and_writes_no_file() -> None:
    wanted = IdentityDemand(column="x", count=5)
    asked = lease(Target(TABLE, "file:///t", 3, TABLE_ID), Stamp(an_id(), 7), wanted)
    assert asked.operation.name == LEASE
    assert (asked.identity_leases, asked.actions) == ((wanted,), ())
    assert asked.reads is not None
    assert asked.reads.is_empty


def about(own: dict[str, object] | None = None, **properties: str) -> Metadata:
    field = {"name": "a", "type": "long", "nullable": True, "metadata": own or {}}
    return Metadata(
        id="m",
        schema_string=json.dumps({"type": "struct", "fields": [field]}),
        configuration={f"delta.{key}": value for key, value in properties.items()},
    )


def listing(*features: str) -> Protocol:
    return Protocol(min_reader_version=1, min_writer_version=7, writer_features=features)


CHECKED = about(None, **{"constraints.c": "a > 0"})
DEFAULTED = about({"CURRENT_DEFAULT": "1"})
FED = about(enableChangeDataFeed="true")
TRACKED = about(enableRowTracking="true")


def test_new_rows_are_held_to_what_we_do_not_evaluate_by_somebody_else() -> None:
    protocol = listing("checkConstraints", "allowColumnDefaults")
    with pytest.raises(UnsupportedFeature, match=r"CHECK c \(a > 0\)"):
        column_checks.check_new_rows(protocol, CHECKED, "here", ["0" * 64])
    held = in_table_already(CHECKED, protocol)
    column_checks.check_new_rows(protocol, CHECKED, "here", held)
    column_checks.check_new_rows(listing(), CHECKED, "here")
    with pytest.raises(UnsupportedFeature, match="allowColumnDefaults"):
        column_checks.check_new_rows(protocol, DEFAULTED, "here", held)
    column = column_defaults(DEFAULTED, protocol)[0].column
    with pytest.raises(UnsupportedFeature, match=rf"{column!r}.*Table\.append"):
        column_checks.check_new_rows(protocol, DEFAULTED, "here", held, ["other"])
    column_checks.check_new_rows(protocol, DEFAULTED, "here", held, [column.upper()])


def test_rows_are_not_copied_where_a_copy_would_be_another_row() -> None:
    with pytest.raises(UnsupportedFeature, match="change feed"):
        column_checks.check_copies(FED, "here")
    column_checks.check_copies(about(), "here")
    column_checks.check_copies(TRACKED, "here")


def test_identity_values_are_given_out_by_table_append_alone() -> None:
    def numbered(explicit: bool) -> Metadata:
        step = {"delta.identity.start": 1, "delta.identity.step": 1}
        return about({**step, "delta.identity.allowExplicitInsert": explicit})

    protocol = listing("identityColumns")
    for metadata, given in ((numbered(False), ["A"]), (numbered(True), [])):
        with pytest.raises(UnsupportedFeature, match=r"'a'.*Table\.append"):
            column_checks.check_new_rows(protocol, metadata, "here", (), given)
    column_checks.check_new_rows(protocol, numbered(True), "here", (), ["A"])

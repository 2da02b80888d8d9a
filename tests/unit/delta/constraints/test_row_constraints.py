"""A table's requirements on new rows, and the hashes with which writers attest them."""

import json
from hashlib import sha256
from typing import Any

import pytest

from tests.definitions import of_schema
from tidegate_delta.constraints.column_defaults import ColumnDefault
from tidegate_delta.constraints.generated_columns import Generation
from tidegate_delta.constraints.identity_columns import IdentityColumn
from tidegate_delta.constraints.row_constraints import (
    CheckConstraint,
    Invariant,
    Length,
    NotNull,
    WriteRequirements,
    add_check,
    checks,
    constraints_on,
    digest,
    drop_check,
    hashes,
    requirements,
    unenforced,
)
from tidegate_delta.errors import BrokenLog, InvalidRequest
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_delta.schema.char_varchar import LengthLimit
from tidegate_delta.schema.types import (
    LONG,
    STRING,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
)

ALL = Protocol(
    min_reader_version=2,
    min_writer_version=7,
    writer_features=(
        "invariants", "checkConstraints", "generatedColumns", "identityColumns",
        "allowColumnDefaults", "columnMapping",
    ),
)  # fmt: skip
NONE = Protocol(min_reader_version=2, min_writer_version=7, writer_features=("columnMapping",))
INVARIANT = '{"expression": {"expression": "x > 3"}}'


def field(name: str, kind: DataType = LONG, *, nullable: bool = True, **about: Any) -> StructField:
    named = {"delta.columnMapping.physicalName": f"p-{name}"}
    dotted = {key.replace("__", "."): value for key, value in about.items()}
    return StructField(name, kind, nullable, {**named, **dotted})


SCHEMA = StructType(
    (
        field(
            "id",
            delta__identity__start=1,
            delta__identity__step=2,
            delta__identity__allowExplicitInsert=False,
        ),
        field("s", StructType((field("x", nullable=False, delta__invariants=INVARIANT),))),
        field("l", ArrayType(MapType(STRING, LONG, False), False), nullable=False),
        field("g", delta__generationExpression="s.x + 1"),
        field("d", CURRENT_DEFAULT="1"),
        StructField("c", STRING, metadata={"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}),
    )
)


def table(schema: StructType = SCHEMA, mode: str = "name", **own: str) -> Metadata:
    constraints = {f"delta.constraints.{key}": text for key, text in own.items()}
    return of_schema(schema, {"delta.columnMapping.mode": mode, **constraints})


def test_every_requirement_of_a_table_is_listed() -> None:
    assert requirements(table(b="d > 1", a="id > 0"), ALL) == WriteRequirements(
        not_null=(
            NotNull(("s", "x"), ("p-s", "p-x")),
            NotNull(("l",), ("p-l",)),
            NotNull(("l", "element"), ("p-l", "element")),
            NotNull(("l", "element", "value"), ("p-l", "element", "value")),
        ),
        checks=(CheckConstraint("a", "id > 0"), CheckConstraint("b", "d > 1")),
        invariants=(Invariant(("s", "x"), ("p-s", "p-x"), "x > 3"),),
        lengths=(Length(("c",), ("c",), LengthLimit(3)),),
        generated=(Generation("g", "p-g", "s.x + 1"),),
        identities=(IdentityColumn("id", "p-id", 1, 2),),
        defaults=(ColumnDefault("d", "p-d", "1"),),
    )


def test_partition_columns_of_strings_are_named() -> None:
    partitioned = table().with_(partition_columns=("id", "c"))
    assert requirements(partitioned, ALL).text_partitions == ("c",)


def test_a_feature_that_the_protocol_does_not_list_requires_nothing() -> None:
    result = requirements(table(a="id > 0"), NONE)
    assert (result.checks, result.invariants, result.generated) == ((), (), ())
    assert (result.identities, result.defaults) == ((), ())
    assert len(result.not_null) == 4
    assert len(result.lengths) == 1


def test_older_writer_versions_imply_their_features() -> None:
    older = Protocol(min_reader_version=1, min_writer_version=3)
    result = requirements(table(a="id > 0"), older)
    assert (len(result.checks), len(result.invariants), len(result.generated)) == (1, 1, 0)


def test_a_limit_of_a_nested_field_is_reported_by_its_path() -> None:
    inner = StructType((field("u", STRING),))
    schema = StructType((field("s", ArrayType(inner), __CHAR_VARCHAR_TYPE_STRING="x"),))
    about = {**schema.fields[0].metadata, "__CHAR_VARCHAR_TYPE_STRING": "array<struct<u:char(2)>>"}
    result = requirements(
        table(StructType((StructField("s", ArrayType(inner), True, about),))), ALL
    )
    path, physical = ("s", "element", "u"), ("p-s", "element", "p-u")
    assert result.lengths == (Length(path, physical, LengthLimit(2, True)),)


@pytest.mark.parametrize("text", ["", "x > 3", '{"expression": null}', "[]", 5, {"expression": {}}])
def test_an_invariant_that_cannot_be_read_is_refused(text: Any) -> None:
    schema = StructType((field("x", delta__invariants=text),))
    with pytest.raises(BrokenLog, match="'x' has an invariant") as refused:
        requirements(table(schema), ALL)
    assert refused.value.error_class == "DELTA_UNRECOGNIZED_INVARIANT"


def test_hashes_are_the_same_for_ever() -> None:
    result = requirements(table(a="id > 0"), ALL)
    hashed = {sha256(text).hexdigest(): words for text, words in HASHED.items()}
    assert hashes(result) == hashed
    whole = json.dumps(sorted(hashed), separators=(",", ":"))
    assert digest(result) == sha256(whole.encode()).hexdigest()


HASHED = {
    b'[1,"not null","p-s","p-x"]': "NOT NULL s.x",
    b'[1,"not null","p-l"]': "NOT NULL l",
    b'[1,"not null","p-l","element"]': "NOT NULL l.element",
    b'[1,"not null","p-l","element","value"]': "NOT NULL l.element.value",
    b'[1,"true","id > 0"]': "CHECK a (id > 0)",
    b'[1,"true","x > 3"]': "invariant of s.x (x > 3)",
    b'[1,"length",3,"c"]': "varchar(3) c",
    b'[1,"generated","p-g","s.x + 1"]': "g AS (s.x + 1)",
}
"""The hashed bytes; other writers must hash the same."""


def test_what_a_writer_did_not_enforce_is_named() -> None:
    before = requirements(table(a="id > 0"), ALL)
    done = list(hashes(before))
    assert unenforced(before, done) == ()
    after = requirements(table(a="id > 0", b="d > 1"), ALL)
    assert unenforced(after, done) == ("CHECK b (d > 1)",)
    assert unenforced(requirements(table(), ALL), done) == ()
    assert len(unenforced(before, [])) == 8


def test_names_and_order_of_constraints_do_not_count_and_texts_do() -> None:
    one = requirements(table(a="id > 0", b="d > 1"), ALL)
    two = requirements(table(z="id > 0", c="d > 1"), ALL)
    assert digest(one) == digest(two)
    assert digest(one) != digest(requirements(table(a="id > 0", b="d > 2"), ALL))
    assert digest(one) != digest(requirements(table(a="id > 0"), ALL))


def test_a_constraint_is_added_and_dropped() -> None:
    more = add_check(table(), "Positive", "id > 0")
    assert more.configuration["delta.constraints.positive"] == "id > 0"
    assert checks(more) == (CheckConstraint("positive", "id > 0"),)
    assert drop_check(more, "POSITIVE") == table()
    assert drop_check(table(), "nope", if_exists=True) == table()
    odd = table().with_(configuration={"Delta.Constraints.Old": "d > 1"})
    assert checks(odd) == (CheckConstraint("Old", "d > 1"),)
    assert drop_check(odd, "old").configuration == {}


@pytest.mark.parametrize(
    ("name", "text", "error_class"),
    [
        ("A", "id > 0", "DELTA_CONSTRAINT_ALREADY_EXISTS"),
        ("", "id > 0", "DELTA_INVALID_CONSTRAINT_NAME"),
        ("__char_varchar_string_length_check__", "id > 0", "DELTA_INVALID_CONSTRAINT_NAME"),
        ("b", "  ", "DELTA_NON_BOOLEAN_CHECK_CONSTRAINT"),
    ],
)
def test_a_constraint_that_cannot_be_is_refused(name: str, text: str, error_class: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        add_check(table(a="id > 1"), name, text)
    assert refused.value.error_class == error_class


def test_a_constraint_that_is_not_there_is_not_dropped() -> None:
    with pytest.raises(InvalidRequest, match="there are: a") as refused:
        drop_check(table(a="id > 1"), "b")
    assert refused.value.error_class == "DELTA_CONSTRAINT_DOES_NOT_EXIST"


def test_constraints_on_a_column_are_found() -> None:
    result = constraints_on(table(a="S.x > 0", b="d > 1"), SCHEMA, ("s",))
    assert result == {"a": "S.x > 0"}
    plain = StructType((field("x", delta__invariants=INVARIANT), field("y")))
    assert constraints_on(table(plain), plain, ("x",)) == {"invariant of x": "x > 3"}
    assert constraints_on(table(plain), plain, ("y",)) == {}

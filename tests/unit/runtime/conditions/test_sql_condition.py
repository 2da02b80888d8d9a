"""SQL conditions become predicate trees, or the error names what cannot be expressed."""

from typing import Any
from unittest import mock

import pytest

from tidegate_delta.errors import InvalidRequest, UnsupportedFeature
from tidegate_delta.schema.types import (
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    ArrayType,
    DecimalType,
    StructField,
    StructType,
)
from tidegate_producers.table import Table, table
from tidegate_runtime.conditions.sql_condition import (
    in_zone,
    is_row_by_row,
    merge_predicate_of,
    predicate_of,
    wider_predicate_of,
)

SCHEMA = StructType(
    (
        StructField("a", INTEGER),
        StructField("Dep", DATE),
        StructField("t", TIMESTAMP),
        StructField("n", TIMESTAMP_NTZ),
        StructField("d", DecimalType(10, 2)),
        StructField("x", DOUBLE),
        StructField("f", FLOAT),
        StructField("s", STRING),
        StructField("b", BOOLEAN),
        StructField("st", StructType((StructField("y", LONG),))),
        StructField("l", ArrayType(INTEGER)),
        StructField("h", STRING, metadata={"__CHAR_VARCHAR_TYPE_STRING": "char(3)"}),
        StructField("v", STRING, metadata={"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}),
        StructField("c", STRING, metadata={"__COLLATIONS": {"c": "spark.UTF8_LCASE"}}),
    )
)


def leaf(op: str, column: str, value: object, kind: str) -> dict[str, Any]:
    return {"op": op, "column": column.split("."), "value": value, "type": kind}


@pytest.mark.parametrize(
    ("sql", "tree"),
    [
        ("a = 1", leaf("=", "a", 1, "integer")),
        ("1 < A", leaf(">", "a", 1, "integer")),
        ("5 >= a", leaf("<=", "a", 5, "integer")),
        ("a <> -3", leaf("!=", "a", -3, "integer")),
        ("a = '12'", leaf("=", "a", 12, "integer")),
        ("st.y <=> NULL", leaf("<=>", "st.y", None, "long")),
        ("`st`.`y` > 3", leaf(">", "st.y", 3, "long")),
        ("dep = '2013-01-01'", leaf("=", "Dep", "2013-01-01", "date")),
        ("dep >= DATE '2013-01-01'", leaf(">=", "Dep", "2013-01-01", "date")),
        (
            "t < TIMESTAMP '2013-01-01 10:00:00'",
            leaf("<", "t", "2013-01-01T10:00:00.000000Z", "timestamp"),
        ),
        ("n < '2013-01-01 10:00:00'", leaf("<", "n", "2013-01-01 10:00:00", "timestamp_ntz")),
        ("d = 1.5", leaf("=", "d", "1.50", "decimal(10,2)")),
        ("x > 1e3", leaf(">", "x", 1000.0, "double")),
        ("f = 0.1", leaf("=", "f", 0.1, "double")),
        ("b", leaf("=", "b", True, "boolean")),
        ("v = 'a'", leaf("=", "v", "a", "string")),
        ("a = CAST('1' AS INT)", leaf("=", "a", 1, "integer")),
        ("f = CAST(0.1 AS FLOAT)", leaf("=", "f", 0.10000000149011612, "double")),
        ("a <> CAST(NULL AS INT)", leaf("!=", "a", None, "integer")),
        ("st.y = CAST(-1 AS BIGINT)", leaf("=", "st.y", -1, "long")),
        ("s = CAST('ü' AS STRING)", leaf("=", "s", "ü", "string")),
        ("d = CAST(1.5 AS DECIMAL(10, 2))", leaf("=", "d", "1.50", "decimal(10,2)")),
        ("h IS NULL", {"op": "is_null", "column": ["h"]}),
        ("b IS TRUE", leaf("<=>", "b", True, "boolean")),
        ("s IS NULL", {"op": "is_null", "column": ["s"]}),
        ("s IS NOT NULL", {"op": "is_not_null", "column": ["s"]}),
        ("TRUE", {"op": "true"}),
        ("a IN (1, NULL)", {"op": "in", "column": ["a"], "values": [1, None], "type": "integer"}),
        (
            "NOT (a = 1 OR a = 2)",
            {
                "op": "not",
                "arg": {
                    "op": "or",
                    "args": [leaf("=", "a", 1, "integer"), leaf("=", "a", 2, "integer")],
                },
            },
        ),
        (
            "a BETWEEN 1 AND 3 AND s = 'q' AND b",
            {
                "op": "and",
                "args": [
                    {
                        "op": "and",
                        "args": [leaf(">=", "a", 1, "integer"), leaf("<=", "a", 3, "integer")],
                    },
                    leaf("=", "s", "q", "string"),
                    leaf("=", "b", True, "boolean"),
                ],
            },
        ),
    ],
)
def test_a_condition_becomes_a_tree(sql: str, tree: dict[str, Any]) -> None:
    assert predicate_of(sql, SCHEMA) == tree


@pytest.mark.parametrize(
    "sql",
    [
        "length(s) > 3",
        "a + 1 = 2",
        "a = d",
        "s LIKE 'a%'",
        "a IN (SELECT 1)",
        "a = CAST(1 AS BIGINT)",
        "a = CAST(1.5 AS INT)",
        "a = CAST('x' AS INT)",
        "a = CAST(s AS INT)",
        "f = CAST(1e39 AS FLOAT)",
        "x = CAST('Infinity' AS DOUBLE)",
        "d = CAST(1.234 AS DECIMAL(10,2))",
        "s = CAST(1 AS STRING)",
        "s IS NULL; DROP TABLE t",
        "rand() < 0.5",
        "dep < current_date()",
        "EXISTS (SELECT 1)",
        "CASE WHEN a = 1 THEN true END",
        "st = NULL",
        "c = 'a'",
        "c IN ('a')",
        "h = 'a'",
        "s = DATE'2013-01-01'",
        "t = DATE'2013-01-01 10:00:00'",
        "t = CAST('2013-01-01 10:00:00' AS DATE)",
    ],
)
def test_what_predicates_cannot_express_is_refused_with_the_expression(sql: str) -> None:
    with pytest.raises(UnsupportedFeature, match="can't decide exactly"):
        predicate_of(sql, SCHEMA)


@pytest.mark.parametrize(
    ("sql", "like"),
    [
        ("zz = 1", "'zz', which does not exist; there are a, Dep"),
        ("st.z = 1", "'st.z', which does not exist; there are y"),
        ("a.q = 1", "no fields below it"),
        ("s = 5", "'s' has type string"),
        ("a = 1.5", "'a' has type integer"),
        ("a = 'abc'", "'a' has type integer"),
        ("a = '1_000'", "'a' has type integer"),
        ("a = 99999999999", "'a' has type integer"),
        ("d = 1.234", r"'d' has type decimal\(10,2\)"),
        ("x = 'NaN'", "'x' has type double"),
        ("dep = '2013-01-01 10:00:00'", "'Dep' has type date"),
        ("dep = TIMESTAMP'2013-01-01 00:00:00Z'", "'Dep' has type date"),
        ("n = '2013-01-01 10:00:00+02:00'", "'n' has type timestamp_ntz"),
        ("l = 1", "can't be compared|has type array"),
        ("a", "not a truth value"),
        ("a = ", "is not a SQL expression"),
    ],
)
def test_the_problem_is_named(sql: str, like: str) -> None:
    with pytest.raises(InvalidRequest, match=like) as raised:
        predicate_of(sql, SCHEMA)
    assert "\x1b" not in str(raised.value)


@pytest.mark.parametrize(
    ("zone", "sql", "at"),
    [
        ("America/New_York", "t = '2013-01-01'", "2013-01-01T05:00:00.000000Z"),
        ("America/New_York", "t = DATE'2013-07-01'", "2013-07-01T04:00:00.000000Z"),
        # A time that DST skips moves an hour later; of a repeated one the first counts.
        ("America/New_York", "t = '2013-03-10 02:30:00'", "2013-03-10T07:30:00.000000Z"),
        ("America/New_York", "t = '2013-11-03 01:30:00'", "2013-11-03T05:30:00.000000Z"),
        ("America/New_York", "t = '2013-01-01 10:00:00Z'", "2013-01-01T10:00:00.000000Z"),
        ("America/New_York", "t = '2013-01-01 10:00:00+02:00'", "2013-01-01T08:00:00.000000Z"),
        ("+05:30", "t = TIMESTAMP'2013-01-01 10:00:00'", "2013-01-01T04:30:00.000000Z"),
        ("UTC-8", "t = '2013-01-01'", "2013-01-01T08:00:00.000000Z"),
        ("Z", "t = '2013-01-01'", "2013-01-01T00:00:00.000000Z"),
    ],
)
def test_a_timestamp_that_names_no_zone_is_by_the_sessions(zone: str, sql: str, at: str) -> None:
    assert predicate_of(sql, SCHEMA, zone) == leaf("=", "t", at, "timestamp")


def test_what_has_no_zone_is_the_same_in_every_one() -> None:
    for sql in ("n = '2013-01-01'", "dep = '2013-01-01'"):
        assert predicate_of(sql, SCHEMA, "America/New_York") == predicate_of(sql, SCHEMA)


def test_an_unknown_time_zone_matters_only_where_it_is_used() -> None:
    assert predicate_of("a = 1", SCHEMA, "Nowhere/At_All") == leaf("=", "a", 1, "integer")
    with pytest.raises(InvalidRequest, match="name the zone in the timestamps"):
        predicate_of("t = '2013-01-01'", SCHEMA, "Nowhere/At_All")


def opaque(text: str) -> dict[str, Any]:
    return {"op": "opaque", "columns": [], "text": text}


@pytest.mark.parametrize(
    ("sql", "tree"),
    [
        ("a = 1", leaf("=", "a", 1, "integer")),
        ("LENGTH(s) > 3", opaque("LENGTH(s) > 3")),
        (
            "a = 1 AND NOT (LENGTH(s) > 3 OR s = 'q')",
            {
                "op": "and",
                "args": [
                    leaf("=", "a", 1, "integer"),
                    {
                        "op": "not",
                        "arg": {
                            "op": "or",
                            "args": [opaque("LENGTH(s) > 3"), leaf("=", "s", "q", "string")],
                        },
                    },
                ],
            },
        ),
        ("a = 1.5", opaque("a = 1.5")),
        ("a = ", opaque("a = ")),
    ],
)
def test_what_predicates_cannot_express_may_be_true_of_any_row(
    sql: str, tree: dict[str, Any]
) -> None:
    assert wider_predicate_of(sql, SCHEMA) == tree


def test_a_sub_query_is_refused_in_every_condition() -> None:
    for sql in ("a IN (SELECT 1)", "s = 'q' OR EXISTS (SELECT 1)"):
        with pytest.raises(UnsupportedFeature, match="sub-query"):
            wider_predicate_of(sql, SCHEMA)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("t.k = s.k", "(?)"),
        ("t.k = s.k AND t.name = 'x'", "(? and name = x)"),
        ("(t.k = s.k) AND (t.name = 'x' OR t.k IN (1))", "(? and (name = x or k in [1]))"),
        ("t.name = 'x' OR t.k = s.k", "(?)"),
        ("name = 'x' AND k > 3 AND s.v = 1", "(name = x and ? and ?)"),
        ("t.nested.a = 7 AND s.k = 1", "(nested.a = 7 and ?)"),
        ("length(t.name) = 3 AND t.k = s.k", "(? and ?)"),
        ("not a condition", "(?)"),
    ],
)
def test_a_merge_reads_only_rows_that_its_condition_can_match(
    condition: str, expected: str
) -> None:
    schema = StructType(
        (
            StructField("k", LONG),
            StructField("name", STRING),
            StructField("nested", StructType((StructField("a", LONG),))),
        )
    )
    result = merge_predicate_of(condition, schema, ["k", "v"], "t")
    assert shown(result) == expected


def shown(node: Any) -> str:
    """Return a predicate in short; an opaque part is a question mark."""
    if node["op"] == "opaque":
        return "?"
    if "args" in node:
        joined = f" {node['op']} ".join(map(shown, node["args"]))
        return f"({joined})"
    value = node["value"] if "value" in node else node["values"]
    return f"{'.'.join(node['column'])} {node['op']} {value}"


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("v + 1", True),
        ("concat(a, upper(b))", True),
        ("sum(v) OVER (PARTITION BY k)", False),
        ("max(v)", False),
        ("v IN (SELECT v FROM u)", False),
        ("not ( parsed", False),
    ],
)
def test_what_depends_on_other_rows_is_not_row_by_row(expression: str, expected: bool) -> None:
    assert is_row_by_row(expression) is expected


@pytest.mark.parametrize(
    ("text", "zone", "told"),
    [
        ("2024-07-01 12:00:00", "Europe/Zurich", "2024-07-01T10:00:00.000000Z"),
        ("2024-01-01", "Europe/Zurich", "2023-12-31T23:00:00.000000Z"),
        ("2024-01-01 00:00:00.5", "UTC", "2024-01-01T00:00:00.500000Z"),
        ("2024-07-01 12:00:00", "+05:30", "2024-07-01T06:30:00.000000Z"),
        ("2024-07-01T12:00:00Z", "Europe/Zurich", "2024-07-01T12:00:00Z"),
        ("2024-07-01 12:00:00+02:00", "Asia/Tokyo", "2024-07-01 12:00:00+02:00"),
        ("yesterday", "Europe/Zurich", "yesterday"),
        ("", "Europe/Zurich", ""),
    ],
)
def test_a_time_that_names_no_zone_is_by_the_sessions(text: str, zone: str, told: str) -> None:
    assert in_zone(text, zone) == told


def test_a_zone_that_is_not_known_is_named() -> None:
    with pytest.raises(InvalidRequest, match="Mars/Olympus"):
        in_zone("2024-01-01", "Mars/Olympus")


def test_time_travel_of_a_table_is_by_the_sessions_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    spark, open_snapshot = mock.MagicMock(), mock.MagicMock()
    spark.conf.get.return_value = "Europe/Zurich"
    monkeypatch.setattr(table, "store_for", mock.MagicMock())
    monkeypatch.setattr(table, "open_snapshot", open_snapshot)
    monkeypatch.setattr(table, "table_frame", mock.MagicMock())
    Table(spark, "memory://tables/t").to_df(timestamp="2024-07-01 12:00:00")
    [(_, version, at_ms)] = [call.args for call in open_snapshot.call_args_list]
    assert (version, at_ms) == (None, 1_719_828_000_000), "10:00 in UTC"

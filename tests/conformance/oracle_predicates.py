"""Random predicates of scans: a tree in the vectors' form, and the same as SQL."""

import json
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final

Ast = dict[str, Any]

COMPARISONS: Final = ("=", "!=", "<", "<=", ">", ">=", "<=>")
DEPTH_MAX: Final = 3

SPELLINGS: Final[Mapping[str, Sequence[str]]] = {
    "integer": ("0", "1", "2", "3", "-1", "10", "01", "+2", "2147483647", "-2147483648"),
    "long": ("0", "1", "-9", "-10", "9", "10", "9007199254740993", "-9223372036854775808"),
    "short": ("0", "7", "-7", "32767", "-32768", "007"),
    "byte": ("0", "7", "-7", "127", "-128"),
    "double": ("0.0", "-0.0", "1", "1.0", "1e3", "NaN", "Infinity", "-Infinity", "0.1", "1.5"),
    "float": ("0.0", "-0.0", "1", "1.5", "0.1", "NaN", "Infinity", "16777217"),
    "boolean": ("true", "false", "TRUE", "False"),
    "date": ("2024-02-28", "2024-02-29", "2024-03-01", "1969-12-31", "0001-01-01", "9999-12-31"),
    "timestamp": (
        "2024-01-01 00:00:00",
        "2024-01-01 00:00:00.000001",
        "2024-01-01 00:00:00.1",
        "2024-01-01T00:00:00.000000Z",
        "2024-01-01T00:00:00Z",
        "2023-12-31 23:59:59.999999",
        "1969-12-31 23:59:59.999999",
    ),
    "timestamp_ntz": (
        "2024-01-01 00:00:00",
        "2024-01-01 00:00:00.000001",
        "2024-01-01 00:00:00.5",
        "2024-01-01T00:00:00",
        "2023-12-31 23:59:59.999999",
    ),
    "decimal(10,2)": ("0", "0.00", "1.5", "1.50", "1.51", "-1.99", "-2.00", "99999999.99"),
    "decimal(38,18)": ("0", "1.5", "0.000000000000000001", "-1.500000000000000000"),
    "string": (
        "a", "b", "B", "Z", "é", "z", "10", "9", "", "a b", "a b ", " a", "100%25", "100%", "a/b",
        "a=b", "o'brien", "a\\b", "__HIVE_DEFAULT_PARTITION__", "10:30:00", "Zürich", "東京", "😀",
        "\uffee", "null", "a\tb", "a\nb", "e\u0301", "a?b", "a#b", "{x}", "[y]", '"', "ß", "SS",
    ),
}  # fmt: skip
"""Possible forms of partition values, by type."""

ODD: Final = ("x", "", " 1", "yes", "T", "1.005", "1d", "2024-02", "2024-02-30", "2024-02-28T10")
"""Forms that no writer should use; some can be cast, some cannot."""

WORDS: Final[Mapping[str, Sequence[Any]]] = {
    "integer": (0, 1, 2, 3, -1, 10, 2147483647, -2147483648),
    "long": (0, 1, -9, -10, 9, 10, 9007199254740992, 9007199254740993),
    "short": (0, 7, -7, 8, 32767),
    "byte": (0, 7, -7, 127),
    "double": (0.0, 1.0, 1.5, 0.1, 1000.0, -1.0),
    "float": (0.0, 1.0, 1.5, 0.1),
    "boolean": (True, False),
    "date": SPELLINGS["date"],
    "timestamp": (
        "2024-01-01 00:00:00",
        "2024-01-01 00:00:00.000001",
        "2023-12-31 23:59:59.999999",
        "1970-01-01 00:00:00",
    ),
    "timestamp_ntz": ("2024-01-01 00:00:00", "2024-01-01 00:00:00.000001", "2023-12-31 00:00:00"),
    "decimal(10,2)": ("0.00", "1.50", "1.51", "-1.99", "-2.00", "99999999.99"),
    "decimal(38,18)": ("0.000000000000000000", "1.500000000000000000"),
    "string": tuple(one for one in SPELLINGS["string"] if one),
}
"""Literals by type."""


def made_up(random: Random, columns: Mapping[str, str], depth: int = DEPTH_MAX) -> Ast:
    """Return a random predicate over columns, given by name and type."""
    if depth and random.random() < 0.45:
        return _joined(random, columns, depth)
    name = random.choice(sorted(columns))
    kind, column = columns[name], [_other_case(random, name)]
    drawn = random.random()
    if drawn < 0.55:
        op = random.choice(COMPARISONS)
        value = None if op == "<=>" and random.random() < 0.3 else random.choice(WORDS[kind])
        return {"op": op, "column": column, "value": value, "type": kind}
    if drawn < 0.7:
        values = [random.choice((*WORDS[kind], None)) for _ in range(random.randint(1, 3))]
        return {"op": "in", "column": column, "values": values, "type": kind}
    if drawn < 0.85:
        return {"op": random.choice(("is_null", "is_not_null")), "column": column}
    if drawn < 0.92:
        return {"op": "opaque", "columns": [], "text": "rand() < 0"}
    if kind == "integer" and drawn < 0.98:
        text = f"opaque_int({quoted(name)})"
        return {"op": "opaque", "columns": [[name]], "text": text}
    return {"op": "true"}


def _joined(random: Random, columns: Mapping[str, str], depth: int) -> Ast:
    op = random.choice(("and", "and", "or", "not"))
    if op == "not":
        return {"op": "not", "arg": made_up(random, columns, depth - 1)}
    return {"op": op, "args": [made_up(random, columns, depth - 1) for _ in range(2)]}


def _other_case(random: Random, name: str) -> str:
    return name.upper() if random.random() < 0.1 else name


def sql_of(node: Ast) -> str:
    """Return a predicate as SQL."""
    match node["op"]:
        case "true":
            return "true"
        case "opaque":
            return str(node["text"])
        case "not":
            return f"NOT ({sql_of(node['arg'])})"
        case "and" | "or":
            return "(" + f" {node['op'].upper()} ".join(map(sql_of, node["args"])) + ")"
        case "is_null":
            return f"{_column(node)} IS NULL"
        case "is_not_null":
            return f"{_column(node)} IS NOT NULL"
        case "in":
            values = ", ".join(literal(item, node["type"]) for item in node["values"])
            return f"{_column(node)} IN ({values})"
    return f"{_column(node)} {node['op']} {literal(node['value'], node['type'])}"


def _column(node: Ast) -> str:
    return ".".join(map(quoted, node["column"]))


def quoted(name: str) -> str:
    """Return a name in backticks."""
    return "`" + name.replace("`", "``") + "`"


def literal(value: Any, kind: str) -> str:
    """Return a literal of some type in SQL."""
    if value is None:
        return f"CAST(NULL AS {'bigint' if kind == 'long' else kind})"
    if kind == "boolean":
        return "true" if value else "false"
    if kind in ("integer", "short", "byte"):
        return str(value)
    if kind == "long":
        return f"{value}L"
    if kind == "double":
        return f"{value!r}D"
    if kind == "float":
        return f"CAST('{value!r}' AS float)"
    if kind.startswith("decimal"):
        return f"CAST('{value}' AS {kind})"
    if kind in ("date", "timestamp", "timestamp_ntz"):
        return f"{kind.upper()}'{value}'"
    return "'" + _escaped(value) + "'"


def _escaped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1].replace('\\"', '"').replace("'", "\\'")

"""Types and values that a generated table may have, and SQL texts for them."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tests.judge.cases import quoted


@dataclass(frozen=True)
class Scalar:
    """A type without parts, by its SQL name."""

    name: str

    def sql(self) -> str:
        return self.name


@dataclass(frozen=True)
class Struct:
    fields: tuple[tuple[str, "Kind"], ...]

    def sql(self, required: str | None = None) -> str:
        """Return the type in SQL; the field of that name may not be null."""
        inner = ", ".join(
            f"{quoted(name)}: {kind.sql()}{' NOT NULL' if name == required else ''}"
            for name, kind in self.fields
        )
        return f"struct<{inner}>"


@dataclass(frozen=True)
class Array:
    element: "Kind"

    def sql(self) -> str:
        return f"array<{self.element.sql()}>"


@dataclass(frozen=True)
class Map:
    key: "Kind"
    value: "Kind"

    def sql(self) -> str:
        return f"map<{self.key.sql()}, {self.value.sql()}>"


Kind = Scalar | Struct | Array | Map

# Not '__HIVE_DEFAULT_PARTITION__': delta-spark reads it back as null where it is a partition.
VALUES: Final = {
    "tinyint": ("0", "1", "-1", "127", "-128"),
    "smallint": ("0", "1", "7", "32767", "-32768"),
    "int": ("0", "1", "2", "-7", "2147483647", "-2147483648"),
    "bigint": ("0", "1", "2", "-7", "9223372036854775807", "-9223372036854775808"),
    "float": ("0.0", "1.5", "'-0.0'", "'NaN'", "'Infinity'", "'-Infinity'", "'3.4028235E38'"),
    "double": ("0.0", "1.5", "'-0.0'", "'NaN'", "'Infinity'", "'-Infinity'", "'4.9E-324'"),
    "decimal(8,2)": ("0", "1.50", "-1.5", "999999.99", "-999999.99"),
    "decimal(38,10)": ("0", "1.5", "'-9999999999999999999999999999.9999999999'", "0.0000000001"),
    "decimal(3,0)": ("0", "-7", "999"),
    "boolean": ("true", "false"),
    "date": (
        "'2024-02-29'",
        "'1582-10-04'",
        "'1582-10-15'",
        "'0001-01-01'",
        "'9999-12-31'",
        "'1969-12-31'",
    ),
    "timestamp": (
        "'2024-01-01 00:00:00'",
        "'2024-03-31 02:30:00.123456'",
        "'1500-02-28 23:59:59.5'",
        "'0001-01-01 00:00:00.000001'",
        "'9999-12-31 23:59:59.999999'",
        "'1969-12-31 23:59:59.999999'",
    ),
    "timestamp_ntz": (
        "'2024-01-01 00:00:00'",
        "'2024-03-31 02:30:00.123456'",
        "'1500-02-28 23:59:59.5'",
        "'9999-12-31 23:59:59.999999'",
    ),
    "string": (
        "'x'",
        "'y'",
        "''",
        "' '",
        "'a b'",
        "'X'",
        "'a=b/c'",
        "'50%20'",
        "'ü'",
        "'a\u200db'",
        "'\ufeffbom'",
        "'null'",
        "'it\\'s \"q\"'",
        "'2024-01-01'",
        "repeat('l', 70)",
        "'\U0001f600'",
        "'a\\nb'",
        "'a:b'",
        "'t.k'",
    ),
    "binary": ("X''", "X'00FF'", "X'616263'"),
}
SCALARS: Final = tuple(map(Scalar, VALUES))
VARIANT: Final = Scalar("variant")
VARIANTS: Final = (
    "1",
    "-9223372036854775808",
    "1.50",
    "1e300",
    "true",
    "null",
    '"x"',
    '""',
    '"a‍b"',
    "[]",
    "{}",
    '[1, null, "x", [2.5]]',
    '{"a": 1, "b": {"c": [null]}, "a.b": "2024-01-01"}',
    '{"b": 1, "a": null}',
)
"""As JSON."""
COMMON: Final = tuple(map(Scalar, ("int", "string", "bigint", "double", "date", "timestamp")))
CHARS: Final = (Scalar("varchar(9)"), Scalar("char(4)"))
WIDER: Final = {
    "tinyint": ("smallint", "int", "bigint"),
    "smallint": ("int", "bigint"),
    "int": ("bigint", "double"),
    "float": ("double",),
    "date": ("timestamp_ntz",),
    "decimal(8,2)": ("decimal(12,2)", "decimal(14,4)"),
}
NULLS_OF_TEN: Final = 2


def null(kind: Kind) -> str:
    return f"CAST(NULL AS {kind.sql()})"


def value(dice: random.Random, kind: Kind, *, may_be_null: bool = True) -> str:
    """Return a value of a type as SQL."""
    if may_be_null and dice.randrange(10) < NULLS_OF_TEN:
        return null(kind)
    if isinstance(kind, Scalar):
        return scalar(kind, dice)
    if isinstance(kind, Struct):
        inner = ", ".join(f"{literal(name)}, {value(dice, part)}" for name, part in kind.fields)
        return f"named_struct({inner})"
    if isinstance(kind, Array):
        inner = ", ".join(value(dice, kind.element) for _ in range(dice.randrange(3)))
        return f"CAST(array({inner}) AS {kind.sql()})"
    keys = dice.sample(range(3), dice.randrange(3))
    pairs = ", ".join(f"{key_of(kind.key, key)}, {value(dice, kind.value)}" for key in keys)
    return f"CAST(map({pairs}) AS {kind.sql()})"


def scalar(kind: Scalar, dice: random.Random) -> str:
    if kind.name.startswith(("varchar", "char")):
        return dice.choice(("'x'", "'ab'", "''", "'ü'"))
    if kind == VARIANT:
        return f"parse_json({literal(dice.choice(VARIANTS))})"
    known = VALUES.get(kind.name) or VALUES[_nearest(kind.name)]
    return f"CAST({dice.choice(known)} AS {kind.name})"


def _nearest(name: str) -> str:
    return "decimal(8,2)" if name.startswith("decimal") else name


def key_of(kind: Kind, at: int) -> str:
    """Return one of some different keys of a map."""
    assert isinstance(kind, Scalar)
    return f"CAST({('0', '1', '2')[at]} AS {kind.name})"


def literal(text: str) -> str:
    """Return a text as SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def leaves(path: tuple[str, ...], kind: Kind) -> list[tuple[tuple[str, ...], Kind]]:
    """Return a column and each field of its structs, with their paths."""
    result: list[tuple[tuple[str, ...], Kind]] = [(path, kind)]
    if isinstance(kind, Struct):
        for name, part in kind.fields:
            result += leaves((*path, name), part)
    return result


def all_leaves(columns: Sequence[tuple[str, Kind]]) -> list[tuple[tuple[str, ...], Kind]]:
    """Return the columns and fields of structs of a table."""
    return [leaf for name, kind in columns for leaf in leaves((name,), kind)]

"""A table for each column feature: mapping, widening, adding, identity, generation, constraints."""

import json
from collections.abc import Callable
from datetime import date
from decimal import Decimal

from tests.conformance.grown_tables import (
    MATERIALIZED,
    Grown,
    K,
    P,
    S,
    column,
    local,
    row,
    supported,
)
from tests.conformance.written_tables import Deployment
from tidegate_delta.constraints import column_defaults, identity_columns, row_constraints
from tidegate_delta.features import row_tracking
from tidegate_delta.schema.types import (
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP_NTZ,
    ArrayType,
    DataType,
    DecimalType,
    StructType,
)
from tidegate_delta.schema_evolution import alter_columns, evolve_on_write
from tidegate_delta.schema_evolution.alter_columns import FIRST, FieldPosition
from tidegate_runtime.client import proposal_builders


def mapped_by_name(deployment: Deployment) -> Grown:
    return _mapped(Grown(deployment, deployment.folder / "mapped by name"), "name")


def mapped_by_id(deployment: Deployment) -> Grown:
    return _mapped(Grown(deployment, deployment.folder / "mapped-by-id"), "id")


def _mapped(table: Grown, mode: str) -> Grown:
    """Columns added, renamed, relocated and dropped, including nested and partition columns."""
    inner = StructType((column("a b", STRING), column("n", LONG)))
    several = ArrayType(StructType((column("x", LONG), column("y;z", STRING))))
    columns = (K, S, P, column("st", inner), column("l", several), column("gone", DOUBLE))
    table.begin(columns, {"delta.columnMapping.mode": mode}, ("p",))
    nested = {"st": {"a b": "i", "n": 7}, "l": [{"x": 1, "y;z": "e"}, None]}
    table.append([row(1, p=1, gone=0.5, **nested), row(2, p=None)])
    metadata = table.snapshot.metadata
    metadata = alter_columns.rename_column(metadata, ("s",), "text, of {all}")
    metadata = alter_columns.rename_column(metadata, ("p",), "part")
    table.change("RENAME COLUMN", alter_columns.rename_column(metadata, ("st", "a b"), "c=d"))
    metadata = alter_columns.drop_column(table.snapshot.metadata, ("gone",))
    table.change("DROP COLUMNS", metadata)
    metadata = alter_columns.add_column(table.snapshot.metadata, column("gone", STRING), (), FIRST)
    inside = column("late", LONG)
    metadata = alter_columns.add_column(metadata, inside, ("st",), FieldPosition(after="c=d"))
    table.change("ADD COLUMNS", alter_columns.move_column(metadata, ("k",), FIRST))
    nested = {"st": {"c=d": "j", "late": 9, "n": None}, "l": []}
    table.append([{"k": 3, "text, of {all}": "t", "part": 5, "gone": "back", **nested}])
    return table


def mapped_in_mid_life(deployment: Deployment) -> Grown:
    table = Grown(deployment, deployment.folder / "mapped-in-mid-life")
    table.begin((K, S, P), {}, ("p",))
    table.append([row(1, p=1), row(2, p=2)])
    table.set(columnMapping__mode="name")
    metadata = alter_columns.rename_column(table.snapshot.metadata, ("s",), "t")
    table.change("RENAME COLUMN", metadata)
    table.append([{"k": 3, "t": "after", "p": 1}])
    return table


def widened(deployment: Deployment) -> Grown:
    table = Grown(deployment, deployment.folder / "widened")
    narrow: dict[str, tuple[DataType, DataType, object]] = {
        "i": (BYTE, INTEGER, 7),
        "l": (INTEGER, LONG, 2**31 - 1),
        "f": (FLOAT, DOUBLE, 0.1),
        "d": (DATE, TIMESTAMP_NTZ, date(1969, 12, 31)),
        "n": (SHORT, DOUBLE, -300),
        "m": (DecimalType(5, 2), DecimalType(12, 4), Decimal("-1.50")),
        "w": (INTEGER, DecimalType(12, 2), 12),
    }
    columns = [column(name, was) for name, (was, _, _) in narrow.items()]
    several = column("a", ArrayType(SHORT))
    within = column("st", StructType((column("x", SHORT),)))
    properties = {"delta.enableTypeWidening": "true", **supported("timestampNtz")}
    table.begin((K, *columns, several, within), properties)
    old = {name: value for name, (_, _, value) in narrow.items()}
    table.append([{"k": 1, **old, "a": [1, None], "st": {"x": 5}}, {"k": 2}])
    ways = [((name,), kind) for name, (_, kind, _) in narrow.items()]
    inner: list[tuple[tuple[str, ...], DataType]] = [(("a", "element"), LONG)]
    for path, kind in (*ways, *inner, (("st", "x"), INTEGER)):
        seen = table.snapshot
        metadata = alter_columns.change_type(seen.metadata, seen.protocol, path, kind)
        table.change("CHANGE COLUMN", metadata)
    new = {
        "i": 70_000,
        "l": 2**40,
        "f": 1e300,
        "d": local(2024, 2, 29, 1, 2, 3, 4),
        "n": 0.5,
        "m": Decimal("12345678.1234"),
        "w": Decimal("0.05"),
    }
    table.append([{"k": 3, **new, "a": [2**40], "st": {"x": 100_000}}])
    return table


def widened_in_preview(deployment: Deployment) -> Grown:
    """A type change that readers find by the version that made it."""
    table = Grown(deployment, deployment.folder / "widened-in-preview")
    properties = {"delta.enableTypeWidening": "true", **supported("typeWidening-preview")}
    table.begin((K, column("n", SHORT)), properties)
    table.append([{"k": 1, "n": -7}])
    seen = table.snapshot
    metadata = alter_columns.change_type(seen.metadata, seen.protocol, ("n",), INTEGER)
    table.change("CHANGE COLUMN", metadata)
    table.append([{"k": 2, "n": 70_000}])
    return table


def evolved(deployment: Deployment) -> Grown:
    table = Grown(deployment, deployment.folder / "evolved")
    table.begin((K, column("st", StructType((column("x", LONG),)))), {})
    table.append([{"k": 1, "st": {"x": 1}}])
    inner = StructType((column("y", STRING), column("x", LONG)))
    brought = StructType((S, column("st", inner), K))
    seen = table.snapshot
    table.change("WRITE", evolve_on_write.evolved(seen.metadata, seen.protocol, brought))
    table.append([row(2, st={"x": 2, "y": "z"})])
    whole = evolve_on_write.overwritten(table.snapshot.metadata, StructType((K, P, S)), ("p",))
    removes = [proposal_builders.removal(item, 0) for item in table.live()]
    table.commit_actions("WRITE", *removes, whole)
    table.append([row(3, p=1), row(4, p=None)])
    table.append([row(5, p=1)])
    return table


def numbered(deployment: Deployment) -> Grown:
    table = Grown(deployment, deployment.folder / "numbered")
    up = identity_columns.define(column("up", LONG), 10, 5, allows_explicit=True)
    down = identity_columns.define(column("down", LONG), -1, -2, allows_explicit=False)
    table.begin((K, up, down), {})
    for first in (0, 3):
        seen = table.snapshot
        blocks = [
            identity_columns.lease(identity_column, 3)
            for identity_column in identity_columns.identity_columns(seen.metadata, seen.protocol)
        ]
        rows = [
            {"k": first + at, **{block.column: block.value(at) for block in blocks}}
            for at in range(3)
        ]
        marks = {block.physical: (block.last,) for block in blocks}
        table.append(rows, identity_columns.with_marks(seen.metadata, marks))
    return table


def generated(deployment: Deployment) -> Grown:
    table = Grown(deployment, deployment.folder / "generated")
    twice = column("twice", LONG, delta__generationExpression="k * 2")
    day = column("day", DATE, delta__generationExpression="CAST(at AS DATE)")
    table.begin((K, twice, column("at", TIMESTAMP_NTZ), day), {}, ("day",))
    at = local(2024, 2, 29, 23, 59, 59)
    table.append([{"k": 1, "twice": 2, "at": at, "day": at.date()}])
    table.append([{"k": 2, "twice": 4}])
    return table


def defaulted(deployment: Deployment) -> Grown:
    table = Grown(deployment, deployment.folder / "defaulted")
    columns = (K, column("s", STRING, CURRENT_DEFAULT="'none'"), P)
    table.begin(columns, supported("allowColumnDefaults"))
    table.append([{"k": 1, "s": "none", "p": 1}])
    seen = table.snapshot
    table.change(
        "CHANGE COLUMN", column_defaults.set_default(seen.metadata, seen.protocol, "p", "6 * 7")
    )
    table.append([row(2, p=42)])
    return table


def checked(deployment: Deployment) -> Grown:
    """All ways to constrain rows: CHECK, NOT NULL, an invariant, lengths of text."""
    table = Grown(deployment, deployment.folder / "checked")
    bound = json.dumps({"expression": {"expression": "n > 3"}})
    columns = (
        column("k", LONG, nullable=False),
        column("n", LONG, delta__invariants=bound),
        column("v", STRING, __CHAR_VARCHAR_TYPE_STRING="varchar(3)"),
    )
    table.begin(columns, {})
    table.append([{"k": 1, "n": 4, "v": "abc"}])
    metadata = row_constraints.add_check(table.snapshot.metadata, "small", "k < 100")
    table.change("ADD CONSTRAINT", metadata)
    table.append([{"k": 99, "n": 5}])
    return table


def iceberg(version: str) -> Callable[[Deployment], Grown]:
    def build(deployment: Deployment) -> Grown:
        table = Grown(deployment, deployment.folder / f"as-iceberg-{version}", by_hand=True)
        properties = {f"delta.enableIcebergCompat{version}": "true"} | (
            {"delta.enableRowTracking": "true", **MATERIALIZED} if version == "V3" else {}
        )
        several = column("l", ArrayType(ArrayType(LONG)))
        columns = (K, S) if version == "V1" else (K, S, several)
        table.begin(columns, {"delta.columnMapping.mode": "name", **properties})
        for k in range(2):
            adds = table.adds([row(k, l=[[k], []])])
            if version == "V3":
                stated = {"base_row_id": k, "default_row_commit_version": k + 1}
                adds = [add.with_(**stated) for add in adds]
            marks = [row_tracking.mark_domain(k)] if version == "V3" else []
            table.commit_actions("WRITE", *adds, *marks)
        return table

    build.__name__ = f"as_iceberg_{version.lower()}"
    return build

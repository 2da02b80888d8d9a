"""Statistics as other writers form them never exclude a file that holds a match.

Each file's rows are converted from the file's types to the table's, and evaluating the predicate on
them is the reference. Columns are mapped, nested and widened; statistics are in the commit, or only
in a checkpoint, typed.
"""

import io
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Context, Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import builders
from tests.builders import add, protocol, to_bytes
from tests.checkpoints import put_classic
from tests.fakes.memory_store import MemoryStore
from tests.property.predicate_values import plain
from tidegate_delta.data_skipping.partition_predicates import evaluate, prune
from tidegate_delta.log.file_names import commit_name, in_log
from tidegate_runtime.table_io.data_file_reader import read_table
from tidegate_runtime.table_io.open_table import open_snapshot

Row = dict[str, Any]

TEXT_MAX = 32
EXAMPLES = settings().max_examples // 10
"""A tenth of the profile's: each example evaluates some two hundred predicates."""

FEATURES = ("columnMapping", "typeWidening", "timestampNtz")

TABLE: Mapping[str, tuple[str, pa.DataType, pa.DataType | None]] = {
    "i": ("integer", pa.int32(), None),
    "wide": ("long", pa.int64(), pa.int8()),
    "exact": ("decimal(12,2)", pa.decimal128(12, 2), pa.int32()),
    "m": ("decimal(38,3)", pa.decimal128(38, 3), pa.decimal128(20, 3)),
    "f": ("float", pa.float32(), None),
    "d": ("double", pa.float64(), pa.float32()),
    "s": ("string", pa.string(), None),
    "day": ("date", pa.date32(), None),
    "at": ("timestamp", pa.timestamp("us", "UTC"), None),
    "ntz": ("timestamp_ntz", pa.timestamp("us"), pa.date32()),
    "b": ("boolean", pa.bool_(), None),
}
"""Column -> its type in the table, in files, and in files from before it was widened."""

BEFORE = {"wide": "byte", "exact": "integer", "m": "decimal(20,3)", "d": "float", "ntz": "date"}

FLOATS = (0.0, -0.0, 0.1, -0.1, 1e-45, 3.4e38, math.nan, math.inf, -math.inf)
TEXTS = ("", "a", "b", "\x7f", "\xff", "\ufffd", "\U0001f600", "\U0010ffff")
FIRST, LAST = datetime(1582, 1, 1, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)


def single(dice: Random) -> float:
    return float(np.float32(dice.choice((*FLOATS, dice.uniform(-2, 2)))))


def double(dice: Random) -> float:
    return dice.choice((*FLOATS, dice.uniform(-2, 2), 5e-324, 1.7e308))


def decimal(dice: Random, digits: int, scale: int) -> Decimal:
    return Decimal(dice.randint(-(10**digits), 10**digits)).scaleb(-scale, Context(prec=38))


def moment(dice: Random) -> datetime:
    return FIRST + (LAST - FIRST) * dice.random()


def text(dice: Random) -> str:
    return "".join(dice.choices(TEXTS, k=dice.choice((1, 3, 31, 32, 33, 40))))


def whole(bits: int) -> Callable[[Random], int]:
    return lambda dice: dice.choice((dice.randint(-3, 3), dice.randrange(-(1 << bits), 1 << bits)))


OLD: Mapping[str, Callable[[Random], Any]] = {
    "i": whole(31),
    "wide": whole(7),
    "exact": lambda dice: dice.randint(-(10**6), 10**6),
    "m": lambda dice: decimal(dice, dice.choice((3, 19)), 3),
    "f": single,
    "d": single,
    "s": text,
    "day": lambda dice: moment(dice).date(),
    "at": moment,
    "ntz": lambda dice: moment(dice).date(),
    "b": lambda dice: dice.random() < 0.5,
}
NEW: Mapping[str, Callable[[Random], Any]] = {
    **OLD,
    "wide": whole(63),
    "exact": lambda dice: decimal(dice, 11, 2),
    "m": lambda dice: decimal(dice, dice.choice((3, 37)), 3),
    "d": double,
    "ntz": lambda dice: moment(dice).replace(tzinfo=None),
}


def rows_of(dice: Random, values: Mapping[str, Callable[[Random], Any]]) -> list[Row]:
    """Return one to four rows; sometimes a column is null in all of them."""
    empty = {name for name in values if dice.random() < 0.1}
    return [
        {
            name: None if name in empty or dice.random() < 0.15 else value(dice)
            for name, value in values.items()
        }
        for _ in range(dice.randint(1, 4))
    ]


@dataclass(frozen=True)
class Written:
    """A file as its writer left it: rows, and their types in the file."""

    rows: list[Row]
    is_old: bool

    def kind_of(self, name: str) -> pa.DataType:
        _, now, before = TABLE[name]
        return before if self.is_old and before is not None else now

    def content(self) -> bytes:
        columns = {
            f"c-{name}": pa.array([row[name] for row in self.rows], self.kind_of(name))
            for name in TABLE
        }
        buffer = io.BytesIO()
        pq.write_table(pa.table(columns), buffer)
        return buffer.getvalue()

    def statistics(self, nan_hides_bounds: object) -> str:
        """Return the file's statistics; some writers omit the bounds of a column with a NaN."""
        low, high, nulls = Row(), Row(), Row()
        for name in TABLE:
            values = [row[name] for row in self.rows]
            nulls[f"c-{name}"] = values.count(None)
            there = [value for value in values if value is not None and value == value]
            if nan_hides_bounds and len(there) + nulls[f"c-{name}"] < len(values):
                continue
            found = bounds_of(there, self.kind_of(name))
            if found is not None:
                low[f"c-{name}"], high[f"c-{name}"] = found
        result = {"numRecords": len(self.rows), "minValues": low, "maxValues": high}
        return json.dumps({**result, "nullCount": nulls})


def bounds_of(values: list[Any], kind: pa.DataType) -> tuple[Any, Any] | None:
    """Return minimum and maximum as JSON, or None if a writer gives none."""
    if not values or pa.types.is_boolean(kind):
        return None
    if pa.types.is_string(kind):
        ordered = sorted(values, key=str.encode)
        return cut_text(ordered[0], is_maximum=False), cut_text(ordered[-1], is_maximum=True)
    low, high = min(values), max(values)
    if pa.types.is_floating(kind):
        if not (math.isfinite(low) and math.isfinite(high)):
            return None
        single = pa.types.is_float32(kind)
        return (shortest(low), shortest(high)) if single else (low, high)
    if pa.types.is_timestamp(kind):
        return cut_moment(low), cut_moment(high)
    if pa.types.is_date(kind):
        return low.isoformat(), high.isoformat()
    # Writers that keep statistics as JSON numbers convert a decimal to a double.
    return (float(low), float(high)) if pa.types.is_decimal(kind) else (low, high)


def shortest(value: float) -> float:
    return float(str(np.float32(value)))


def cut_moment(value: datetime) -> str:
    """Return a timestamp as the log writes it: truncated to milliseconds, for both bounds."""
    text = value.replace(tzinfo=None).isoformat(timespec="milliseconds")
    return text + ("Z" if value.tzinfo else "")


def cut_text(text: str, *, is_maximum: object) -> str:
    """Return a string as delta-spark truncates it to 32 characters."""
    if len(text) <= TEXT_MAX or not is_maximum:
        return text[:TEXT_MAX]
    return text[:TEXT_MAX] + ("\x7f" if text[TEXT_MAX] <= "\x7f" else "\U0010ffff")


def metadata() -> Row:
    fields = []
    for number, (name, (kind, _, _)) in enumerate(TABLE.items(), 1):
        about: Row = {
            "delta.columnMapping.id": number,
            "delta.columnMapping.physicalName": f"c-{name}",
        }
        if name in BEFORE:
            about["delta.typeChanges"] = [{"fromType": BEFORE[name], "toType": kind}]
        fields.append({"name": name, "type": kind, "nullable": True, "metadata": about})
    properties = {
        "columnMapping.mode": "name",
        "checkpoint.writeStatsAsStruct": "true",
        "checkpoint.writeStatsAsJson": "false",
    }
    row = builders.metadata(**properties)
    row["metaData"]["schemaString"] = json.dumps({"type": "struct", "fields": fields})
    return row


def table_of(file: Written, nan_hides_bounds: object) -> MemoryStore:
    stats = file.statistics(nan_hides_bounds)
    rows = [
        protocol(3, 7, readerFeatures=FEATURES, writerFeatures=FEATURES),
        metadata(),
        add("a", stats=stats),
    ]
    store = MemoryStore()
    store.files = {"a": file.content(), in_log(commit_name(0)): to_bytes(rows)}
    return store


def leaf(dice: Random, rows: pa.Table) -> Row:
    """Return a comparison with a value in the rows, or with a random one."""
    name = dice.choice(list(TABLE))
    held = [item for item in rows.column(name).to_pylist() if item is not None]
    values = [plain(one) for one in (*held, NEW[name](dice), None)]
    result = {"column": [name], "type": TABLE[name][0]}
    match dice.randrange(4):
        case 0:
            return {"op": dice.choice(("is_null", "is_not_null")), "column": [name]}
        case 1:
            return {"op": "in", **result, "values": dice.choices(values, k=dice.randint(0, 3))}
        case _:
            op = dice.choice(("=", "!=", "<", "<=", ">", ">=", "<=>"))
            return {"op": op, **result, "value": dice.choice(values)}


def tree(dice: Random, rows: pa.Table) -> Row:
    node = leaf(dice, rows)
    for _ in range(dice.randint(0, 2)):
        match dice.randrange(3):
            case 0:
                node = {"op": "not", "arg": node}
            case 1:
                node = {"op": "and", "args": [node, leaf(dice, rows)]}
            case _:
                node = {"op": "or", "args": [node, leaf(dice, rows)]}
    return node


def edges(rows: pa.Table) -> Iterator[Row]:
    """Yield predicates that only just match the least and the greatest value of each column."""
    for name, (kind, _, _) in TABLE.items():
        column = rows.column(name)
        held = [item for item in column.to_pylist() if item is not None and item == item]
        for value in {min(held), max(held)} if held else ():
            result = {"column": [name], "type": kind}
            # A NaN may be beyond the greatest number.
            for op in ("=", "<=>", "<=", ">=", ">", "!="):
                yield {"op": op, **result, "value": plain(value)}
            yield {"op": "in", **result, "values": [plain(value), None]}
            yield {"op": "not", "arg": {"op": "!=", **result, "value": plain(value)}}
        yield {"op": "is_null", "column": [name]}
        yield {"op": "not", "arg": {"op": "is_null", "column": [name]}}


@pytest.mark.parametrize("written", [OLD, NEW], ids=["before it was widened", "as it is"])
def test_statistics_of_others_never_exclude_a_file_that_holds_a_match(
    written: Mapping[str, Callable[[Random], Any]],
) -> None:
    @given(st.integers(0, 2**32))
    @settings(max_examples=EXAMPLES)
    def law(seed: int) -> None:
        dice = Random(seed)
        store = table_of(
            Written(rows_of(dice, written), is_old=written is OLD), dice.random() < 0.5
        )
        snapshot = open_snapshot(store)
        rows = read_table(store, snapshot)
        put_classic(store, snapshot, 0)
        typed = open_snapshot(store)
        assert "stats_parsed" in typed.files.schema.names
        for predicate in (*edges(rows), *(tree(dice, rows) for _ in range(10))):
            if True in evaluate(predicate, rows).to_pylist():
                for known in (snapshot, typed):
                    kept = prune(predicate, known.files, known.metadata)
                    assert kept.num_rows == 1, predicate

    law()


def test_statistics_of_others_do_exclude_files() -> None:
    rows = [
        {**dict.fromkeys(TABLE), "i": 5, "s": "m", "d": 0.5, "at": datetime(2024, 1, 1, tzinfo=UTC)}
    ]
    store = table_of(Written(rows, is_old=False), nan_hides_bounds=True)
    snapshot = open_snapshot(store)
    for name, value in {"i": 6, "s": "n", "d": 0.75, "at": "2024-01-02 00:00:00"}.items():
        leaf = {"op": "=", "column": [name], "type": TABLE[name][0], "value": value}
        assert prune(leaf, snapshot.files, snapshot.metadata).num_rows == 0
    assert (
        prune({"op": "is_not_null", "column": ["m"]}, snapshot.files, snapshot.metadata).num_rows
        == 0
    )

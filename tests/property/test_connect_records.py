"""Laws of records with an inline Kafka Connect schema, over generated types and rows."""

import json
from base64 import b64decode
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.connect_records import payload
from tidegate_cdc_publisher.change_batch import Batch, SourceBlock
from tidegate_cdc_publisher.change_records import ChangeRecord
from tidegate_cdc_publisher.connect_schema import Layout
from tidegate_cdc_publisher.envelopes import inline_schemas
from tidegate_cdc_publisher.json_rows import row_texts
from tidegate_cdc_publisher.record_encoding import records
from tidegate_cdc_publisher.record_form import RecordForm, ValueTypes
from tidegate_cdc_publisher.row_diff import images

Typed = tuple[pa.DataType, st.SearchStrategy[Any]]
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001

_decimal_types = st.tuples(st.integers(1, 38), st.integers(0, 38)).filter(
    lambda one: one[1] <= one[0]
)
_scalars: st.SearchStrategy[Typed] = st.sampled_from(
    [
        (pa.int8(), st.integers(-128, 127)),
        (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
        (pa.float32(), st.floats(width=32)),
        (pa.float64(), st.floats()),
        (pa.bool_(), st.booleans()),
        (pa.string(), st.text(max_size=4)),
        (pa.binary(), st.binary(max_size=4)),
        (pa.date32(), st.dates()),
        (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
        (pa.timestamp("us"), st.datetimes()),
    ]
) | _decimal_types.map(
    lambda one: (
        pa.decimal128(*one),
        st.integers(1 - 10 ** one[0], 10 ** one[0] - 1).map(lambda n: _scaled(n, one[1])),
    )
)


def _scaled(number: int, scale: int) -> Decimal:
    sign, digits, _ = Decimal(number).as_tuple()
    return Decimal((sign, digits, -scale))


def _list(inner: Typed) -> Typed:
    return pa.list_(inner[0]), st.lists(st.none() | inner[1], max_size=3)


def _struct(inner: list[Typed]) -> Typed:
    names = [f"f{at}" for at in range(len(inner))]
    kind = pa.struct([(name, one) for name, (one, _) in zip(names, inner, strict=True)])
    values = {name: st.none() | of for name, (_, of) in zip(names, inner, strict=True)}
    return kind, st.fixed_dictionaries(values)


def _map(inner: Typed) -> Typed:
    entries = st.dictionaries(st.text(max_size=3), st.none() | inner[1], max_size=3)
    return pa.map_(pa.string(), inner[0]), entries.map(lambda one: list(one.items()))


_typed = st.recursive(
    _scalars,
    lambda inner: (
        inner.map(_list) | inner.map(_map) | st.lists(inner, min_size=1, max_size=3).map(_struct)
    ),
    max_leaves=4,
)
_types = st.just(ValueTypes()) | st.builds(
    ValueTypes,
    st.just("debezium"),
    st.sampled_from(["precise", "string", "double"]),
    st.sampled_from(["struct", "json"]),
)


@st.composite
def tables(draw: st.DrawFn, typed: st.SearchStrategy[Typed]) -> pa.Table:
    """Return a few rows with a key column and columns of generated types."""
    columns = draw(st.lists(typed, min_size=1, max_size=3))
    count = draw(st.integers(1, 3))
    some = st.lists
    arrays = {
        f"c{at}": pa.array(draw(some(st.none() | of, min_size=count, max_size=count)), kind)
        for at, (kind, of) in enumerate(columns)
    }
    return pa.table({"k": pa.array(range(count), pa.int32()), **arrays})


def sent(table: pa.Table, form: RecordForm) -> list[ChangeRecord]:
    schemas = inline_schemas(form, "cdc.t", *[Layout(table.schema, table.schema.names[:2])] * 2)
    origin = SourceBlock(UUID(int=1), "t", "tidegate", 3, 1_000, {"table_id": "x"}, schemas)
    image = images(table, table.schema.names[:2], form)
    return list(records(origin, Batch("u", 0, image, image), 9, "with"))


@given(tables(_typed), _types)
@settings(deadline=None, max_examples=150)
def test_a_record_fits_its_own_schema(table: pa.Table, types: ValueTypes) -> None:
    for record in sent(table, RecordForm("json_schema", "json_schema", types)):
        image = payload(record.value)["after"]
        assert list(image) == table.schema.names
        assert payload(record.key) == {name: image[name] for name in table.schema.names[:2]}


@given(tables(_typed))
@settings(deadline=None, max_examples=50)
def test_without_a_schema_and_in_iso_types_a_row_is_the_text_of_before(table: pa.Table) -> None:
    for record, text in zip(sent(table, RecordForm()), row_texts(table).to_pylist(), strict=True):
        assert f'"after":{text},"source":' in (record.value or b"").decode()


@given(tables(_scalars))
@settings(deadline=None, max_examples=150)
def test_dates_times_and_exact_decimals_read_back_as_they_were(table: pa.Table) -> None:
    form = RecordForm("json_schema", "json_schema", ValueTypes("debezium", "precise"))
    for record, row in zip(sent(table, form), table.to_pylist(), strict=True):
        fields = json.loads(record.value or b"")["schema"]["fields"][1]["fields"]
        image = payload(record.value)["after"]
        for field in fields:
            name = field["field"]
            if field.get("name") and image[name] is not None:
                assert read(field, image[name]) == row[name]
            else:
                assert (image[name] is None) >= (row[name] is None)


def read(field: dict[str, Any], value: Any) -> Any:
    """Return a value of a logical type as Python's."""
    match field["name"].rpartition(".")[2]:
        case "Date":
            return date(1970, 1, 1) + timedelta(days=value)
        case "MicroTimestamp":
            return EPOCH + timedelta(microseconds=value)
        case "ZonedTimestamp":
            return datetime.fromisoformat(value)
        case "Decimal":
            number = int.from_bytes(b64decode(value), "big", signed=True)
            return _scaled(number, int(field["parameters"]["scale"]))
        case name:
            raise AssertionError(name)

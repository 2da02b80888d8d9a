"""Selection of the key columns."""

import json

import pytest

from tidegate_cdc_publisher.key_columns import PROPERTY, key_columns, keys_of_order, order_of
from tidegate_delta.errors import InvalidRequest
from tidegate_delta.log.actions import Metadata


def metadata(**configuration: str) -> Metadata:
    fields: list[dict[str, object]] = [
        {"name": name, "type": "long", "nullable": True, "metadata": {}}
        for name in ("Id", "flight no", "carrier")
    ]
    schema = json.dumps({"type": "struct", "fields": fields})
    return Metadata(id="m", schema_string=schema, configuration=configuration)


def test_the_tables_property_names_the_key_columns() -> None:
    declared = metadata(**{PROPERTY: "id, `flight no`"})
    assert key_columns(declared, "t", "columns", ()) == ("Id", "flight no")


def test_the_settings_stand_above_the_property() -> None:
    declared = metadata(**{PROPERTY: "id"})
    assert key_columns(declared, "t", "columns", ("carrier",)) == ("carrier",)


def test_a_table_without_keys_must_be_declared() -> None:
    assert key_columns(metadata(**{PROPERTY: "id"}), "t", "none", ()) is None
    with pytest.raises(InvalidRequest, match=r"cdc\.tables\.t\.key=none") as caught:
        key_columns(metadata(), "t", "columns", ())
    assert caught.value.error_class == "KeyColumnsMissing"


@pytest.mark.parametrize("text", ["absent", "id.inner", "id,,", "`id"])
def test_a_property_that_names_no_column_is_refused_with_its_name(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"tidegate\.cdc\.keyColumns"):
        key_columns(metadata(**{PROPERTY: text}), "t", "columns", ())


def test_orders_differ_when_their_keys_do() -> None:
    assert len({order_of(keys) for keys in (None, ("a",), ("a", "b"), ("b", "a"))}) == 4


@pytest.mark.parametrize(
    "keys", [None, ("a",), ("a", "b"), ("a,b",), ("a", "b,"), ("-",), ("%2C", "%"), ("é,", "-")]
)
def test_an_ordering_names_its_key_columns_whatever_their_names_hold(
    keys: tuple[str, ...] | None,
) -> None:
    assert keys_of_order(order_of(keys)) == keys

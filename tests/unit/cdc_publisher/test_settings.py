"""The settings of the publisher, as users write them."""

from pathlib import Path

import pytest

from tidegate_cdc_publisher.record_form import ISO, RecordForm, ValueTypes
from tidegate_cdc_publisher.settings import CdcSection, CdcSettings, RegistrySection, TableChanges
from tidegate_delta.errors import Misconfigured
from tidegate_runtime.service.settings import load


def test_a_tables_key_columns_can_be_given_on_the_command_line() -> None:
    settings = load(CdcSettings, None, {"cdc.tables.flights.key_columns": "carrier,flight"})
    assert settings.cdc.tables["flights"].key_columns == ("carrier", "flight")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cdc.tables.main.air.flights.key_columns", "carrier"),
        ("cdc.tables.main.air.flights", '{"key_columns": ["carrier"]}'),
    ],
)
def test_a_table_may_have_a_name_of_three_parts(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = {"main.air.flights": TableChanges(key_columns=("carrier",))}
    assert load(CdcSettings, None, {name: value}).cdc.tables == result
    monkeypatch.setenv(f"TIDEGATE__{name.upper().replace('.', '__')}", value)
    assert load(CdcSettings, None, {}).cdc.tables == result


def test_a_table_can_be_declared_to_have_no_key() -> None:
    settings = load(CdcSettings, None, {"cdc.tables.logs.key": "none"})
    assert settings.cdc.tables["logs"] == TableChanges(key="none")


def test_a_table_may_have_another_format_than_the_others() -> None:
    result = {"cdc.value_format": "json_schema", "cdc.tables.t.value_format": "json"}
    cdc = load(CdcSettings, None, {**result, "cdc.tables.u.key_format": "json_schema"}).cdc
    assert cdc.form("t") == RecordForm()
    assert cdc.form("u") == RecordForm("json_schema", "json_schema")
    assert cdc.form("v") == RecordForm("json_schema")


def test_a_tables_types_come_before_those_of_all_tables() -> None:
    result = {"cdc.types": "debezium", "cdc.decimal_handling_mode": "string"}
    one = {"cdc.tables.t.types": "iso", "cdc.tables.u.struct_handling": "json"}
    cdc = load(CdcSettings, None, {**result, **one}).cdc
    assert cdc.form("t").types == ISO
    assert cdc.form("u").types == ValueTypes("debezium", "string", "json")
    assert cdc.form("v").types == ValueTypes("debezium", "string", "struct")
    assert load(CdcSettings, None, {"cdc.types": "debezium"}).cdc.form("v").types == ValueTypes(
        "debezium", "precise"
    )


@pytest.mark.parametrize(
    "told",
    [
        {"cdc.decimal_handling_mode": "precise"},
        {"cdc.tables.t.struct_handling": "json"},
        {
            "cdc.types": "debezium",
            "cdc.tables.t.types": "iso",
            "cdc.tables.t.struct_handling": "json",
        },
    ],
)
def test_a_mode_without_debeziums_types_is_refused_by_name(told: dict[str, str]) -> None:
    with pytest.raises(
        Misconfigured, match=r"handling\w* has an effect .* set cdc\..*types=debezium"
    ):
        load(CdcSettings, None, told)


def test_one_table_in_debeziums_types_may_use_the_mode_of_all() -> None:
    result = {"cdc.decimal_handling_mode": "double", "cdc.tables.t.types": "debezium"}
    cdc = load(CdcSettings, None, result).cdc
    assert cdc.form("t").types.decimals == "double"
    assert cdc.form("u").types == ISO


def test_a_file_sets_the_same(tmp_path: Path) -> None:
    config = tmp_path / "tidegate.yaml"
    config.write_text(
        "cdc:\n  snapshot_mode: no_data\n"
        "  tables:\n    flights: {key_columns: [carrier], tombstones: false}\n"
    )
    settings = load(CdcSettings, config, {})
    assert settings.cdc.snapshot_mode == "no_data"
    assert settings.cdc.tables["flights"] == TableChanges(
        key_columns=("carrier",), tombstones=False
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cdc.snapshot_mode", "never"),
        ("cdc.tables.t.key", "columms"),
        ("cdc.chunk_rows", "0"),
        ("cdc.value_format", "thrift"),
        ("cdc.types", "connect"),
        ("cdc.decimal_handling_mode", "exact"),
        ("cdc.tables.t.key_format", "string"),
        ("cdc.tables.t.keycolumns", "a"),
    ],
)
def test_what_is_not_offered_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(Misconfigured, match=name.rpartition(".")[2]):
        load(CdcSettings, None, {name: value})


def test_a_format_with_a_registry_is_refused_without_one() -> None:
    with pytest.raises(ValueError, match=r"cdc\.tables\.t.*cdc\.registry\.url"):
        CdcSection(tables={"t": TableChanges(key_format="avro")})
    section = CdcSection(value_format="avro", registry=RegistrySection(url="mock://"))
    assert section.form("t").is_registered

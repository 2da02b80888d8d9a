"""The settings of the publisher, as users write them."""

from pathlib import Path

import pytest

from tidegate_cdc_publisher.record_form import RecordForm
from tidegate_cdc_publisher.settings import CdcSettings, TableChanges
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
    told = {"main.air.flights": TableChanges(key_columns=("carrier",))}
    assert load(CdcSettings, None, {name: value}).cdc.tables == told
    monkeypatch.setenv(f"TIDEGATE__{name.upper().replace('.', '__')}", value)
    assert load(CdcSettings, None, {}).cdc.tables == told


def test_a_table_can_be_declared_to_have_no_key() -> None:
    settings = load(CdcSettings, None, {"cdc.tables.logs.key": "none"})
    assert settings.cdc.tables["logs"] == TableChanges(key="none")


def test_a_table_may_have_another_format_than_the_others() -> None:
    told = {"cdc.value_format": "json_schema", "cdc.tables.t.value_format": "json"}
    cdc = load(CdcSettings, None, {**told, "cdc.tables.u.key_format": "json_schema"}).cdc
    assert cdc.form("t") == RecordForm()
    assert cdc.form("u") == RecordForm("json_schema", "json_schema")
    assert cdc.form("v") == RecordForm("json_schema")


def test_a_file_says_the_same(tmp_path: Path) -> None:
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
        ("cdc.snapshot_mode", "always"),
        ("cdc.tables.t.key", "columms"),
        ("cdc.chunk_rows", "0"),
        ("cdc.value_format", "avro"),
        ("cdc.tables.t.key_format", "string"),
        ("cdc.tables.t.keycolumns", "a"),
    ],
)
def test_what_is_not_offered_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(Misconfigured, match=name.rpartition(".")[2]):
        load(CdcSettings, None, {name: value})

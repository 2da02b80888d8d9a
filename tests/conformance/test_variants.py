"""Shredded variants of delta-spark: reassembled, they have the values that delta-spark reads."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conformance import runner_entry_points
from tests.conformance.scoring import Case, table_cases
from tests.unit.delta.schema.variant_values import decoded

STATED = "rows_with_variant_as_json"


@pytest.fixture(scope="module")
def stated(own_corpus: Path) -> list[Case]:
    result = [case for case in table_cases(own_corpus) if STATED in case.get("extra", {})]
    assert result
    return result


def test_every_variant_says_what_delta_spark_says(own_corpus: Path, stated: list[Case]) -> None:
    for case in stated:
        expected = pq.read_table(own_corpus / case["extra"][STATED])
        result = runner_entry_points.read_table(
            str(own_corpus / case["table"]), version=case.get("version")
        )
        variants = [name for name in expected.column_names if is_variant(result.schema.field(name))]
        assert variants
        assert meant(result, variants) == meant(expected, variants)


def test_a_shredded_variant_that_others_refuse_is_whole(corpus: Path) -> None:
    result = runner_entry_points.read_table(
        str(corpus / "tables/spark/variant-stats-no-checkpoint")
    )
    rows = meant(result, ["v"])
    assert [row["i"] for row in rows] == list(range(100, 110))
    assert [row["v"]["id"] for row in rows] == list(range(10))
    assert [row["nv"]["v"]["id"] for row in rows] == list(range(10, 20))


def is_variant(field: pa.Field) -> bool:
    return bool(pa.types.is_struct(field.type)) and field.type.get_field_index("metadata") >= 0


def meant(rows: pa.Table, variants: list[str]) -> list[dict[str, Any]]:
    """Return the rows with variants as values, sorted."""
    plain = [
        {name: meaning(value, name in variants) for name, value in row.items()}
        for row in rows.to_pylist()
    ]
    return sorted(plain, key=repr)


def meaning(value: Any, is_a_variant: object) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"metadata", "value"}:
            return decoded(value["metadata"], value["value"])
        return {name: meaning(one, False) for name, one in value.items()}
    return json.loads(value) if is_a_variant and isinstance(value, str) else value

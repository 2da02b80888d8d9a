"""Statistics and partition values outside their type's range are null in a checkpoint's struct."""

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from tests.builders import add, metadata, schema
from tests.fuzz.mutations import ODD
from tests.fuzz.tables import KINDS
from tests.fuzz.targets import LITERALS
from tidegate_delta.checkpoints.parsed_stats import (
    columns,
    fields,
    parsed_of,
    typed_by_column,
    typed_one_by_one,
)
from tidegate_delta.log.actions import Add, Metadata
from tidegate_delta.snapshots.file_action_columns import adds_to_columns

NAMES = {kind.partition("(")[0]: kind for kind in KINDS}
GOOD = {"numRecords": 3, "minValues": LITERALS, "nullCount": dict.fromkeys(LITERALS, 0)}
FURTHER = (
    "1e40",
    "-1e308",
    str(10**40),
    "0.000000000000000000000000000000000000001",
    '"0000-01-01"',
    '"9999-12-31T23:59:59.999999-14:00"',
    '"0001-01-01T00:00:00+14:00"',
    '"\\udc00 \\ud800"',
    '"a\\ud83d"',
)
MARK = "(odd)"


def about(partition_columns: list[str]) -> Metadata:
    body = metadata(partition_columns, **{"checkpoint.writeStatsAsStruct": "true"})["metaData"]
    return Metadata.model_validate({**body, "schemaString": schema(**NAMES)})


def odd_statistics() -> Iterator[str]:
    for odd in (*ODD, *FURTHER):
        for group in ("minValues", "maxValues", "nullCount"):
            yield json.dumps({**GOOD, group: dict.fromkeys(LITERALS, MARK)})
            for name in LITERALS:
                text = json.dumps({**GOOD, group: {name: MARK}})
                yield text.replace(json.dumps(MARK), odd)
            yield json.dumps({**GOOD, group: MARK}).replace(json.dumps(MARK), odd)
        for name in ("numRecords", "tightBounds"):
            yield json.dumps({**GOOD, name: MARK}).replace(json.dumps(MARK), odd)


def typed(of: Metadata, added: list[Add]) -> pa.Table:
    parsed = parsed_of(of)
    assert parsed is not None
    names = [field.name for field in fields(parsed)]
    return pa.table(dict(zip(names, columns(parsed, adds_to_columns(added)), strict=True)))


def test_a_statistic_that_its_type_cannot_hold_is_null_and_the_others_stay() -> None:
    texts = [*odd_statistics(), json.dumps(GOOD)]
    added = [Add.model_validate(add(f"a{at}", stats=text)["add"]) for at, text in enumerate(texts)]
    result = typed(about([]), added)
    result.validate(full=True)
    last: Any = result["stats_parsed"][-1].as_py()
    assert last["numRecords"] == 3
    assert last["minValues"]["long"] == 1
    assert last["nullCount"]["string"] == 0


@pytest.mark.parametrize("name", NAMES)
def test_a_partition_value_that_its_type_cannot_hold_is_null(name: str) -> None:
    of = about([name])
    values = [*ODD, *FURTHER, "".join(map(chr, range(300))), "294247-01-10 04:00:54.775808"]
    texts = [value for value in values if "\\ud" not in value]
    added = [
        Add.model_validate(add(f"a{at}", partitionValues={name: text})["add"])
        for at, text in enumerate(texts)
    ]
    for item in added:
        typed(of, [item]).validate(full=True)
    typed(of, added).validate(full=True)


def as_delta_writes(text: str) -> str:
    """Return statistics with their usual timestamps in Delta's form."""
    for name, zone in (("timestamp", "Z"), ("timestamp_ntz", "")):
        usual, form = LITERALS[name], f"2024-01-01T00:00:00.000{zone}"
        text = text.replace(f'"{name}": "{usual}"', f'"{name}": "{form}"')
    return text


def test_statistics_are_read_by_column_as_they_are_one_by_one_or_not_at_all() -> None:
    plain = {name: kind for name, kind in NAMES.items() if name != "decimal"}
    body = metadata([], **{"checkpoint.writeStatsAsStruct": "true"})["metaData"]
    parsed = parsed_of(Metadata.model_validate({**body, "schemaString": schema(**plain)}))
    assert parsed is not None
    by_column = 0
    good = as_delta_writes(json.dumps(GOOD))
    for odd in (*odd_statistics(), "{}", "", "null", "[]", '{"stats": 1}\n{}'):
        text = as_delta_writes(odd)
        if len(text) > 2_000:
            continue  # beyond the limits of Python's reader
        stats = pa.array([text, None, good], pa.string())
        result = typed_by_column(parsed.indexed, stats)
        if result is not None:
            assert result.equals(typed_one_by_one(parsed.indexed, stats)), text
            by_column += 1
    assert by_column > 50


def test_usual_statistics_are_read_by_column() -> None:
    kinds = ("long", "string", "date", "timestamp", "timestamp_ntz", "double", "float", "byte")
    body = metadata([], **{"checkpoint.writeStatsAsStruct": "true"})["metaData"]
    shape = schema(**{name: name for name in kinds})
    parsed = parsed_of(Metadata.model_validate({**body, "schemaString": shape}))
    assert parsed is not None
    bounds = {
        "long": 5,
        "string": "a",
        "date": "2024-02-29",
        "timestamp": "2024-02-29T01:02:03.456Z",
        "timestamp_ntz": "2024-02-29T01:02:03.456789",
        "double": 1.5,
        "float": 0.1,
        "byte": 300,
    }
    text = json.dumps({"numRecords": 1, "minValues": bounds, "maxValues": {}, "nullCount": {}})
    stats = pa.array([text], pa.string())
    result = typed_by_column(parsed.indexed, stats)
    assert result is not None
    assert result.equals(typed_one_by_one(parsed.indexed, stats))
    least = result[0].as_py()["minValues"]
    assert least["byte"] is None
    assert least["long"] == 5

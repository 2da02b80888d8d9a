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
from tidegate_delta.checkpoints.parsed_stats import columns, fields, parsed_of
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


def test_a_statistic_that_its_type_cannot_hold_is_null_and_keeps_no_other_from_being_told() -> None:
    texts = [*odd_statistics(), json.dumps(GOOD)]
    added = [Add.model_validate(add(f"a{at}", stats=text)["add"]) for at, text in enumerate(texts)]
    found = typed(about([]), added)
    found.validate(full=True)
    last: Any = found["stats_parsed"][-1].as_py()
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
    for one in added:
        typed(of, [one]).validate(full=True)
    typed(of, added).validate(full=True)

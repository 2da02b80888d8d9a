import json

import pytest

from tests.builders import Row, add, an_id, commit, info
from tidegate.pipeline.outcome import Rejection
from tidegate.pipeline.provenance import Accepted, Provenance, Refused, of

ORIGIN = Provenance(
    epoch=an_id(),
    stream="cluster/topic/0",
    offsets=(3, 9),
    rules=1,
    accepted=(Accepted(id=an_id(), offset=3, sha256="a" * 64, metrics={"numFiles": "1"}),),
    refused=(Refused(id=an_id(), offset=9, reason=Rejection(rule="bad_path", reason="so")),),
)


def test_what_is_written_is_what_is_read() -> None:
    told = json.loads(ORIGIN.model_dump_json(exclude_none=True, exclude_defaults=True))
    assert of(commit(1, info(tidegate=told), add("a"))) == ORIGIN


@pytest.mark.parametrize("row", [info(), info(tidegate=None), add("a")])
def test_a_version_by_somebody_else_has_none(row: Row) -> None:
    assert of(commit(1, row)) is None


@pytest.mark.parametrize("told", [{}, {"epoch": 1}, {"accepted": "all"}])
def test_what_is_not_ours_in_shape_is_not_ours(told: Row) -> None:
    assert of(commit(1, info(tidegate=told))) is None


def test_fields_of_a_newer_release_survive() -> None:
    told = {**json.loads(ORIGIN.model_dump_json(exclude_none=True)), "future": [1]}
    found = of(commit(1, info(tidegate=told)))
    assert found is not None
    assert found.model_dump(mode="json")["future"] == [1]

import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import Row, add, an_id, commit, info
from tidegate_messages.commit_provenance import Accepted, Provenance, Refused, of, spelled
from tidegate_messages.outcome import Rejection
from tidegate_messages.proposal import IdentityBlock

ORIGIN = Provenance(
    epoch=an_id(),
    stream="cluster/topic/0",
    offsets=(3, 9),
    rules=1,
    accepted=(Accepted(id=an_id(), offset=3, sha256="a" * 64, metrics={"numFiles": "1"}),),
    refused=(Refused(id=an_id(), offset=9, reason=Rejection(rule="bad_path", reason="so")),),
)


def test_what_is_written_is_what_is_read() -> None:
    result = json.loads(ORIGIN.model_dump_json(exclude_none=True, exclude_defaults=True))
    assert of(commit(1, info(tidegate=result), add("a"))) == ORIGIN


@pytest.mark.parametrize("row", [info(), info(tidegate=None), add("a")])
def test_a_version_by_somebody_else_has_none(row: Row) -> None:
    assert of(commit(1, row)) is None


@pytest.mark.parametrize("told", [{}, {"epoch": 1}, {"accepted": "all"}])
def test_what_is_not_ours_in_shape_is_not_ours(told: Row) -> None:
    assert of(commit(1, info(tidegate=told))) is None


def read_after(change: Callable[[Row], object]) -> Provenance | None:
    result = json.loads(ORIGIN.model_dump_json(exclude_none=True))
    change(result)
    return of(commit(1, info(tidegate=result)))


@pytest.mark.parametrize(
    "change",
    [
        lambda told: told.update(epoch=7, offsets=[3], rules="12.1"),
        lambda told: told.pop("stream"),
        lambda told: told.update(files_added="one", rows_by=[[-1]], files_removed=[1]),
        lambda told: told["accepted"][0].update(metrics=[1], patched="perhaps", row_mapping=[{}]),
        lambda told: told["refused"][0]["reason"].update(advice="wait", path=["a"]),
    ],
)
def test_the_owner_of_an_entry_is_known_though_other_fields_differ(
    change: Callable[[Row], object],
) -> None:
    result = read_after(change)
    assert result is not None
    assert [(item.id, item.sha256) for item in result.accepted] == [
        (ORIGIN.accepted[0].id, "a" * 64)
    ]
    assert result.files_removed == (), "it is nothing without the others"
    [refused] = result.refused
    assert (refused.id, refused.reason.rule) == (ORIGIN.refused[0].id, "bad_path")


def test_a_refusal_that_nobody_can_read_holds() -> None:
    result = read_after(lambda told: told["refused"][0].update(reason="no"))
    assert result is not None
    assert result.refused[0].reason.rule == "unknown"


@pytest.mark.parametrize(
    "change",
    [
        lambda told: told["accepted"][0].update(id="one"),
        lambda told: told["accepted"][0].pop("sha256"),
        lambda told: told["refused"][0].update(sha256=7),
        lambda told: told.update(accepted={}),
        lambda told: told.update(accepted=["all"]),
        lambda told: told.update(accepted=[], refused=[], rules="12.1"),
    ],
)
def test_an_entry_that_names_nobody_is_not_ours(change: Callable[[Row], object]) -> None:
    assert read_after(change) is None


def test_fields_of_a_newer_release_survive() -> None:
    result = {**json.loads(ORIGIN.model_dump_json(exclude_none=True)), "future": [1]}
    found = of(commit(1, info(tidegate=result)))
    assert found is not None
    assert found.model_dump(mode="json")["future"] == [1]


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    TEXTS,
    st.lists(TEXTS | st.none(), max_size=2),
    st.dictionaries(TEXTS, st.none() | TEXTS, max_size=2),
)
ACCEPTED = st.fixed_dictionaries(
    {"id": st.uuids(), "offset": st.integers(0, 2**63 - 1), "sha256": st.just("b" * 64)},
    optional={
        "operation": st.none() | TEXTS,
        "metrics": st.dictionaries(TEXTS, VALUES, max_size=3),
        "rows_deleted": st.none() | st.integers(0, 9),
        "patched": st.booleans(),
        "identity_blocks": st.just((IdentityBlock(column="x", first=1, step=1, count=2),)),
    },
)


@given(st.lists(ACCEPTED, max_size=3), st.booleans(), st.lists(st.integers(0, 9), max_size=2))
def test_it_is_spelled_as_the_general_serializer_would(
    accepted: list[dict[str, Any]], has_refused: bool, files: list[int]
) -> None:
    one = Provenance.trusted(
        {
            "epoch": UUID(int=7),
            "stream": "cluster/topic/0",
            "offsets": (3, 9),
            "rules": 5,
            "accepted": tuple(map(Accepted.trusted, accepted)),
            "refused": ORIGIN.refused if has_refused else (),
            "files_added": tuple(files),
            "applications": tuple(files),
            "rows_by": tuple((place, 2) for place in files),
        }
    )
    assert spelled(one).decode() == one.model_dump_json(exclude_none=True, exclude_defaults=True)

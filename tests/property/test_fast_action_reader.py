"""The fast parser of add and remove lines agrees with the full one on any row."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from random import Random
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import Row, add, remove, value_of
from tests.builders import proposal as proposed
from tests.fuzz.mutations import ODD as ODD_TEXTS
from tests.fuzz.mutations import mutate
from tests.property.test_codec import VALUES
from tests.property.test_hostile_records import SAMPLES
from tests.unit.committer.hostile_paths import PATHS
from tidegate_committer.intake import path_checks
from tidegate_committer.intake import proposal_actions as content_module
from tidegate_committer.intake.action_reader import read_row
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.fast_action_reader import read_plain
from tidegate_committer.intake.proposal_actions import CheckedActions, read_content
from tidegate_committer.intake.proposal_reader import DeadLetter, read_record
from tidegate_committer.intake.refusals import InvalidProposal
from tidegate_committer.policy import Policy
from tidegate_delta.log.actions import Action, Add, Remove
from tidegate_delta.log.file_paths import canonical_path
from tidegate_messages.read_set import ReadSet

SHORT = Policy(stats_chars_max=60, partition_value_chars_max=4, actions_max=3)
NAMES = sorted(
    {
        model_field.alias or ""
        for kind in (Add, Remove)
        for model_field in kind.model_fields.values()
    }
    | {*Add.model_fields, "newer"}
)
STATS = st.one_of(
    st.fixed_dictionaries(
        {"numRecords": st.sampled_from([0, 10, 2**63 - 1, 2**63, -1, 1.0, True, "1", None])},
        optional={
            name: st.sampled_from([{}, {"x": 1}, None, [], 1])
            for name in ("minValues", "maxValues", "nullCount", "tightBounds", "newer")
        },
    ).map(lambda stats: orjson.dumps(stats).decode()),
    st.sampled_from(["", "{", "[]", "1", "null", '{"numRecords":1}x', '{"numRecords":1e3}']),
)
PATH_TEXTS = st.one_of(
    st.sampled_from(PATHS),
    st.text("ab=-_./%: \\é\n\x00", max_size=12),
    st.integers(250, 258).map(lambda length: "a" * length),
)
PARTITIONS: st.SearchStrategy[Any] = st.one_of(
    st.dictionaries(st.text(max_size=3), st.none() | st.text(max_size=5), max_size=3),
    st.integers(126, 130).map(lambda count: {str(number): "1" for number in range(count)}),
    st.sampled_from([{"p": 1}, {"p": []}, [], "p=1", None]),
)
NUMBERS = st.sampled_from([0, -1, 2**63 - 1, 2**63, 2**64 - 1, 1.0, True, False, "1", None])
ODD = st.one_of(STATS, PATH_TEXTS, PARTITIONS, NUMBERS, VALUES)
CHANGES = st.lists(st.tuples(st.sampled_from(NAMES), ODD), max_size=2)
ABSENT = st.sets(st.sampled_from(NAMES), max_size=2)


@st.composite
def rows(draw: st.DrawFn) -> Row:
    """Draw an add or remove line, odd here and there."""
    make = draw(st.sampled_from([add, remove]))
    [(name, body)] = make(draw(st.sampled_from(["a", "p=1/b.parquet", "p=1/c%20d"]))).items()
    absent = draw(ABSENT)
    kept = {key: value for key, value in body.items() if key not in absent}
    order = draw(st.permutations(list({**kept, **dict(draw(CHANGES))}.items())))
    return {name: dict(order)}


def told(action: Action) -> Sequence[object]:
    # A changed copy writes its fields in the order of its line.
    changed = action.with_(data_change=False)
    return (
        type(action),
        list(vars(action).items()),
        action.model_fields_set,
        action.model_extra,
        orjson.dumps(changed.to_row()),
        changed.model_fields_set,
    )


@given(rows())
@settings(max_examples=1_000, deadline=None)
def test_they_agree_on_a_row(row: Row) -> None:
    row = orjson.loads(orjson.dumps(row))
    quick = read_plain(row, SHORT)
    if quick is not None:
        line, action = read_row(row, "actions[0]", SHORT)
        assert (quick[0], told(quick[1])) == (line, told(action))


NO_FILES: list[object] = [
    None,
    [],
    "add",
    {},
    {"add": None},
    {"add": []},
    {"cdc": {}},
    add("a") | remove("b"),
]


@pytest.mark.parametrize("row", NO_FILES)
def test_what_is_no_file_is_left_to_the_full_one(row: object) -> None:
    assert read_plain(row, Policy()) is None


@pytest.mark.parametrize("name", sorted({*Add.model_fields, *Remove.model_fields, "newer"}))
@pytest.mark.parametrize("make", [add, remove])
def test_a_field_without_a_value_is_left_to_the_full_one(make: Any, name: str) -> None:
    [(kind, body)] = make("a").items()
    fields = (Add if kind == "add" else Remove).model_fields
    alias = str(fields[name].alias) if name in fields else name
    assert read_plain({kind: {**body, alias: None}}, Policy()) is None


def content(rows: Sequence[Row]) -> object:
    try:
        return vars_of(read_content(rows, SHORT))
    except InvalidProposal as error:
        return error.rejection


def vars_of(found: CheckedActions) -> Mapping[str, object]:
    return {
        field.name: getattr(found, field.name) for field in fields(CheckedActions) if field.compare
    }


def with_full_adds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content_module, "read_plain", lambda *_: None)


@given(st.lists(rows(), max_size=4))
@settings(max_examples=500, deadline=None)
def test_they_agree_on_the_actions_of_a_proposal(rows: list[Row]) -> None:
    quick = content(rows)
    with pytest.MonkeyPatch.context() as monkeypatch:
        with_full_adds(monkeypatch)
        assert content(rows) == quick


def judged(value: bytes) -> object:
    read = read_record(value, 7, Policy(), (("producer", b"p"),))
    if isinstance(read, DeadLetter):
        return read
    own = {field.name: getattr(read, field.name) for field in fields(Candidate)}
    return {**own, "content": vars_of(read.content), "files_read": read.files_read}


@given(st.integers(0, 2**32), st.sampled_from(SAMPLES))
@settings(max_examples=500, deadline=None)
def test_they_agree_on_records_that_were_tampered_with(seed: int, sample: bytes) -> None:
    value = mutate(Random(seed), sample)
    quick = judged(value)
    with pytest.MonkeyPatch.context() as monkeypatch:
        with_full_adds(monkeypatch)
        assert judged(value) == quick


READ = st.lists(st.sampled_from(["a", "b", "./a", "a%20b", "a b", "a/", "c"]), max_size=3)


@given(READ, st.lists(st.sampled_from([*"abc", "a%20b", "a%2520b"]), max_size=2, unique=True))
@settings(deadline=None)
def test_they_agree_on_which_files_were_read(files: list[str], gone: list[str]) -> None:
    value = value_of(proposed(*map(remove, gone), reads=ReadSet(files=tuple(files))))
    quick = judged(value)
    with pytest.MonkeyPatch.context() as monkeypatch:
        with_full_adds(monkeypatch)
        assert judged(value) == quick


@pytest.mark.parametrize("text", ODD_TEXTS)
@pytest.mark.parametrize("name", ["size", "path", "partitionValues", "stats", "dataChange"])
def test_they_agree_on_odd_json(name: str, text: str) -> None:
    row = {"add": {**add("a")["add"], name: "ODD"}}
    body = value_of(proposed(row)).replace(b'"ODD"', text.encode())
    quick = judged(body)
    with pytest.MonkeyPatch.context() as monkeypatch:
        with_full_adds(monkeypatch)
        assert judged(body) == quick


@given(PATH_TEXTS | st.text("ab1-._/=", max_size=10))
@settings(max_examples=1_000, deadline=None)
def test_nothing_is_wrong_with_a_plain_path_and_it_has_one_spelling(path: str) -> None:
    if path_checks.is_plain(path):
        assert canonical_path(path) == path
        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr(path_checks, "is_plain", lambda _: False)
            assert path_checks.wrong_with(path) is None


def test_plain_files_are_not_read_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    def slowly(*_: object) -> Any:
        raise AssertionError("this is the slow way")

    monkeypatch.setattr(content_module, "read_row", slowly)
    result = remove("p=1/b", deletionTimestamp=5)
    found = read_content([add("p=1/a"), add("c", stats='{"numRecords":0}'), result], Policy())
    assert (len(found.adds), len(found.removes)) == (2, 1)
    assert found.removed == {"p=1/b"}

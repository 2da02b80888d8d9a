"""Schemas are asked for once; one that can't be used is the fault of its records alone."""

import sys
from collections.abc import Callable
from typing import TypeVar

import pytest

from tests.support.protobuf_orders import order_files
from tidegate_delta.errors import InvalidRequest, Misconfigured, Unavailable
from tidegate_producers.ingest.job import registered
from tidegate_producers.ingest.protobuf_texts import ProtobufTexts
from tidegate_producers.ingest.record_texts import JsonTexts

T = TypeVar("T")
OLD = '{"properties": {"id": {"type": "integer"}, "at": {"type": "string"}}}'
NEW = '{"properties": {"at": {"type": "string", "format": "date-time"}, "day": {}}}'


def asking(schemas: dict[int, T], asked: list[int]) -> Callable[[int], T | None]:
    """Return a registry: it has no schema 2, one of another kind is 3, and it is down for 4."""

    def schema_of(schema_id: int) -> T | None:
        asked.append(schema_id)
        if schema_id == 3:
            raise InvalidRequest("it is of another kind", error_class="x")
        if schema_id == 4:
            raise Unavailable("it is down")
        return schemas.get(schema_id)

    return schema_of


def test_messages_of_protobuf_are_learnt_once() -> None:
    asked: list[int] = []
    texts = ProtobufTexts(asking({1: order_files()}, asked))
    assert texts.learn(["1/1/1", "1", "1/9", "2", "3"])
    assert asked == [1, 1, 1, 2, 3]
    assert not texts.learn(["1", "1/9", "2", "3"])
    assert {name: kind.simpleString() for name, kind in texts.types().items()} == {
        "page": "string",
        "number": "int",
        "price": "double",
    }
    for _ in range(2):
        with pytest.raises(Unavailable):
            texts.learn(["4"])
    assert asked[5:] == [4, 4]


def test_json_schemas_tell_types_and_change_no_record() -> None:
    asked: list[int] = []
    texts = JsonTexts(asking({1: OLD, 5: NEW, 6: "{broken"}, asked))
    assert not texts.learn(["1", "2", "3", "5", "6"])
    assert {name: kind.simpleString() for name, kind in texts.types().items()} == {
        "id": "bigint",
        "at": "timestamp",
    }
    with pytest.raises(Unavailable):
        texts.learn(["1", "4"])
    assert sorted(asked) == [1, 2, 3, 4, 5, 6]


def test_a_registry_without_its_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tidegate_runtime.kafka.schema_registry", None)
    with pytest.raises(Misconfigured, match=r"pip install 'tidegate\[producers,registry\]'"):
        registered("http://registry", {})

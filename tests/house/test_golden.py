"""A release and the one before it understand each other: what `tests/golden/` froze still holds.

The folder of a version that is not released yet follows the code: `python -m tests.golden.freeze`.
"""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import jsonschema
import pytest

from tests.golden import freeze
from tests.house import tree
from tidegate_delta.errors import MalformedRecord
from tidegate_messages.codec import FORMATS, decode, encode
from tidegate_messages.json_schemas import schema_name
from tidegate_messages.json_schemas import schema_of as made_schema_of
from tidegate_messages.message import Message
from tidegate_messages.proposal import Proposal
from tidegate_runtime.release import RELEASE

RELEASES = sorted({n.split("/")[2] for n in tree.files() if n.startswith("tests/golden/0")})
KINDS = {form: kind for kind, form in FORMATS.items()}
PUBLISHED = [kind for kind in FORMATS if kind is not Proposal]

schema_of = cache(made_schema_of)

every_release = pytest.mark.parametrize("release", RELEASES)


def golden(release: str, what: str) -> dict[str, Any]:
    """Return a golden file of a release."""
    result = json.loads(tree.text(f"tests/golden/{release}/{what}.json"))
    assert isinstance(result, dict)
    return result


def lost(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """Yield what one JSON value has and the other lacks, or has otherwise."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            if key not in after:
                yield f"{path}.{key} is gone"
            else:
                yield from lost(value, after[key], f"{path}.{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from lost(one, other, f"{path}[{number}]")
    elif before != after:
        yield f"{path} was {before!r}, is {after!r}"


def test_the_release_in_pyproject_is_frozen() -> None:
    assert RELEASE in RELEASES


@every_release
def test_messages_of_that_release_are_read_and_passed_on_whole(release: str) -> None:
    messages = golden(release, "messages")
    assert {name.split()[0] for name in messages} == KINDS.keys()
    for name, body in messages.items():
        read = decode(KINDS[name.split()[0]], json.dumps(body).encode())
        assert list(lost(body, json.loads(encode(read)))) == [], name


@every_release
@pytest.mark.parametrize("kind", PUBLISHED, ids=lambda kind: str(kind.__name__))
def test_that_release_reads_what_we_publish(release: str, kind: type[Message]) -> None:
    schema = golden(release, "schemas")[schema_name(kind)]
    validator = jsonschema.Draft202012Validator(schema)
    for example in schema_of(kind)["examples"]:
        validator.validate(example)
        # A field of a later release is passed over.
        validator.validate({**example, "of_a_later_release": 1})


@every_release
def test_that_release_takes_a_proposal_that_uses_nothing_newer(release: str) -> None:
    schema = golden(release, "schemas")[schema_name(Proposal)]
    validator = jsonschema.Draft202012Validator(schema)
    known = schema["properties"].keys()
    old = [e for e in schema_of(Proposal)["examples"] if e.keys() <= known]
    assert old
    for name, body in golden(release, "messages").items():
        if name.startswith("proposal/"):
            validator.validate(json.loads(encode(decode(Proposal, json.dumps(body).encode()))))
    with pytest.raises(jsonschema.ValidationError):
        validator.validate({**old[0], "of_a_later_release": 1})


@every_release
def test_no_field_is_gone_or_became_required_or_has_another_type(release: str) -> None:
    for kind in FORMATS:
        before, now = golden(release, "schemas")[schema_name(kind)], schema_of(kind)
        assert before["properties"].keys() <= now["properties"].keys(), kind.__name__
        assert set(now.get("required", ())) <= set(before.get("required", ())), kind.__name__
        for name, field in before["properties"].items():
            for word in ("type", "enum", "const", "default"):
                assert field.get(word) == now["properties"][name].get(word), (kind, name, word)


@every_release
def test_settings_of_that_release_are_known_and_have_the_same_defaults(release: str) -> None:
    for service, settings in golden(release, "settings").items():
        now = freeze.settings_of(service)
        assert {n: v for n, v in settings.items() if n not in now or now[n] != v} == {}, service


@every_release
def test_topics_of_that_release_are_declared_as_they_were(release: str) -> None:
    now = freeze.topics()
    assert {n: t for n, t in golden(release, "topics").items() if now.get(n) != t} == {}


def test_what_breaks_the_promise_is_found() -> None:
    example = golden(RELEASES[0], "messages")["outcome/1 append"]
    renamed = {"state" if key == "status" else key: value for key, value in example.items()}
    with pytest.raises(MalformedRecord):
        decode(KINDS["outcome/1"], json.dumps(renamed).encode())
    assert list(lost({"a": [1, {"b": 2}]}, {"a": [1, {}]})) == [".a[1].b is gone"]
    assert list(lost({"a": 1}, {"a": 2})) == [".a was 1, is 2"]

import json
from pathlib import Path

import pytest

from tidegate_delta.checkpoints.last_checkpoint import (
    LastCheckpoint,
    canonical,
    checksum,
    decode,
    encode,
)

SAMPLE = (
    '{"k0":"\'v 0\'", "checksum": "adsaskfljadfkjadfkj", "k1":{"k2": 2, '
    '"k3": ["v3", [1, 2], {"k4": "v4", "k5": ["v5", "v6", "v7"]}]}}'
)
CANONICAL = (
    '"k0"="%27v%200%27","k1"+"k2"=2,"k1"+"k3"+0="v3","k1"+"k3"+1+0=1,"k1"+"k3"+1+1=2,'
    '"k1"+"k3"+2+"k4"="v4","k1"+"k3"+2+"k5"+0="v5","k1"+"k3"+2+"k5"+1="v6",'
    '"k1"+"k3"+2+"k5"+2="v7"'
)
HINT = LastCheckpoint(10, 13, None, 2048, 4, {"type": "struct", "fields": [{"name": "a b"}]})


def test_the_sample_of_the_protocol_has_its_canonical_form_and_digest() -> None:
    assert canonical(SAMPLE) == CANONICAL
    assert checksum(SAMPLE) == "6a92d155a59bf2eecbd4b4ec7fd1f875"


def test_numbers_and_literals_are_their_own_canonical_form() -> None:
    text = '{"d": 2.710, "e": 1e5, "n": null, "t": true, "f": false, "i": -0}'
    assert canonical(text) == '"d"=2.710,"e"=1e5,"f"=false,"i"=-0,"n"=null,"t"=true'


def test_only_unreserved_octets_stay_and_hexadecimal_is_upper_case() -> None:
    assert canonical('{"ä": "a-._~/é>"}') == '"%C3%A4"="a-._~%2F%C3%A9%3E"'


def test_a_hint_survives_a_round_trip() -> None:
    assert decode(encode(HINT)) == HINT
    assert decode(encode(LastCheckpoint(0, 0))) == LastCheckpoint(0, 0)


def test_what_is_not_known_is_absent_rather_than_null() -> None:
    assert set(json.loads(encode(LastCheckpoint(1, 2)))) == {"version", "size", "checksum"}


def test_a_hint_without_a_checksum_is_believed() -> None:
    assert decode(b'{"version":10,"size":13,"size_in_bytes":5}') == LastCheckpoint(10, 13)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"[]",
        b'{"version":10,"size":1',
        b'{"size":13}',
        b'{"version":10}',
        b'{"version":"10","size":1}',
        b'{"version":true,"size":1}',
        b'{"version":-1,"size":1}',
        b'{"version":10,"size":1,"version":11}',
        b'{"version":10,"size":1,"checkpointSchema":{"a":1,"a":2}}',
        b'{"version":10,"size":1,"checkpointSchema":[]}',
        encode(HINT).replace(b'"version":10', b'"version":11'),
        b"[" * 100_000,
    ],
)
def test_a_hint_that_cannot_be_believed_is_none(content: bytes) -> None:
    assert decode(content) is None


def test_the_checksums_of_other_writers_match(corpus: Path) -> None:
    vectors = json.loads((corpus / "vectors" / "last_checkpoint.json").read_text())["vectors"]
    compared = [vector for vector in vectors if "computed" in vector and "file" in vector]
    for item in compared:
        content = (corpus / item["file"]).read_bytes()
        assert checksum(content.decode()) == item["computed"], item["file"]
        hint = decode(content)
        assert (hint.version if hint else None) == item["version"]
    assert len(compared) > 20

"""Object stores with responses that no emulator gives: each PUT reports its true result."""

import secrets
from collections.abc import Iterator

import pytest

from tests.integration.s3_relay import Relay, Step
from tests.integration.store_servers import AZURE, GCS, MOTO, Kind
from tests.store_laws import DEADLINE_S
from tidegate_delta.errors import Unavailable
from tidegate_runtime.storage.log_store import Put
from tidegate_runtime.storage.object_store import ObjectStore
from tidegate_runtime.storage.put_if_absent_probe import probe

PATH = "_delta_log/00000000000000000000.json"


@pytest.fixture(scope="module", params=[MOTO, GCS, AZURE], ids=lambda kind: kind.name)
def served(request: pytest.FixtureRequest) -> Iterator[tuple[Kind, int]]:
    kind: Kind = request.param
    with kind.serve() as port:
        yield kind, port


@pytest.fixture
def root(served: tuple[Kind, int]) -> str:
    return served[0].root(f"tables/{secrets.token_hex(6)}")


@pytest.fixture
def relay(served: tuple[Kind, int]) -> Iterator[Relay]:
    with Relay(served[1]) as relay:
        yield relay


@pytest.fixture
def store(served: tuple[Kind, int], relay: Relay, root: str) -> ObjectStore:
    return served[0].opened(relay.front, root)


@pytest.fixture
def rival(served: tuple[Kind, int], root: str) -> ObjectStore:
    return served[0].opened(served[1], root)


@pytest.mark.parametrize("step", [408, 409, 429, 500, 502, 503, "hang"])
def test_an_unclear_answer_is_unknown_and_nothing_is_sent_twice(
    step: Step, relay: Relay, store: ObjectStore
) -> None:
    assert store.read(PATH) is None, "the connection is there before its time is short"
    relay.script = [step]
    deadline_s = 10.0 if step == "hang" else DEADLINE_S
    assert store.put_if_absent(PATH, b"mine", deadline_s) is Put.UNKNOWN
    assert len(relay.puts) == 1
    assert store.read(PATH) is None
    assert store.put_if_absent(PATH, b"mine", DEADLINE_S) is Put.WON


@pytest.mark.parametrize("step", ["lose the request", "lose the answer"])
def test_when_the_connection_breaks_nothing_is_sent_twice_and_the_same_bytes_win_in_the_end(
    step: Step, relay: Relay, store: ObjectStore
) -> None:
    relay.script = [step]
    assert store.put_if_absent(PATH, b"mine", DEADLINE_S) is Put.UNKNOWN
    assert len(relay.puts) == 1
    assert store.read(PATH) == (b"mine" if step == "lose the answer" else None)
    assert store.put_if_absent(PATH, b"mine", DEADLINE_S) is Put.WON
    assert store.put_if_absent(PATH, b"theirs", DEADLINE_S) is Put.LOST


def test_a_connection_that_breaks_after_it_was_used_is_not_used_to_send_again(
    relay: Relay, store: ObjectStore
) -> None:
    assert store.put_if_absent("_delta_log/other", b"", DEADLINE_S) is Put.WON
    relay.script = ["lose the answer"]
    assert store.put_if_absent(PATH, b"mine", DEADLINE_S) is Put.UNKNOWN
    assert len(relay.puts) == 2


def test_a_put_that_is_sent_again_after_a_rival_has_lost(
    relay: Relay, store: ObjectStore, rival: ObjectStore
) -> None:
    relay.script = ["lose the request"]
    assert store.put_if_absent(PATH, b"mine", DEADLINE_S) is Put.UNKNOWN
    assert rival.put_if_absent(PATH, b"theirs", DEADLINE_S) is Put.WON
    assert store.put_if_absent(PATH, b"mine", DEADLINE_S) is Put.LOST


@pytest.mark.parametrize("status", [400, 403, 404, 501])
def test_what_no_retry_cures_is_unavailable(
    status: int, relay: Relay, store: ObjectStore, root: str
) -> None:
    relay.script = [status] * 2
    with pytest.raises(Unavailable, match=root):
        store.put_if_absent(PATH, b"mine", DEADLINE_S)
    may_help = root.startswith("s3://") and status in (400, 501)
    assert len(relay.puts) == (2 if may_help else 1), "s3fs sends what obstore sent in vain"


def test_an_unconditional_put_is_sent_again(relay: Relay, store: ObjectStore) -> None:
    relay.script = [503]
    store.put("_delta_log/_last_checkpoint", b"{}")
    assert len(relay.puts) == 2
    assert store.read("_delta_log/_last_checkpoint") == b"{}"


def test_the_probe_finds_a_store_that_never_heard_of_the_condition(
    relay: Relay, store: ObjectStore
) -> None:
    relay.forgets = True
    report = probe(store, 5)
    assert any("both were told that they won (5 times)" in said for said in report.failures)


def test_the_probe_finds_a_store_that_refuses_the_condition(
    relay: Relay, store: ObjectStore
) -> None:
    relay.script = ["forward", "forward", 501, 501]
    [failure] = probe(store, 5).failures
    assert "accepts a plain PUT and refuses a conditional one" in failure
    assert list(store.list_from("_tidegate", "")) == []

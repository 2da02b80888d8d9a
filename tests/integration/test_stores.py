"""The object store against moto's server, and against answers that no emulator gives."""

import secrets
from collections.abc import Callable, Iterator
from http.client import HTTPConnection

import pytest
from moto.server import ThreadedMotoServer

from tests.integration.s3_relay import Relay, Step
from tests.store_laws import DEADLINE_S, LAWS, assert_one_winner_each, contest
from tidegate.delta.errors import Unavailable
from tidegate.runtime.log_store import LogStore, Put
from tidegate.runtime.object_store import ObjectStore
from tidegate.runtime.store_probe import probe

PATH = "_delta_log/00000000000000000000.json"


@pytest.fixture(scope="module")
def s3_port() -> Iterator[int]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    port = server.get_host_and_port()[1]
    connection = HTTPConnection("127.0.0.1", port)
    connection.request("PUT", "/bucket")
    assert connection.getresponse().status == 200
    yield port
    server.stop()


def opened(port: int, root: str) -> ObjectStore:
    options = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "region": "us-east-1",
        "access_key_id": "any",
        "secret_access_key": "any",
    }
    return ObjectStore(root, options)


@pytest.fixture
def root() -> str:
    return f"s3://bucket/tables/{secrets.token_hex(6)}"


@pytest.fixture
def store(s3_port: int, root: str) -> ObjectStore:
    return opened(s3_port, root)


@pytest.fixture
def relay(s3_port: int) -> Iterator[Relay]:
    with Relay(s3_port) as relay:
        yield relay


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_s3_obeys_the_law(law: Callable[[LogStore], None], store: ObjectStore) -> None:
    law(store)


def test_of_four_threads_one_wins_each_version(s3_port: int, root: str) -> None:
    stores: list[LogStore] = [opened(s3_port, root) for _ in range(4)]
    assert_one_winner_each(contest(stores, versions=25), stores[0])


def test_the_probe_finds_that_the_contract_is_kept_and_leaves_nothing(store: ObjectStore) -> None:
    report = probe(store, 20)
    assert report.failures == ()
    assert (report.won, report.lost) == (20, 20)
    assert list(store.list_from("_tidegate", "")) == []


@pytest.mark.parametrize("step", [409, 429, 500, 503, "hang"])
def test_an_unclear_answer_is_unknown_and_nothing_is_sent_twice(
    step: Step, relay: Relay, root: str
) -> None:
    store = opened(relay.front, root)
    relay.script = [step]
    assert store.put_if_absent(PATH, b"mine", 2.0) is Put.UNKNOWN
    assert len(relay.puts) == 1
    assert store.read(PATH) is None
    assert store.put_if_absent(PATH, b"mine", DEADLINE_S) is Put.WON


@pytest.mark.parametrize("step", ["lose the request", "lose the answer"])
def test_when_the_connection_breaks_the_same_bytes_win_in_the_end(
    step: Step, relay: Relay, root: str
) -> None:
    store = opened(relay.front, root)
    # The HTTP library sends the same bytes once more by itself; both are cut here.
    relay.script = [step, step]
    assert store.put_if_absent(PATH, b"mine", DEADLINE_S) is Put.UNKNOWN
    assert len(relay.puts) == 2
    assert store.read(PATH) == (b"mine" if step == "lose the answer" else None)
    assert store.put_if_absent(PATH, b"mine", DEADLINE_S) is Put.WON
    assert store.put_if_absent(PATH, b"theirs", DEADLINE_S) is Put.LOST


def test_a_put_that_the_library_sends_again_has_won_by_comparison(relay: Relay, root: str) -> None:
    store = opened(relay.front, root)
    relay.script = ["lose the answer"]
    assert store.put_if_absent(PATH, b"mine", DEADLINE_S) is Put.WON
    assert len(relay.puts) == 2


def test_a_put_that_is_sent_again_after_a_rival_has_lost(relay: Relay, root: str) -> None:
    store, rival = opened(relay.front, root), opened(relay.port, root)
    relay.script = ["lose the request", "lose the request"]
    assert store.put_if_absent(PATH, b"mine", DEADLINE_S) is Put.UNKNOWN
    assert rival.put_if_absent(PATH, b"theirs", DEADLINE_S) is Put.WON
    assert store.put_if_absent(PATH, b"mine", DEADLINE_S) is Put.LOST


@pytest.mark.parametrize("status", [400, 403, 404, 501])
def test_what_no_retry_cures_is_unavailable(status: int, relay: Relay, root: str) -> None:
    store = opened(relay.front, root)
    relay.script = [status]
    with pytest.raises(Unavailable, match=root):
        store.put_if_absent(PATH, b"mine", DEADLINE_S)
    assert len(relay.puts) == 1


def test_an_unconditional_put_is_sent_again(relay: Relay, root: str) -> None:
    store = opened(relay.front, root)
    relay.script = [503]
    store.put("_delta_log/_last_checkpoint", b"{}")
    assert len(relay.puts) == 2
    assert store.read("_delta_log/_last_checkpoint") == b"{}"


def test_a_missing_bucket_is_unavailable_whatever_is_asked(s3_port: int) -> None:
    store = opened(s3_port, f"s3://none-{secrets.token_hex(4)}/t")
    with pytest.raises(Unavailable, match="bucket"):
        store.put_if_absent(PATH, b"x", DEADLINE_S)
    with pytest.raises(Unavailable, match="bucket"):
        store.read(PATH)
    with pytest.raises(Unavailable, match="bucket"):
        list(store.list_from("_delta_log", ""))


def test_a_file_that_changed_while_it_was_open_is_not_mixed(store: ObjectStore) -> None:
    store.put("part-0.parquet", b"a" * 3_000_000)
    with store.open("part-0.parquet") as file:
        assert file.read(10) == b"a" * 10
        store.put("part-0.parquet", b"b" * 3_000_000)
        file.seek(2_900_000)
        with pytest.raises(Unavailable):
            file.read(10)

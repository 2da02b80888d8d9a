"""Each object store satisfies `tests/store_laws.py`, on every server of its protocol."""

import secrets
from collections.abc import Callable, Iterator

import pytest

from tests.integration.azure_server import AzureServer
from tests.integration.gcs_server import GcsServer
from tests.integration.store_servers import AZURE, FAKE_GCS, GCS, KINDS, Kind
from tests.store_laws import DEADLINE_S, LAWS, assert_one_winner_each, contest
from tidegate_delta.errors import Unavailable
from tidegate_runtime.storage.log_store import LogStore, Put
from tidegate_runtime.storage.object_store import ObjectStore
from tidegate_runtime.storage.put_if_absent_probe import probe


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind.name)
def served(request: pytest.FixtureRequest) -> Iterator[tuple[Kind, int]]:
    kind: Kind = request.param
    with kind.serve() as port:
        yield kind, port


@pytest.fixture
def opened(served: tuple[Kind, int]) -> Callable[[], ObjectStore]:
    kind, port = served
    root = kind.root(f"tables/{secrets.token_hex(6)}")
    return lambda: kind.opened(port, root)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_a_store_obeys_the_law(
    law: Callable[[LogStore], None], opened: Callable[[], ObjectStore]
) -> None:
    law(opened())


def test_of_four_threads_one_wins_each_version(opened: Callable[[], ObjectStore]) -> None:
    stores: list[LogStore] = [opened() for _ in range(4)]
    assert_one_winner_each(contest(stores, versions=25), stores[0])


def test_the_probe_finds_that_the_contract_is_kept_and_leaves_nothing(
    opened: Callable[[], ObjectStore],
) -> None:
    store = opened()
    report = probe(store, 20)
    assert report.failures == ()
    assert (report.won, report.lost) == (20, 20)
    assert list(store.list_from("_tidegate", "")) == []


def test_a_file_that_changed_while_it_was_open_is_not_mixed(
    served: tuple[Kind, int], opened: Callable[[], ObjectStore]
) -> None:
    if served[0] is FAKE_GCS:
        pytest.skip("fake-gcs-server heeds no condition of a download")
    store = opened()
    store.put("part-0.parquet", b"a" * 3_000_000)
    with store.open("part-0.parquet") as file:
        assert file.read(10) == b"a" * 10
        store.put("part-0.parquet", b"b" * 3_000_000)
        file.seek(2_900_000)
        with pytest.raises(Unavailable):
            file.read(10)


def test_a_missing_bucket_is_unavailable_for_every_request(served: tuple[Kind, int]) -> None:
    kind, port = served
    missing = kind.root("t").replace("bucket", f"none-{secrets.token_hex(4)}", 1)
    store = kind.opened(port, missing)
    with pytest.raises(Unavailable):
        store.put_if_absent("_delta_log/0.json", b"x", DEADLINE_S)
    with pytest.raises(Unavailable):
        list(store.list_from("_delta_log", ""))


def test_google_lists_from_the_given_name_and_page_by_page() -> None:
    pytest.importorskip("gcsfs")
    server = GcsServer()
    with server.server as served:
        store = GCS.opened(served.port, GCS.root("t"))
        for version in range(5):
            store.put(f"_delta_log/{version}.json", b"x")
        server.asked.clear()
        assert len(list(store.list_from("_delta_log", "3"))) == 2
        [(_, query)] = server.asked
        assert query["startOffset"] == "t/_delta_log/3"
        assert (query["prefix"], query["delimiter"]) == ("t/_delta_log/", "/")


def test_google_gets_the_condition_in_one_request_with_all_the_bytes() -> None:
    pytest.importorskip("gcsfs")
    server = GcsServer()
    with server.server as served:
        store = GCS.opened(served.port, GCS.root("t"))
        content = bytes(9_000_000)
        assert store.put_if_absent("_delta_log/0.json", content, DEADLINE_S) is Put.WON
        [(method, query)] = server.asked
        assert (method, query["ifGenerationMatch"]) == ("POST", "0")
        assert server.objects["t/_delta_log/0.json"].content == content


def test_azure_is_given_a_blob_in_one_request_whatever_its_size() -> None:
    pytest.importorskip("adlfs")
    server = AzureServer()
    with server.server as served:
        store = AZURE.opened(served.port, AZURE.root("t"))
        content = bytes(65 * 1024 * 1024)
        assert store.put_if_absent("_delta_log/0.json", content, DEADLINE_S) is Put.WON
        assert [method for method, _ in server.asked] == ["PUT"]
        assert len(server.blobs["t/_delta_log/0.json"].content) == len(content)


def test_a_folder_of_a_hierarchical_namespace_is_not_listed() -> None:
    pytest.importorskip("adlfs")
    server = AzureServer()
    with server.server as served:
        store = AZURE.opened(served.port, AZURE.root("t"))
        server.make_folder("t/_delta_log/_sidecars")
        store.put("_delta_log/_sidecars/a.parquet", b"x")
        store.put("_delta_log/0.json", b"x")
        assert [item.path for item in store.list_from("_delta_log", "")] == ["_delta_log/0.json"]

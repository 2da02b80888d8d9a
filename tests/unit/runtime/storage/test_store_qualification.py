from collections.abc import Callable
from concurrent.futures import Future
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.builders import StillClock
from tests.fakes.memory_store import MemoryStore
from tests.support.object_stores import Overwriting
from tests.support.refusals import refused
from tidegate_delta.errors import Misconfigured, Unavailable
from tidegate_runtime.storage import store_qualification as store_vetting
from tidegate_runtime.storage.local_store import LocalStore
from tidegate_runtime.storage.log_store import LogStore, Put, Turn, at_once
from tidegate_runtime.storage.put_if_absent_probe import ProbeReport
from tidegate_runtime.storage.store_qualification import StoreQualification

RESTS_S = 30.0
"""The longest pause of a table before its committer probes the store again."""

AZURE = "abfss://files@account.dfs.core.windows.net/t"


class Counting(MemoryStore):
    """Counts its requests."""

    asked = 0

    def put_if_absent(
        self, path: str, content: bytes, deadline_s: float, turn: Turn = at_once
    ) -> Put:
        self.asked += 1
        return super().put_if_absent(path, content, deadline_s)


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for _, *variables in store_vetting._ENDPOINTS.values():
        for name in variables:
            monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("root", ["s3://bucket/t", "gs://bucket/t", AZURE])
def test_the_clouds_themselves_are_taken_at_their_word(root: str) -> None:
    store = Counting(root)
    StoreQualification({"AWS_REGION": "eu-central-1"}, 5).vet(store)
    assert store.asked == 0


@pytest.mark.parametrize(
    ("root", "option"),
    [
        ("s3://bucket/t", "AWS_ENDPOINT_URL"),
        ("s3://bucket/t", "endpoint_url"),
        ("gs://bucket/t", "google_endpoint_url"),
        (AZURE, "azure_endpoint_url"),
    ],
)
def test_a_compatible_store_is_probed_once(root: str, option: str) -> None:
    qualification = StoreQualification({option: "http://store"}, 5)
    first, second = Counting(root), Counting(f"{root}2")
    qualification.vet(first)
    qualification.vet(second)
    assert first.asked > 10
    assert second.asked == 0
    assert first.files == {}


def test_an_endpoint_in_the_environment_is_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://store")
    store = Counting("s3://bucket/t")
    StoreQualification({}, 5).vet(store)
    assert store.asked > 10


@pytest.mark.parametrize(
    "told",
    [
        "[default]\nendpoint_url = http://store\n",
        "[default]\nservices = mine\n[services mine]\ns3 =\n  endpoint_url = http://store\n",
    ],
)
def test_an_endpoint_in_a_file_of_awss_tools_is_one_too(
    told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").write_text(told)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    store = Counting("s3://bucket/t")
    StoreQualification({}, 5).vet(store)
    assert store.asked > 10


def test_a_bucket_of_s3_express_is_probed_for_ordered_listings() -> None:
    store = Counting("s3://bucket--use1-az4--x-s3/t")
    StoreQualification({}, 5).vet(store)
    assert store.asked > 10


def test_an_account_on_a_host_of_its_own_is_unknown() -> None:
    store = Counting("abfss://files@account.dfs.example.org/t")
    StoreQualification({}, 5).vet(store)
    assert store.asked > 10


def test_a_store_that_forgets_the_condition_is_refused_with_what_it_did() -> None:
    qualification = StoreQualification({"endpoint_url": "http://store"}, 5)
    for _ in range(2):
        with refused(Misconfigured, "UnsafeStore", match="both were told that they won"):
            qualification.vet(Overwriting("s3://bucket/t"))


def test_nobody_waits_for_a_probe_that_takes_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_vetting, "WAIT_S", 0.0)
    under_way: list[tuple[Callable[[], ProbeReport], Future[ProbeReport]]] = []

    def aside(root: str, asked: Callable[[], ProbeReport]) -> Future[ProbeReport]:
        under_way.append((asked, Future()))
        return under_way[-1][1]

    qualification = StoreQualification({"endpoint_url": "http://store"}, 5, aside)
    store = Counting("s3://bucket/t")
    for _ in range(3):
        with pytest.raises(Unavailable, match="under a probe"):
            qualification.vet(store)
    [(asked, report)] = under_way
    report.set_result(asked())
    qualification.vet(store)
    qualification.vet(store)
    assert len(under_way) == 1


@pytest.mark.parametrize("is_safe", [True, False])
def test_the_result_of_a_long_probe_reaches_rare_callers(
    is_safe: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_vetting, "WAIT_S", 0.0)
    under_way: list[tuple[Callable[[], ProbeReport], Future[ProbeReport]]] = []

    def aside(root: str, asked: Callable[[], ProbeReport]) -> Future[ProbeReport]:
        under_way.append((asked, Future()))
        return under_way[-1][1]

    clock = StillClock()
    qualification = StoreQualification({"endpoint_url": "http://store"}, 5, aside, clock)
    store: LogStore = Counting("s3://bucket/t") if is_safe else Overwriting("s3://bucket/t")
    for _ in range(3):
        with pytest.raises(Unavailable, match="under a probe"):
            qualification.vet(store)
        clock.boot += RESTS_S
    [(asked, report)] = under_way
    report.set_result(asked())
    clock.boot += RESTS_S
    with nullcontext() if is_safe else pytest.raises(Misconfigured, match="failed the probe"):
        qualification.vet(store)
    assert len(under_way) == 1


def test_the_result_of_a_probe_is_reused_for_a_while() -> None:
    class Down(Counting):
        """Never answers."""

        def put(self, path: str, content: bytes) -> None:
            self.asked += 1
            raise Unavailable("it is away")

    clock, store = StillClock(), Down("s3://bucket/t")
    qualification = StoreQualification({"endpoint_url": "http://store"}, 5, clock=clock)
    for _ in range(3):
        with pytest.raises(Unavailable, match="it is away"):
            qualification.vet(store)
    assert store.asked == 1
    clock.boot += store_vetting.AGAIN_S + 1
    qualification.vet(Counting("s3://bucket/t"))


def test_without_contests_every_store_is_accepted() -> None:
    store = Counting("s3://bucket/t")
    StoreQualification({"endpoint_url": "http://store"}, 0).vet(store)
    assert store.asked == 0


def mounted(kind: str, place: str) -> str:
    return f"36 25 0:32 / {place} rw,relatime shared:1 - {kind} server:/export rw\n"


@pytest.mark.parametrize(
    ("kind", "is_probed"), [("ext4", False), ("xfs", False), ("nfs4", True), ("fuse.sshfs", True)]
)
def test_a_local_file_system_is_known_by_its_kind(
    kind: str, is_probed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(mounted("overlay", "/") + mounted(kind, str(tmp_path)))
    monkeypatch.setattr(store_vetting, "_MOUNTS", str(mounts))
    StoreQualification({}, 3).vet(LocalStore(str(tmp_path / "a" / "t")))
    assert (tmp_path / "a" / "t").exists() is is_probed


def test_a_mount_point_with_a_tab_in_its_name_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "a\tb"
    place.mkdir()
    mounts = tmp_path / "mountinfo"
    mounts.write_text(mounted("ext4", "/") + mounted("nfs4", f"{tmp_path}/a\\011b"))
    monkeypatch.setattr(store_vetting, "_MOUNTS", str(mounts))
    assert store_vetting._file_system(str(place / "t"), store_vetting._mounts()) == "nfs4"


def test_without_a_list_of_mounts_a_local_store_is_probed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_vetting, "_MOUNTS", str(tmp_path / "none"))
    StoreQualification({}, 3).vet(LocalStore(str(tmp_path / "t")))
    assert (tmp_path / "t" / "_tidegate").is_dir()

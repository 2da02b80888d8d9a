"""The checks of `tidegate doctor` that need no brokers."""

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import deltalake
import pyarrow as pa
import pytest

from tidegate_console.doctor import kafka_checks
from tidegate_console.doctor.clock_checks import RoundTrip, skew
from tidegate_console.doctor.kafka_checks import lacks
from tidegate_console.doctor.store_checks import roots_to_check, stores
from tidegate_delta.checkpoints import version_checksum
from tidegate_delta.log.file_names import checksum_name
from tidegate_messages.published_records import TableRecord
from tidegate_messages.topics import EVERYBODY, RIGHTS, Role
from tidegate_runtime.kafka.settings import KafkaSettings
from tidegate_runtime.kafka.topic_admin import weaknesses
from tidegate_runtime.storage.local_store import LocalStore
from tidegate_runtime.table_io.open_table import open_snapshot

ROLES: list[Role] = list(RIGHTS)


def held(role: Role) -> dict[tuple[str, str], frozenset[str] | None]:
    """Return exactly what a role needs, as brokers show it."""
    result: dict[tuple[str, str], frozenset[str] | None] = {}
    for right in (*RIGHTS[role], *EVERYBODY):
        if not right.name.endswith("*") and right.kind != "transactional id":
            result[right.kind, f"p.{right.name}"] = frozenset(right.operations)
    return result


@pytest.mark.parametrize("role", ROLES)
def test_what_the_manual_names_is_enough_and_anything_less_is_not(role: Role) -> None:
    whole = held(role)
    assert list(lacks(whole, "p.", role)) == []
    for resource in whole:
        less = {**whole, resource: frozenset[str]()}
        named = {right.name for right, _ in lacks(less, "p.", role)}
        assert named == {resource[1]}


def test_a_missing_topic_is_no_missing_right() -> None:
    gone = {**held("writer"), ("topic", "p.outcomes"): None}
    assert list(lacks(gone, "p.", "writer")) == []


def test_a_skew_is_what_the_round_trip_proves() -> None:
    assert skew(RoundTrip(1_000, 1_500, 1_200)) == (0, "behind")
    assert skew(RoundTrip(1_000, 1_500, 400)) == (600, "ahead of")
    assert skew(RoundTrip(1_000, 1_500, 4_500)) == (3_000, "behind")


def test_what_may_lose_records_is_named_with_its_value_its_risk_and_a_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    weak = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
    differing = [*weaknesses("p.proposals", 3, 3, weak), *weaknesses("p.cdc.t", 2, 3, {})]
    monkeypatch.setattr(kafka_checks, "missing_topics", lambda *_: [])
    monkeypatch.setattr(kafka_checks, "differing_topics", lambda *_: differing)
    in_sync, unclean, replicas = kafka_checks.topics(KafkaSettings())
    assert {in_sync.verdict, unclean.verdict, replicas.verdict} == {"wrong"}
    assert in_sync.found == (
        "p.proposals has min.insync.replicas 1, declared is 2 or more: an acknowledged record may "
        "be on one broker only, and is lost with its disk"
    )
    assert in_sync.do == (
        "`kafka-configs --alter --topic p.proposals --add-config min.insync.replicas=2`"
    )
    assert "a broker that lacks acknowledged records may lead" in unclean.found
    assert unclean.do.endswith("unclean.leader.election.enable=false`")
    assert "p.cdc.t has replicas 2, declared is 3 or more" in replicas.found
    assert "kafka-reassign-partitions" in replicas.do
    assert "3 or more brokers for each partition of p.cdc.t" in replicas.do


def test_a_client_setting_that_would_loosen_durability_is_noted() -> None:
    assert list(kafka_checks.producers(KafkaSettings(client={"linger.ms": "5"}))) == []
    loose = {"request.required.acks": "1", "enable.idempotence": "false", "linger.ms": "5"}
    result = list(kafka_checks.producers(KafkaSettings(client=loose)))
    assert [check.verdict for check in result] == ["note", "note"]
    assert "enable.idempotence false, which has no effect" in result[0].found
    assert "request.required.acks 1, which has no effect" in result[1].found


def record(name: str, root: str, **more: str) -> TableRecord:
    result = {"table": UUID(int=1), "table_root": root, "name": name, "proposals_topic": "p"}
    return TableRecord.model_validate({**result, "topic_partition": 0, **more})


def test_one_served_table_of_each_store_is_opened() -> None:
    tables = [
        record("d", "s3://one/d", status="dropped"),
        record("c", "s3://one/c"),
        record("b", "s3://one/b"),
        record("a", "file:///a"),
        record("e", "s3://two/e", status="halted"),
    ]
    assert roots_to_check(tables) == ["file:///a", "s3://one/b"]


def test_a_table_that_can_be_read_and_written_is_well(tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path / "t", pa.table({"k": [1]}))
    result = list(stores([(tmp_path / "t").as_uri()], {}, probes=True))
    assert [check.verdict for check in result] == ["ok", "ok"]
    assert "put-if-absent holds" in result[1].found
    assert not [path for path in (tmp_path / "t" / "_tidegate").rglob("*") if path.is_file()]


def test_a_checksum_that_contradicts_the_log_is_invalid(tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path / "t", pa.table({"k": [1]}))
    store = LocalStore((tmp_path / "t").as_uri())
    right = version_checksum.of(open_snapshot(store))
    path = tmp_path / "t" / "_delta_log" / checksum_name(0)
    path.write_bytes(version_checksum.encode(right))
    assert [check.verdict for check in stores([store.root], {}, probes=False)] == ["ok"]
    path.write_bytes(version_checksum.encode(replace(right, num_files=9)))
    result = list(stores([store.root], {}, probes=False))
    assert [(check.name, check.verdict) for check in result] == [
        ("store", "ok"),
        ("checksum", "wrong"),
    ]
    assert "numFiles" in result[1].found


def test_a_root_without_a_table_is_a_problem_and_the_next_is_checked(tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path / "t", pa.table({"k": [1]}))
    roots = [(tmp_path / name).as_uri() for name in ("nothing", "t")]
    result = list(stores(roots, {}, probes=False))
    assert [check.verdict for check in result] == ["wrong", "ok"]
    assert result[0].do == "see the paragraph of InvalidRequest in docs/operations.md#errors"


def test_a_version_of_another_release_is_worth_a_note(tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path / "t", pa.table({"k": [1]}))
    log = tmp_path / "t" / "_delta_log" / f"{0:020d}.json"
    was = log.read_text(encoding="utf-8")
    assert "engineInfo" in was
    import_name = was.partition('"engineInfo":"')[2].partition('"')[0]
    log.write_text(was.replace(import_name, "Tidegate/0.0.9"), encoding="utf-8")
    result = list(stores([(tmp_path / "t").as_uri()], {}, probes=False))
    assert [(check.name, check.verdict) for check in result] == [
        ("store", "ok"),
        ("versions", "note"),
    ]
    assert "Tidegate/0.0.9" in result[1].found

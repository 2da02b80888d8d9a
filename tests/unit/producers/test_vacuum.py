"""VACUUM over an in-memory committer: which files go, which stay and why, and what is recorded."""

from typing import Any

import pytest

from tests.builders import (
    NOW_MS,
    ROOT,
    TABLE,
    add,
    delete,
    digest_of,
    info,
    metadata,
    proposal,
    protocol,
    remove,
    to_bytes,
)
from tests.checkpoints import put_classic
from tests.fakes.memory_store import MemoryStore
from tests.unit.producers.commands import Line, line_of
from tidegate_delta.errors import InvalidRequest, Unavailable, UnsupportedFeature
from tidegate_delta.log.file_names import commit_name, in_log
from tidegate_messages.proposal import ClaimCheck
from tidegate_messages.published_records import LeaseRecord
from tidegate_messages.stream_position import Position
from tidegate_producers.cli import table_commands
from tidegate_producers.vacuum.vacuum import Claims, VacuumRequest, survey
from tidegate_producers.vacuum.vacuum_plan import VacuumPlan
from tidegate_runtime.client.proposal_builders import CLAIM_FOLDER
from tidegate_runtime.clock import SystemClock
from tidegate_runtime.followers.version_gates import give_back_lease, take_lease
from tidegate_runtime.kafka.client_protocols import TopicPartition
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.open_table import open_snapshot

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Line:
    """Version 1 adds a and b, version 2 removes a; orphan and young are named by none."""
    line = line_of(monkeypatch)
    line.gate.ask(proposal(add("a"), add("b")))
    line.gate.ask(delete("a", read_version=1))
    store = in_memory(line)
    for name in ("a", "b", "orphan", "_hidden/x", ".crc", "_change_data/c", "young"):
        store.files[name] = name.encode()
    store.modified["young"] = SystemClock().now_ms()
    return line


def in_memory(line: Line) -> MemoryStore:
    store = line.gate.stores[ROOT]
    assert isinstance(store, MemoryStore)
    return store


def data_files(line: Line) -> set[str]:
    return {path for path in in_memory(line).files if not path.startswith("_delta_log")}


def commit_by_another(line: Line, version: int, *rows: dict[str, Any]) -> None:
    in_memory(line).files[in_log(commit_name(version))] = to_bytes([info("WRITE"), *rows])


def why(told: dict[str, Any], kind: str) -> dict[str, str]:
    return {item["path"]: item["why"] for item in told[kind]}


def test_a_dry_run_lists_each_file_with_its_reason_and_deletes_nothing(line: Line) -> None:
    before = dict(in_memory(line).files)
    result = line.json(table_commands.app, "vacuum", "shop")
    goes, stays = why(result, "goes"), why(result, "stays")
    assert goes.keys() == {"a", "orphan", "_change_data/c"}
    assert goes["a"].startswith("removed before")
    assert goes["orphan"].startswith("no version that the log knows names it")
    assert goes["_change_data/c"].startswith("change data from before")
    assert stays.keys() == {"b", "young"}
    assert stays["b"] == "live in version 2"
    assert "a writer may still propose it" in stays["young"]
    assert in_memory(line).files == before
    printed = line.run(table_commands.app, "vacuum", ROOT).stdout
    assert "would go: 1 files, 1 bytes: removed before" in printed
    assert "--apply deletes 3 files, 21 bytes" in printed
    offline = line.run(table_commands.app, "vacuum", "shop", "--offline", "--apply")
    assert offline.exit_code == 2
    assert "leave out --offline" in offline.stderr


def test_what_goes_is_deleted_between_two_commits_that_record_it(line: Line) -> None:
    result = line.json(table_commands.app, "vacuum", "shop", "--apply")
    assert (result["deleted"], result["start"], result["end"]) == (3, 3, 4)
    assert data_files(line) == {"b", "young", "_hidden/x", ".crc"}
    start, end = (rows[0]["commitInfo"] for rows in line.gate.entries()[3:])
    assert (start["operation"], end["operation"]) == ("VACUUM START", "VACUUM END")
    assert start["operationParameters"] == {
        "retentionCheckEnabled": "true",
        "defaultRetentionMillis": str(7 * DAY_MS),
    }
    assert start["operationMetrics"] == {"numFilesToDelete": "3", "sizeOfDataToDelete": "21"}
    assert end["operationParameters"] == {"status": "COMPLETED"}
    assert end["operationMetrics"] == {"numDeletedFiles": "3", "numVacuumedDirectories": "0"}
    again = line.json(table_commands.app, "vacuum", "shop", "--apply")
    assert (again["deleted"], again["start"]) == (0, None), "nothing to do is not recorded"
    assert len(line.gate.entries()) == 5
    assert open_snapshot(in_memory(line)).files["path"].to_pylist() == ["b"]


def test_what_was_removed_within_the_retention_stays(line: Line) -> None:
    since_ms = SystemClock().now_ms() - DAY_MS
    commit_by_another(line, 3, remove("b", deletionTimestamp=since_ms))
    assert "removed since" in why(line.json(table_commands.app, "vacuum", "shop"), "stays")["b"]
    fewer = ("vacuum", "shop", "--retention-hours", 12)
    refused = line.run(table_commands.app, *fewer)
    assert refused.exit_code == 2
    assert "VacuumRetentionTooShort" in refused.stderr
    assert "168 hours" in refused.stderr
    result = line.json(table_commands.app, *fewer, "--no-retention-check")
    assert "b" in why(result, "goes")
    assert line.run(table_commands.app, "vacuum", "shop", "--retention-hours", -1).exit_code == 2


def test_files_of_versions_that_a_lease_or_the_publisher_needs_stay(line: Line) -> None:
    bus, topics = line.gate.bus, line.gate.topics
    later_ms = SystemClock().now_ms() + DAY_MS
    take_lease(
        bus, topics, LeaseRecord(table=TABLE, holder="audit", needed_from=1, until_ms=later_ms)
    )
    result = line.json(table_commands.app, "vacuum", "shop")
    assert "audit, by a lease until" in why(result, "stays")["a"]
    assert result["notes"] == [note for note in result["notes"] if "from version 1 on" in note]
    give_back_lease(bus, topics, "audit", TABLE)
    assert "a" in why(line.json(table_commands.app, "vacuum", "shop"), "goes")

    position = Position(table=TABLE, version=2, complete=False, order="1")
    at = TopicPartition(topics.cdc_positions, 0)
    bus.append(at, str(TABLE).encode(), position.model_dump_json().encode())
    result = line.json(table_commands.app, "vacuum", "shop")
    assert why(result, "stays")["a"].startswith("the change publisher from version 2 on"), (
        "the changes of version 2 are the rows of the file that it removed"
    )


def test_a_lease_on_versions_that_are_gone_is_named_and_nothing_goes(line: Line) -> None:
    later_ms = SystemClock().now_ms() + DAY_MS
    lease = LeaseRecord(table=TABLE, holder="audit", needed_from=1, until_ms=later_ms)
    take_lease(line.gate.bus, line.gate.topics, lease)
    put_classic(in_memory(line), open_snapshot(in_memory(line)), NOW_MS)
    for version in (0, 1):
        del in_memory(line).files[in_log(commit_name(version))]
    refused = line.run(table_commands.app, "vacuum", "shop", "--apply")
    assert refused.exit_code == 3
    assert "audit, by a lease until" in refused.stderr
    assert "a" in data_files(line)


def test_files_stay_from_when_the_work_of_an_open_proposal_began(line: Line) -> None:
    store = in_memory(line)
    for name, age_days in (("before", 40), ("pending", 20)):
        store.files[name] = b""
        store.modified[name] = SystemClock().now_ms() - age_days * DAY_MS
    since_ms = SystemClock().now_ms() - 30 * DAY_MS
    one = proposal(add("pending"), read_version=2, files_since_ms=since_ms)
    line.gate.send(one)
    result = line.json(table_commands.app, "vacuum", "shop")
    assert str(one.proposal_id) in why(result, "stays")["pending"]
    assert "before" in why(result, "goes")
    assert result["cutoff_ms"] == since_ms
    line.gate.settle()
    answered = line.json(table_commands.app, "vacuum", "shop")
    assert answered["cutoff_ms"] > since_ms


def test_old_files_that_an_open_proposal_brings_back_stay(line: Line) -> None:
    store, now_ms = in_memory(line), SystemClock().now_ms()
    name = "ab^-aqEH.-t@S}K{vb[*k^"
    vector = {"storageType": "u", "pathOrInlineDv": name, "offset": 1, "sizeInBytes": 4}
    rows = {**vector, "cardinality": 1}
    file = "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    store.files[file] = b""
    restoring = proposal(add("a"), read_version=2, files_since_ms=now_ms)
    lines = [add("orphan"), {"dv_intent": {"path": "b", "rows": rows}}]
    content = to_bytes(lines) + b"torn"
    path = f"{CLAIM_FOLDER}/claimed.ndjson"
    store.files[path] = content
    claim = ClaimCheck(path=path, size=len(content), sha256=digest_of(content))
    claiming = proposal(read_version=2, claim_check=claim, files_since_ms=now_ms)
    line.gate.send(restoring, claiming)
    result = line.json(table_commands.app, "vacuum", "shop")
    assert why(result, "goes").keys() == {"_change_data/c"}
    stays = why(result, "stays")
    assert stays["a"] == f"proposal {restoring.proposal_id} needs it"
    assert stays["orphan"] == stays[file] == f"proposal {claiming.proposal_id} needs it"


def test_a_proposal_past_its_deadline_holds_nothing(line: Line) -> None:
    line.gate.send(proposal(add("pending"), read_version=2, files_since_ms=1, deadline_ms=2))
    assert line.json(table_commands.app, "vacuum", "shop")["cutoff_ms"] > NOW_MS


def test_lite_takes_files_from_the_log_and_goes_on_where_it_ended(line: Line) -> None:
    commit_by_another(
        line,
        3,
        {"cdc": {"path": "_change_data/c", "partitionValues": {}, "size": 9, "dataChange": False}},
    )
    line.gate.settle()
    result = line.json(table_commands.app, "vacuum", "shop", "--lite")
    assert why(result, "goes").keys() == {"a", "_change_data/c"}, "no version names the orphan"
    assert "from 0 on" in result["notes"][0]
    done = line.json(table_commands.app, "vacuum", "shop", "--lite", "--apply")
    assert done["deleted"] == 2
    assert data_files(line) == {"b", "orphan", "young", "_hidden/x", ".crc"}
    parameters = line.gate.entries()[-1][0]["commitInfo"]["operationParameters"]
    assert parameters["latestCommitVersionOutsideOfRetentionWindow"] == "4"
    again = line.json(table_commands.app, "vacuum", "shop", "--lite")
    assert again["goes"] == []
    assert "from 5 on" in again["notes"][0]


def test_lite_comes_back_for_what_it_kept(line: Line) -> None:
    since_ms = SystemClock().now_ms() - DAY_MS
    commit_by_another(line, 3, remove("b", deletionTimestamp=since_ms))
    line.gate.settle()
    assert line.json(table_commands.app, "vacuum", "shop", "--lite", "--apply")["deleted"] == 1
    fewer = ("--retention-hours", 12, "--no-retention-check")
    result = line.json(table_commands.app, "vacuum", "shop", "--lite", *fewer)
    assert why(result, "goes").keys() == {"b"}


def test_a_failed_vacuum_is_recorded_in_the_log(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: str) -> None:
        raise Unavailable("no right to delete")

    monkeypatch.setattr(in_memory(line), "delete", refused)
    result = line.run(table_commands.app, "vacuum", "shop", "--apply")
    assert result.exit_code != 0
    assert "no right to delete" in result.stderr
    end = line.gate.entries()[-1][0]["commitInfo"]
    assert end["operationParameters"] == {"status": "FAILED"}


def test_killed_at_any_delete_the_table_is_whole_and_the_next_run_ends_it(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, delete_file = in_memory(line), in_memory(line).delete
    for number in range(6):
        store.files[f"orphan{number}"] = b""
    for allowed in range(6):
        left = allowed

        def dying(path: str) -> None:
            nonlocal left
            if left == 0:
                raise Unavailable("gone")
            left -= 1
            delete_file(path)

        monkeypatch.setattr(store, "delete", dying)
        line.run(table_commands.app, "vacuum", "shop", "--apply")
        result = open_snapshot(store).files["path"].to_pylist()
        assert result == ["b"]
        assert "b" in store.files
    monkeypatch.setattr(store, "delete", delete_file)
    line.json(table_commands.app, "vacuum", "shop", "--apply")
    assert data_files(line) == {"b", "young", "_hidden/x", ".crc"}


def surveyed(store: LogStore, **asked: Any) -> VacuumPlan:
    return survey(store, VacuumRequest(**asked), Claims(), NOW_MS + 30 * DAY_MS)


def goes(plan: VacuumPlan) -> set[str]:
    return set(plan.going["path"].to_pylist())


def table(*rows: dict[str, Any]) -> MemoryStore:
    store = MemoryStore(ROOT)
    store.files[in_log(commit_name(0))] = to_bytes([*rows])
    return store


def test_paths_are_the_same_in_every_form_and_nothing_outside_of_the_root_is_named() -> None:
    store = table(
        protocol(), metadata(["p"]), add("p=1/a%20b"), add(f"{ROOT}/c"), add("./d"),
        add("memory://tables/other/e"),
    )  # fmt: skip
    for path in ("p=1/a b", "c", "d", "e"):
        store.files[path] = b""
    assert goes(surveyed(store)) == {"e"}


def test_files_of_deletion_vectors_stay_with_the_files_that_need_them() -> None:
    lists = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    name = "ab^-aqEH.-t@S}K{vb[*k^"
    vector = {"storageType": "u", "pathOrInlineDv": name, "offset": 1, "sizeInBytes": 4}
    held = add("a", deletionVector={**vector, "cardinality": 1})
    store = table(protocol(3, 7, **lists), metadata(), held)
    file = "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    other = "ab/deletion_vector_00000000-8816-431a-aaf6-d3fe2512ff61.bin"
    for path in ("a", file, other):
        store.files[path] = b""
    assert goes(surveyed(store)) == {other}


def test_hidden_folders_are_left_alone_and_folders_of_partitions_are_not() -> None:
    store = table(protocol(), metadata(["_p"]), add("_p=1/a"))
    for path in ("_p=1/a", "_p=1/old", "_q=1/x", "_symlink_format_manifest/m", "s/_tmp/y", "s/z"):
        store.files[path] = b""
    assert goes(surveyed(store)) == {"_p=1/old", "s/z"}


def test_a_table_that_may_not_be_written_is_not_vacuumed() -> None:
    lists = {"readerFeatures": ["columnMapping"], "writerFeatures": ["columnMapping", "news"]}
    store = table(protocol(3, 7, **lists), metadata())
    with pytest.raises(UnsupportedFeature, match="news"):
        surveyed(store)
    with pytest.raises(InvalidRequest) as refused:
        surveyed(MemoryStore(ROOT))
    assert refused.value.error_class == "NotADeltaTable"


def test_an_empty_table_has_nothing_to_vacuum() -> None:
    plan = surveyed(table(protocol(), metadata()))
    assert (plan.going.num_rows, plan.size_bytes, list(plan.reasons())) == (0, 0, [])
    assert surveyed(table(protocol(), metadata()), is_lite=True).done_through == 0


def test_files_of_a_table_below_stay_and_those_that_a_clone_below_needs() -> None:
    store = table(protocol(), metadata())
    for path in ("orphan", "cloned", "archive/live", "archive/2024/orphan", "clone/own"):
        store.files[path] = b""
    begins = [protocol(), metadata()]
    store.files[f"archive/{in_log(commit_name(0))}"] = to_bytes([*begins, add("live")])
    cloned = [*begins, add(f"{ROOT}/cloned"), add("own")]
    store.files[f"clone/{in_log(commit_name(0))}"] = to_bytes(cloned)
    plan = surveyed(store)
    assert goes(plan) == {"orphan"}
    assert plan.notes == (f"the table at {ROOT}/clone needs files",)


def test_a_lite_vacuum_of_a_clone_above_its_source_leaves_the_sources_files() -> None:
    store = table(protocol(), metadata(), remove(f"{ROOT}/source/a"), remove("b"))
    store.files[f"source/{in_log(commit_name(0))}"] = to_bytes([protocol(), metadata(), add("a")])
    assert goes(surveyed(store, is_lite=True)) == {"b"}


def test_a_lite_vacuum_keeps_what_a_clone_below_its_source_needs() -> None:
    store = table(protocol(), metadata(), remove("a"), remove("b"))
    cloned = [protocol(), metadata(), add(f"{ROOT}/a")]
    store.files[f"_dev/clone/{in_log(commit_name(0))}"] = to_bytes(cloned)
    plan = surveyed(store, is_lite=True)
    assert goes(plan) == {"b"}
    assert f"the table at {ROOT}/_dev/clone needs files" in plan.notes

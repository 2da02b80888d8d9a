"""The law of version checksums: crc(v - 1) + commit(v) = crc(v)."""

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.definitions import one_file
from tidegate_delta.checkpoints import version_checksum
from tidegate_delta.log.actions import (
    Action,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    Metadata,
    Protocol,
    Remove,
    Txn,
)
from tidegate_delta.log.commit import Commit
from tidegate_delta.log.file_names import Version
from tidegate_delta.snapshots.file_action_columns import ADD_SCHEMA, REMOVE_SCHEMA
from tidegate_delta.snapshots.snapshot import Snapshot, evolve

NAMES = st.sampled_from(["a", "b", "c", "x y", "d%20e"])
STEPS = st.lists(
    st.fixed_dictionaries(
        {
            "files": st.lists(NAMES, unique=True),
            "sizes": st.lists(st.integers(0, 100), min_size=5, max_size=5),
            "deleted": st.lists(st.none() | st.integers(0, 2**31), min_size=5, max_size=5),
            "txn": st.none() | st.tuples(st.sampled_from(["app", "other"]), st.integers(0, 9)),
            "domain": st.none() | st.tuples(st.sampled_from(["one", "two"]), st.booleans()),
            "timestamps": st.none() | st.booleans(),
            "data_change": st.booleans(),
        }
    ),
    max_size=6,
)


def metadata(*, timestamps: bool) -> Metadata:
    text = '{"type":"struct","fields":[]}'
    properties = {"delta.enableInCommitTimestamps": "true"} if timestamps else {}
    return Metadata(id="t", schema_string=text, configuration=properties)


def start() -> Snapshot:
    return Snapshot(
        version=Version(0),
        protocol=Protocol(
            min_reader_version=3,
            min_writer_version=7,
            reader_features=("deletionVectors",),
            writer_features=("deletionVectors",),
        ),
        metadata=metadata(timestamps=False),
        files=ADD_SCHEMA.empty_table(),
        tombstones=REMOVE_SCHEMA.empty_table(),
    )


Live = dict[str, tuple[int, DeletionVector | None]]


def vector(version: int, deleted: int | None) -> DeletionVector | None:
    if deleted is None:
        return None
    return DeletionVector(
        storage_type="u",
        path_or_inline_dv=str(version),
        offset=1,
        size_in_bytes=1,
        cardinality=deleted,
    )


def toggled(live: Live, step: dict[str, Any], version: int) -> list[Action]:
    """Remove the named files that are live and add the others; give some another vector."""
    actions: list[Action] = []
    change = step["data_change"]
    for name, size, deleted in zip(step["files"], step["sizes"], step["deleted"], strict=False):
        result = vector(version, deleted)
        if name in live:
            gone, before = live.pop(name)
            actions.append(Remove(path=name, data_change=change, size=gone, deletion_vector=before))
            if result is None:
                continue
            size = gone
        live[name] = (size, result)
        actions.append(one_file(name, size=size, data_change=change, deletion_vector=result))
    return actions


def others(step: dict[str, Any], version: int) -> list[Action]:
    result: list[Action] = [CommitInfo(in_commit_timestamp=1000 + version, txn_id=f"t{version}")]
    if step["timestamps"] is not None:
        result.append(metadata(timestamps=step["timestamps"]))
    if step["txn"]:
        result.append(Txn(app_id=step["txn"][0], version=step["txn"][1]))
    if step["domain"]:
        name, removed = step["domain"]
        result.append(DomainMetadata(domain=name, configuration="{}", removed=removed))
    return result


@given(STEPS)
@settings(deadline=None)
def test_a_checksum_and_a_commit_make_the_next_checksum(steps: list[dict[str, Any]]) -> None:
    snapshot, live = start(), Live()
    known = version_checksum.of(snapshot)
    for version, step in enumerate(steps, 1):
        commit = Commit(Version(version), (*others(step, version), *toggled(live, step, version)))
        snapshot = evolve(snapshot, commit)
        computed = version_checksum.of(snapshot, txn_id=f"t{version}")
        assert computed.num_files == len(live)
        assert computed.table_size_bytes == sum(size for size, _ in live.values())
        deletes = [one.cardinality for _, one in live.values() if one is not None]
        assert computed.deletions is not None
        assert computed.deletions.records == sum(deletes)
        assert computed.deletions.vectors == len(deletes)
        assert sum(computed.deletions.counts) == len(live)
        evolved = version_checksum.evolve(known, commit)
        if step["data_change"]:
            assert evolved == computed
        assert evolved in (None, computed)
        known = computed


@given(STEPS)
@settings(deadline=None)
def test_a_checksum_file_says_what_it_was_given(steps: list[dict[str, Any]]) -> None:
    snapshot, live = start(), Live()
    for version, step in enumerate(steps, 1):
        commit = Commit(Version(version), (*others(step, version), *toggled(live, step, version)))
        snapshot = evolve(snapshot, commit)
    stated = version_checksum.of(snapshot, txn_id="t")
    assert version_checksum.decode(version_checksum.encode(stated)) == stated
    assert version_checksum.differences(stated, version_checksum.of(snapshot)) == ()
    wrong = replace(stated, num_files=stated.num_files + 1)
    assert version_checksum.differences(wrong, stated) == ("num_files",)

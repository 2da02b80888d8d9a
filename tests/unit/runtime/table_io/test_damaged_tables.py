"""A damaged table is refused where the damage matters; the error names the table, the file, what is
wrong and what to do.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pytest

from tests import builders
from tests.builders import metadata, protocol, to_bytes
from tests.checkpoints import Form
from tests.fakes.memory_store import MemoryStore
from tests.fuzz import tables
from tests.fuzz.tables import DATA, HEAD, VECTOR, Files, to_parquet
from tests.support.refusals import refused
from tidegate_delta.checkpoints import version_checksum
from tidegate_delta.errors import BrokenLog, InvalidRequest, TidegateError
from tidegate_delta.log.file_names import (
    checkpoint_name,
    checksum_name,
    commit_name,
    compacted_name,
    in_log,
)
from tidegate_runtime.table_io.change_row_reader import read_changes
from tidegate_runtime.table_io.data_file_reader import read_table
from tidegate_runtime.table_io.open_table import (
    checksum_contradiction,
    open_keys,
    open_snapshot,
    refresh,
)

Face = Callable[[MemoryStore], Any]

REMEDY: Final = re.compile(
    r"\b(restore|remove|delete|read|ask for|open|check|repair|compare|copy|drop|use)\b", re.I
)


FILE: Final = re.compile(r"\b\d{20}\.[\w.-]*(json|parquet|crc)\b|[\w./=-]+\.(parquet|bin)\b")
"""A file of the log, of data or of deletion vectors."""


@dataclass(frozen=True)
class Damage:
    """A change to a table's files, the expected error class, and what the message must name."""

    do: Callable[[Files], None]
    error: str
    names: tuple[str, ...]
    cleaned: bool = False
    summarised: bool = False


def gone(*paths: str) -> Callable[[Files], None]:
    def do(files: Files) -> None:
        for path in paths:
            del files[path]

    return do


def holds(path: str, content: bytes) -> Callable[[Files], None]:
    def do(files: Files) -> None:
        files[path] = content

    return do


def cut(path: str, size: int) -> Callable[[Files], None]:
    def do(files: Files) -> None:
        files[path] = files[path][:size]

    return do


def flipped(path: str, at: int) -> Callable[[Files], None]:
    def do(files: Files) -> None:
        content = bytearray(files[path])
        content[at] ^= 0xFF
        files[path] = bytes(content)

    return do


def rows(version: int, change: Callable[[list[Any]], None]) -> Callable[[Files], None]:
    """Return a damage that changes the rows of a commit."""

    def do(files: Files) -> None:
        path = in_log(commit_name(version))
        result = [json.loads(line) for line in files[path].splitlines()]
        change(result)
        files[path] = to_bytes(result)

    return do


def field(version: int, action: str, name: str, value: Any) -> Callable[[Files], None]:
    """Return a damage that replaces a field of an action; `a.b` is a nested field."""

    def change(found: list[Any]) -> None:
        body = next(row[action] for row in found if action in row)
        *above, last = name.split(".")
        for step in above:
            body = body[step]
        body[last] = value

    return rows(version, change)


def version_path(version: int) -> str:
    return in_log(commit_name(version))


NAMES: Final = {version: commit_name(version) for version in range(HEAD + 2)}
CHECKPOINT: Final = checkpoint_name(HEAD)
OTHER_SCHEMA: Final = to_parquet(pa.table({"x": ["a", "b", "c", "d"], "s": ["a"] * 4}))

OF_THE_LOG: Final[Mapping[str, Damage]] = {
    "a commit is missing": Damage(gone(version_path(1)), "LogGap", (NAMES[1],)),
    "the first commit is missing": Damage(gone(version_path(0)), "LogGap", (NAMES[0],)),
    "a commit is empty": Damage(holds(version_path(2), b""), "CorruptCommit", (NAMES[2],)),
    "a commit is blank": Damage(holds(version_path(2), b"\n \n"), "CorruptCommit", (NAMES[2],)),
    "a commit is torn": Damage(cut(version_path(2), 300), "CorruptCommit", (NAMES[2],)),
    "a commit is zeros": Damage(holds(version_path(2), bytes(64)), "CorruptCommit", (NAMES[2],)),
    "a commit holds a list": Damage(holds(version_path(2), b"[]"), "CorruptCommit", (NAMES[2],)),
    "an action is no object": Damage(
        holds(version_path(2), b'{"add": []}'), "CorruptCommit", (NAMES[2],)
    ),
    "an add has no path": Damage(
        field(1, "add", "path", None), "CorruptCommit", (NAMES[1], "path")
    ),
    "a size is text": Damage(field(1, "add", "size", "big"), "CorruptCommit", (NAMES[1],)),
    "a size is past 64 bits": Damage(field(1, "add", "size", 2**64), "CorruptCommit", (NAMES[1],)),
    "two metaData in a commit": Damage(
        rows(0, lambda found: found.append(metadata(["p"]))),
        "CorruptCommit",
        (NAMES[0], "metaData"),
    ),
    "two protocols in a commit": Damage(
        rows(0, lambda found: found.append(protocol())), "CorruptCommit", (NAMES[0], "protocol")
    ),
    "no protocol": Damage(
        rows(0, lambda found: found.pop(1)), "MissingProtocol", ("protocol", NAMES[0], NAMES[HEAD])
    ),
    "no metaData": Damage(
        rows(0, lambda found: found.pop(2)), "MissingMetadata", ("metaData", NAMES[0], NAMES[HEAD])
    ),
    "a damaged protocol": Damage(
        field(0, "protocol", "minReaderVersion", "three"),
        "CorruptCommit",
        (NAMES[0], "minReaderVersion"),
    ),
    "a protocol without its lists": Damage(
        field(0, "protocol", "readerFeatures", None),
        "UnsupportedProtocol",
        (NAMES[0], "readerFeatures"),
    ),
    "a damaged schema": Damage(
        field(0, "metaData", "schemaString", '{"type": "struct"'),
        "CorruptCommit",
        (NAMES[0], "schemaString"),
    ),
    "a schema of no struct": Damage(
        field(0, "metaData", "schemaString", '"long"'), "CorruptCommit", (NAMES[0], "schemaString")
    ),
    "an unknown type": Damage(
        field(0, "metaData", "schemaString", builders.schema(x="money")),
        "UnsupportedFeature",
        (NAMES[0], "money"),
    ),
    "a partition column that is not there": Damage(
        field(0, "metaData", "partitionColumns", ["q"]), "CorruptCommit", (NAMES[0], "'q'")
    ),
    "only a checkpoint, and it is torn": Damage(
        cut(in_log(CHECKPOINT), 1_000), "CorruptCheckpoint", (CHECKPOINT,), True, True
    ),
    "only a checkpoint, and its footer is damaged": Damage(
        flipped(in_log(CHECKPOINT), -40), "CorruptCheckpoint", (CHECKPOINT,), True, True
    ),
    "only a checkpoint, and it is of another kind": Damage(
        holds(in_log(CHECKPOINT), to_parquet(pa.table({"x": [1]}))),
        "MissingProtocol",
        (CHECKPOINT, "protocol"),
        True,
        True,
    ),
    "the log begins after the checkpoint": Damage(
        gone(in_log(CHECKPOINT)), "LogGap", (NAMES[0],), True, True
    ),
}
"""Damage that prevents opening a table."""

OF_THE_DATA: Final[Mapping[str, Damage]] = {
    "a data file is missing": Damage(gone(DATA), "DataFileMissing", (DATA,)),
    "a data file is empty": Damage(holds(DATA, b""), "CorruptDataFile", (DATA,)),
    "a data file is torn": Damage(cut(DATA, 300), "CorruptDataFile", (DATA,)),
    "a footer is damaged": Damage(flipped(DATA, -7), "CorruptDataFile", (DATA,)),
    "a page is damaged": Damage(flipped(DATA, 4), "CorruptDataFile", (DATA,)),
    "a data file has other types": Damage(
        holds(DATA, OTHER_SCHEMA), "CorruptDataFile", (DATA, "'x'")
    ),
    "a partition value is none of its type": Damage(
        field(2, "add", "partitionValues.p", "one"), "CorruptDataFile", (DATA, "'one'")
    ),
    "a vector is missing": Damage(gone(VECTOR), "DeletionVectorMissing", (VECTOR,)),
    "a vector's file is empty": Damage(holds(VECTOR, b""), "CorruptDeletionVector", (VECTOR,)),
    "a vector's file is of another version": Damage(
        flipped(VECTOR, 0), "CorruptDeletionVector", (VECTOR, "version")
    ),
    "a vector's size is another": Damage(
        flipped(VECTOR, 4), "CorruptDeletionVector", (VECTOR, "bytes")
    ),
    "a vector's magic is another": Damage(
        field(2, "add", "deletionVector.offset", 2), "CorruptDeletionVector", (VECTOR,)
    ),
    "a vector's checksum is another": Damage(
        flipped(VECTOR, -1), "CorruptDeletionVector", (VECTOR, "checksum")
    ),
    "a vector's content is another": Damage(
        flipped(VECTOR, 20), "CorruptDeletionVector", (VECTOR, "checksum")
    ),
    "a vector's cardinality is another": Damage(
        field(2, "add", "deletionVector.cardinality", 3), "CorruptDeletionVector", (VECTOR, "3")
    ),
    "a vector is of no kind": Damage(
        field(2, "add", "deletionVector.storageType", "x"), "CorruptDeletionVector", (DATA, "'x'")
    ),
    "a vector's name is no Z85": Damage(
        field(2, "add", "deletionVector.pathOrInlineDv", "\\" * 20),
        "CorruptDeletionVector",
        (DATA, "Z85"),
    ),
}
"""Damage that prevents reading rows of a table that opens."""


def store_with(damage: Damage) -> MemoryStore:
    files = dict(tables.summarised() if damage.summarised else tables.template())
    files = tables.without_commits(files) if damage.cleaned else files
    if damage.summarised:
        del files[in_log(compacted_name(0, HEAD))]
    damage.do(files)
    store = MemoryStore(builders.ROOT)
    store.files.update(files)
    return store


def message_of(damage: Damage, face: Face) -> str:
    """Return the message in which an interface reports the damage, after checking its content."""
    store = store_with(damage)
    with pytest.raises(TidegateError) as raised:
        face(store)
    message = str(raised.value)
    assert raised.value.error_class == damage.error, message
    assert builders.ROOT in message
    assert [name for name in damage.names if name not in message] == [], message
    assert REMEDY.search(message), message
    assert FILE.search(message), message
    assert message.count(builders.ROOT) == 1, message
    return message


@pytest.mark.parametrize("name", OF_THE_LOG)
def test_a_damaged_log_is_refused_when_the_table_is_opened(name: str) -> None:
    message_of(OF_THE_LOG[name], open_snapshot)


@pytest.mark.parametrize("name", OF_THE_LOG)
def test_a_damaged_log_is_refused_when_its_changes_are_read(name: str) -> None:
    message_of(OF_THE_LOG[name], lambda store: read_changes(store, 0))


@pytest.mark.parametrize("name", [name for name in OF_THE_LOG if "size" not in name])
def test_a_damaged_log_is_refused_when_its_keys_are_read(name: str) -> None:
    message_of(OF_THE_LOG[name], open_keys)


@pytest.mark.parametrize("name", OF_THE_DATA)
def test_damaged_data_are_refused_when_they_are_read(name: str) -> None:
    message_of(OF_THE_DATA[name], lambda store: read_table(store, open_snapshot(store)))


@pytest.mark.parametrize("name", OF_THE_DATA)
def test_damaged_data_are_refused_when_changes_are_read(name: str) -> None:
    message_of(OF_THE_DATA[name], lambda store: read_changes(store, 1))


@pytest.mark.parametrize(
    "name", [name for name, one in OF_THE_LOG.items() if NAMES[2] in one.names]
)
def test_a_damaged_commit_is_refused_when_it_is_followed(name: str) -> None:
    whole = MemoryStore(builders.ROOT)
    whole.files.update(tables.template())
    before = open_snapshot(whole, 1)
    message_of(OF_THE_LOG[name], lambda store: refresh(store, before))


def v2_store(change: Callable[[Files, str], None]) -> MemoryStore:
    """Return a cleaned-up log with a changed V2 checkpoint and sidecars."""
    files, name = tables.with_v2(Form.JSON)
    store = MemoryStore(builders.ROOT)
    store.files.update(files)
    change(store.files, name)
    return store


def sidecar_of(files: Files) -> str:
    return min(path for path in files if "_sidecars/" in path)


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (lambda files, _: files.pop(sidecar_of(files)), sidecar_of),
        (lambda files, _: files.update({sidecar_of(files): b"PAR1"}), sidecar_of),
        (lambda files, name: files.update({name: files[name][:200]}), None),
        (lambda files, name: files.update({name: b"{}"}), None),
    ],
    ids=["a sidecar is missing", "a sidecar is torn", "it is torn", "it holds no action"],
)
def test_a_damaged_v2_checkpoint_is_refused(
    change: Callable[[Files, str], None], names: Callable[[Files], str] | None
) -> None:
    files, name = tables.with_v2(Form.JSON)
    store = v2_store(change)
    for face in (open_snapshot, open_keys):
        with refused(BrokenLog, "CorruptCheckpoint") as raised:
            face(store)
        wanted = (names(files) if names else name).rpartition("/")[2]
        assert wanted in str(raised.value)
        assert builders.ROOT in str(raised.value)
        assert REMEDY.search(str(raised.value))


def test_a_missing_part_of_a_checkpoint_is_refused_where_it_is_needed() -> None:
    files = tables.without_commits(tables.summarised())
    whole = files.pop(in_log(CHECKPOINT))
    del files[in_log(compacted_name(0, HEAD))]
    store = MemoryStore(builders.ROOT)
    store.files.update(files)
    store.files[in_log(f"{HEAD:020d}.checkpoint.{1:010d}.{2:010d}.parquet")] = whole
    with refused(BrokenLog, "LogGap", match=builders.ROOT) as raised:
        open_snapshot(store)
    assert f"{HEAD:020d}.checkpoint.{2:010d}.{2:010d}.parquet" in str(raised.value)
    assert REMEDY.search(str(raised.value))


@pytest.mark.parametrize(
    "kind", ["classic checkpoint", "log compaction", "version checksum", "hint"]
)
@pytest.mark.parametrize(
    "content", [b"", b"{}", b"PAR1", b"\xff" * 99, b'{"version": 99, "size": 1}']
)
def test_a_damaged_summary_is_passed_over_where_the_commits_are_there(
    kind: str, content: bytes
) -> None:
    whole = MemoryStore(builders.ROOT)
    whole.files.update(tables.template())
    store = MemoryStore(builders.ROOT)
    store.files.update(tables.summarised())
    store.files[tables.SUMMARIES[kind]] = content
    expected = open_snapshot(whole)
    assert version_checksum.of(open_snapshot(store)) == version_checksum.of(expected)
    assert read_table(store, open_snapshot(store)).equals(read_table(whole, expected))


def test_what_a_checksum_states_otherwise_than_the_log_is_named() -> None:
    store = MemoryStore(builders.ROOT)
    store.files.update(tables.summarised())
    path = tables.SUMMARIES["version checksum"]
    body = json.loads(store.files[path])
    store.files[path] = json.dumps({**body, "numFiles": 99}).encode()
    message = checksum_contradiction(store, open_snapshot(store))
    for name in (builders.ROOT, checksum_name(HEAD), "99", "num_files"):
        assert name in message
    assert REMEDY.search(message)


def test_a_version_past_64_bits_is_no_version() -> None:
    store = MemoryStore(builders.ROOT)
    store.files.update(tables.template())
    for name in (commit_name(2**63), commit_name(10**20 - 1), checkpoint_name(2**63)):
        store.files[in_log(name)] = b"?"
    assert open_snapshot(store).version == HEAD


@pytest.mark.parametrize("version", [-1, HEAD + 1, 2**63, 2**70])
def test_a_version_that_is_not_there_is_refused(version: int) -> None:
    store = MemoryStore(builders.ROOT)
    store.files.update(tables.template())
    with refused(InvalidRequest, "VersionNotFound", match=builders.ROOT) as raised:
        open_snapshot(store, version)
    assert REMEDY.search(str(raised.value))

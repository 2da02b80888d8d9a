"""Writing V2 checkpoints: the order keeps a crash harmless, and refusals name the feature."""

from itertools import count
from uuid import UUID

import pytest

from tests.builders import NOW_MS, add, commit, metadata, protocol, remove
from tests.fakes.memory_store import MemoryStore
from tidegate_delta.errors import Unavailable, UnsupportedFeature
from tidegate_delta.log.file_names import parse
from tidegate_delta.snapshots.replay import read_part, replay
from tidegate_delta.snapshots.snapshot import Snapshot, from_replay
from tidegate_runtime.table_io.v2_checkpoint_writer import (
    WITH_SIDECARS,
    CheckpointLayout,
    Form,
    write_v2,
)


def table(*features: str) -> Snapshot:
    """Five files and a fresh tombstone."""
    history = [
        commit(0, protocol(3, 7, readerFeatures=features, writerFeatures=features), metadata()),
        commit(1, *(add(f"f{number}") for number in range(6))),
        commit(2, remove("f0", deletionTimestamp=NOW_MS)),
    ]
    state = replay([read_part(str(item.version), item.encode()) for item in history], None)
    return from_replay(2, state, None)


def written(store: MemoryStore, form: Form, sidecar_files: int = 2) -> int:
    numbers = count(7)
    layout = CheckpointLayout(form, sidecar_files)
    hint = write_v2(store, table("v2Checkpoint"), layout, NOW_MS, lambda: UUID(int=next(numbers)))
    assert (hint.version, hint.num_of_add_files) == (2, 5)
    return hint.size


@pytest.mark.parametrize("form", Form)
def test_every_form_has_the_name_that_the_protocol_gives_it(form: Form) -> None:
    store = MemoryStore()
    written(store, form)

    tops = [path.rpartition("/")[2] for path in store.files if "_sidecars" not in path]
    file = parse(tops[0])
    assert len(tops) == 1
    assert file is not None
    assert file.is_checkpoint
    assert tops[0].endswith("json" if form is Form.JSON else "parquet")
    assert ("0000-0000" in tops[0]) == (form not in (Form.CLASSIC, Form.CLASSIC_WHOLE))


def test_files_go_into_as_many_sidecars_as_they_need_and_tombstones_into_the_last() -> None:
    store = MemoryStore()

    size = written(store, Form.PARQUET)

    assert len([path for path in store.files if "_sidecars" in path]) == 4
    in_sidecars = 5 + 1
    assert size == len(("protocol", "metaData", "checkpointMetadata")) + 4 + in_sidecars


@pytest.mark.parametrize("form", WITH_SIDECARS)
def test_what_names_the_sidecars_is_written_last(form: Form) -> None:
    store = MemoryStore()
    written(store, form)

    assert ["_sidecars" in path for path in store.files] == [True] * 4 + [False]


def test_a_store_that_fails_in_between_leaves_no_checkpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    put = store.put

    def failing(path: str, content: bytes) -> None:
        if len(store.files) == 2:
            raise Unavailable("no")
        put(path, content)

    monkeypatch.setattr(store, "put", failing)
    with pytest.raises(Unavailable):
        written(store, Form.JSON)
    assert all("_sidecars" in path for path in store.files)


def test_a_table_without_the_feature_gets_none() -> None:
    store = MemoryStore()

    with pytest.raises(UnsupportedFeature, match="'v2Checkpoint'") as caught:
        write_v2(store, table(), CheckpointLayout(), NOW_MS, lambda: UUID(int=1))

    assert caught.value.feature == "v2Checkpoint"
    assert not store.files

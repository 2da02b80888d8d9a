from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tidegate_delta.log.actions import (
    Action,
    Add,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    Metadata,
    Protocol,
    Remove,
    Txn,
    Unknown,
)
from tidegate_delta.log.commit import Commit
from tidegate_delta.log.file_names import Version

longs = st.integers(min_value=-(2**63), max_value=2**63 - 1)
texts = st.text(st.characters(codec="utf-8"), max_size=20)
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
json_values = st.recursive(
    st.booleans() | longs | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=5,
)
newer: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    names.map(lambda name: f"future{name}"), json_values, max_size=2
)
vectors = st.fixed_dictionaries(
    {
        "storage_type": st.sampled_from(["u", "i", "p"]),
        "path_or_inline_dv": texts,
        "offset": st.none() | st.integers(0, 2**31 - 1),
        "size_in_bytes": st.integers(0, 2**31 - 1),
        "cardinality": longs,
    }
).map(DeletionVector.model_validate)
strings = st.dictionaries(texts, st.none() | texts, max_size=3)


@st.composite
def actions(draw: st.DrawFn) -> Action:
    kind, fields = draw(st.sampled_from(KINDS))
    known = {name: draw(strategy) for name, strategy in fields.items()}
    action: Action = kind.model_validate({**known, **draw(newer)})
    return action


KINDS: list[tuple[type[Action], dict[str, st.SearchStrategy[Any]]]] = [
    (
        Add,
        {
            "path": names,
            "partition_values": strings,
            "size": longs,
            "modification_time": longs,
            "data_change": st.booleans(),
            "stats": st.none() | texts,
            "tags": st.none() | strings,
            "deletion_vector": st.none() | vectors,
            "base_row_id": st.none() | longs,
        },
    ),
    (
        Remove,
        {
            "path": names,
            "data_change": st.booleans(),
            "deletion_timestamp": st.none() | longs,
            "partition_values": st.none() | strings,
        },
    ),
    (Txn, {"app_id": texts, "version": longs, "last_updated": st.none() | longs}),
    (DomainMetadata, {"domain": texts, "configuration": texts, "removed": st.booleans()}),
    (
        Protocol,
        {
            "min_reader_version": st.integers(0, 2**31 - 1),
            "min_writer_version": st.integers(0, 2**31 - 1),
            "reader_features": st.none() | st.lists(names, max_size=3),
        },
    ),
    (
        Metadata,
        {
            "id": names,
            "schema_string": texts,
            "partition_columns": st.lists(names, max_size=3),
            "configuration": st.dictionaries(names, texts, max_size=3),
        },
    ),
    (CommitInfo, {"operation": st.none() | texts, "is_blind_append": st.none() | st.booleans()}),
]
unknown = st.builds(Unknown, name=names.map(lambda name: f"future{name}"), body=json_values)


def once(drawn: list[Action]) -> list[Action]:
    """Keep at most one action of each kind that defines the table: two would be ambiguous."""
    kept: list[Action] = []
    for action in drawn:
        of_the_table = isinstance(action, Protocol | Metadata)
        if not (of_the_table and any(isinstance(item, type(action)) for item in kept)):
            kept.append(action)
    return kept


commits = st.builds(
    Commit,
    st.integers(0, 10**18).map(Version),
    st.lists(actions() | unknown, max_size=5).map(lambda drawn: tuple(once(drawn))),
)


@given(commits)
def test_a_commit_survives_its_bytes(commit: Commit) -> None:
    assert Commit.decode(commit.version, commit.encode()) == commit


@given(commits)
def test_bytes_survive_the_commit(commit: Commit) -> None:
    content = commit.encode()
    assert Commit.decode(commit.version, content).encode() == content

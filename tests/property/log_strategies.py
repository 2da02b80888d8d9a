"""Hypothesis strategies for logs: commits that add and remove a few files repeatedly."""

from typing import Any

from hypothesis import strategies as st

from tidegate_delta.log.actions import (
    Action,
    Add,
    DeletionVector,
    DomainMetadata,
    Metadata,
    Protocol,
    Remove,
    Txn,
)
from tidegate_delta.log.commit import Commit
from tidegate_delta.log.file_names import Version

FEATURES = ("deletionVectors", "v2Checkpoint")
HEAD = (
    Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=FEATURES,
        writer_features=(*FEATURES, "domainMetadata"),
    ),
    Metadata(id="t", schema_string='{"type":"struct","fields":[]}'),
)
PATHS = ["a", "b", "p=a%20b/c", "p=a b/c", "s3://b/d"]
VECTORS = [
    None,
    DeletionVector(
        storage_type="u", path_or_inline_dv="x", offset=1, size_in_bytes=1, cardinality=1
    ),
]

domain_rows = st.builds(
    DomainMetadata, domain=st.just("d"), configuration=st.sampled_from("12"), removed=st.booleans()
)


@st.composite
def commit_actions(draw: st.DrawFn) -> tuple[Action, ...]:
    """Draw the actions of one commit: it adds or removes a key, not both."""
    chosen = draw(
        st.lists(
            st.tuples(st.sampled_from([0, 1, 2, 4]), st.sampled_from(VECTORS), st.booleans()),
            unique_by=lambda one: (PATHS[one[0]], one[1] and one[1].unique_id),
            max_size=4,
        )
    )
    files: list[Action] = []
    for position, dv, is_add in chosen:
        path = draw(st.sampled_from(["p=a%20b/c", "p=a b/c"])) if position == 2 else PATHS[position]
        common: dict[str, Any] = {"path": path, "data_change": True, "deletion_vector": dv}
        size = draw(st.integers(0, 99))
        files.append(
            Add(**common, partition_values={}, size=size, modification_time=1)
            if is_add
            else Remove(**common, deletion_timestamp=size)
        )
    txns = draw(
        st.lists(
            st.builds(
                lambda app_id, version: Txn(app_id=app_id, version=version),
                st.sampled_from("xy"),
                st.integers(0, 9),
            ),
            max_size=1,
        )
    )
    domains = draw(st.lists(domain_rows, max_size=1))
    return (*files, *txns, *domains)


logs = st.lists(commit_actions(), min_size=1, max_size=8).map(
    lambda commits: [
        Commit(Version(version), (*(HEAD if version == 0 else ()), *actions))
        for version, actions in enumerate(commits)
    ]
)

"""A small table of a few versions for each feature that we write; `FEATURE_TABLES` lists them."""

import json
from collections.abc import Callable

import pyarrow as pa

from tests.checkpoints import Form, put_v2
from tests.conformance.grown_tables import (
    COMMIT_COLUMN,
    ID_COLUMN,
    MATERIALIZED,
    Grown,
    K,
    P,
    S,
    column,
    local,
    row,
    supported,
)
from tests.conformance.schema_tables import (
    checked,
    defaulted,
    evolved,
    generated,
    iceberg,
    mapped_by_id,
    mapped_by_name,
    mapped_in_mid_life,
    numbered,
    widened,
    widened_in_preview,
)
from tests.conformance.written_tables import Deployment
from tidegate_delta.checkpoints import last_checkpoint
from tidegate_delta.checkpoints.last_checkpoint import LastCheckpoint
from tidegate_delta.deletion_vectors.descriptors import inline
from tidegate_delta.deletion_vectors.roaring_bitmap import of_rows
from tidegate_delta.log.actions import DomainMetadata
from tidegate_delta.log.file_names import LAST_CHECKPOINT, commit_name, in_log
from tidegate_delta.schema.types import (
    BINARY,
    BYTE,
    DOUBLE,
    FLOAT,
    SHORT,
    TIMESTAMP_NTZ,
    parse_schema,
)
from tidegate_delta.schema_evolution import alter_columns
from tidegate_runtime.client import proposal_builders


def row_deletes(deployment: Deployment) -> Grown:
    """Rows that several deletes removed from the same files, with small vectors and large ones."""
    table = Grown(deployment, deployment.folder / "row-deletes")
    table.begin((K, S, P), {"delta.enableDeletionVectors": "true"}, ("p",))
    table.append([row(k, p=k % 2) for k in range(6_000)])
    table.delete_rows([0, 1, 2], [2, 3, 5_999])
    table.delete_rows(range(10, 6_000, 3), range(10, 6_000, 7))
    table.append([row(10_000, p=1)])
    table.delete_rows([10_000])
    return table


def tracked(deployment: Deployment) -> Grown:
    """Rows with row ids: new rows, updated rows that keep their ids, and deleted rows."""
    table = Grown(deployment, deployment.folder / "tracked")
    properties = {"delta.enableRowTracking": "true", "delta.enableDeletionVectors": "true"}
    table.begin((K, S), properties | MATERIALIZED)
    table.append([row(k) for k in range(5)])
    table.append([row(k) for k in range(10, 13)])
    table.delete_rows([1], [11])
    known = table.row_ids()
    ids = pa.array([known[k][0] for k in sorted(known)], pa.int64())
    versions = [None if k == 3 else known[k][1] for k in sorted(known)]
    rows = [{"k": k, "s": "new" if k == 3 else f"s{k}"} for k in sorted(known)]
    kept = {ID_COLUMN: ids, COMMIT_COLUMN: pa.array(versions, pa.int64())}
    table.replace("UPDATE", rows, **kept)
    table.append([row(20)])
    return table


def tracked_in_mid_life(deployment: Deployment) -> Grown:
    table = Grown(deployment, deployment.folder / "tracked-in-mid-life")
    table.begin((K, S), {})
    table.append([row(k) for k in range(4)])
    seen = table.snapshot.metadata
    own = {**seen.configuration, **supported("rowTracking")}
    table.change("SET TBLPROPERTIES", seen.with_(configuration=own))
    again = [item.with_(data_change=False) for item in table.live()]
    table.commit_actions("ROW TRACKING BACKFILL", *again)
    seen = table.snapshot.metadata
    own = {**seen.configuration, "delta.enableRowTracking": "true", **MATERIALIZED}
    table.change("SET TBLPROPERTIES", seen.with_(configuration=own))
    table.append([row(9)])
    return table


def timed(deployment: Deployment) -> Grown:
    table = Grown(deployment, deployment.folder / "timed")
    table.begin((K, S), {"delta.enableInCommitTimestamps": "true"})
    table.append([row(1)])
    table.append([row(2)])
    return table


def timed_in_mid_life(deployment: Deployment) -> Grown:
    table = Grown(deployment, deployment.folder / "timed-in-mid-life")
    table.begin((K, S), {})
    table.append([row(1)])
    table.set(enableInCommitTimestamps="true")
    table.append([row(2)])
    return table


def with_domains(deployment: Deployment) -> Grown:
    table = Grown(deployment, deployment.folder / "with-domains")
    one = DomainMetadata(domain="app.one", configuration='{"a": 1}')
    other = DomainMetadata(domain="app.other", configuration="")
    table.begin((K, S), supported("domainMetadata"), (), (one, other))
    table.append([row(1)], one.with_(configuration='{"a": "ü"}'))
    table.append([row(2)], other.with_(removed=True))
    return table


def clustered(deployment: Deployment) -> Grown:
    """Clustered by columns with physical names, and then by another column."""
    table = Grown(deployment, deployment.folder / "clustered")
    properties = {"delta.columnMapping.mode": "name", **supported("clustering")}
    table.begin((K, S, P), properties)
    table.append([row(1, p=3)], _clustering(table, "s", "k"))
    metadata = alter_columns.rename_column(table.snapshot.metadata, ("s",), "t")
    table.change("RENAME COLUMN", metadata)
    table.append([{"k": 2, "t": "z", "p": 4}])
    return table


def _clustering(table: Grown, *names: str) -> DomainMetadata:
    schema = parse_schema(table.snapshot.metadata.schema_string)
    physical = {field.name: field.metadata["delta.columnMapping.physicalName"] for field in schema}
    result = {"clusteringColumns": [[physical[name]] for name in names]}
    return DomainMetadata(domain="delta.clustering", configuration=json.dumps(result))


def cdc_recorded(deployment: Deployment) -> Grown:
    """Changes in change files of their own, and changes that the data files imply."""
    table = Grown(deployment, deployment.folder / "cdc-recorded")
    properties = {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"}
    table.begin((K, S), properties)
    table.append([row(1), row(2), row(3)])
    kinds = ["update_preimage", "update_postimage", "delete"]
    result = {"k": [1, 1, 2], "s": ["s1", "new", "s2"], "_change_type": kinds}
    table.replace("MERGE", [{"k": 1, "s": "new"}, row(3)], table.changes(pa.table(result)))
    table.append([row(4), row(5)])
    [marked] = [add for add in table.live() if '"minValues":{"k":4' in (add.stats or "")]
    bounds = {**json.loads(marked.stats or "{}"), "tightBounds": False}
    result = {"deletion_vector": inline(of_rows([1])), "stats": json.dumps(bounds)}
    table.commit_actions("DELETE", proposal_builders.removal(marked, 0), marked.with_(**result))
    return table


def append_only(deployment: Deployment) -> Grown:
    table = Grown(deployment, deployment.folder / "append-only")
    table.begin((K, S), {"delta.appendOnly": "true"})
    table.append([row(1)])
    table.append([row(2)])
    return table


def typed_partitions(deployment: Deployment) -> Grown:
    """Partition values, extremes included, of the types by which no other table is partitioned."""
    table = Grown(deployment, deployment.folder / "typed-partitions")
    kinds = {"d": DOUBLE, "f": FLOAT, "b": BYTE, "h": SHORT, "bin": BINARY}
    columns = [column(name, kind) for name, kind in kinds.items()]
    table.begin((K, *columns), {}, tuple(kinds))
    table.append([{"k": 1, "d": 1e300, "f": -0.5, "b": -128, "h": 32767, "bin": b"a b"}])
    table.append([{"k": 2, "d": float("inf"), "f": 3e38, "b": 0, "h": -1, "bin": b"\x01~"}])
    table.append([{"k": 3}, {"k": 4, "d": 0.1, "f": 1e-30, "b": 127, "h": 0, "bin": b"%2F"}])
    return table


def without_zone(deployment: Deployment) -> Grown:
    """Timestamps without a zone, as values, bounds and partition values."""
    table = Grown(deployment, deployment.folder / "without-zone")
    table.begin((K, column("at", TIMESTAMP_NTZ), column("p", TIMESTAMP_NTZ)), {}, ("p",))
    times = [local(1, 1, 1), local(9999, 12, 31, 23, 59, 59, 999_999), None]
    table.append([{"k": at, "at": one, "p": one} for at, one in enumerate(times)])
    table.append([{"k": 9, "at": local(1969, 12, 31, 23), "p": local(2024, 1, 1, 1, 2, 3, 4)}])
    return table


def protected(deployment: Deployment) -> Grown:
    table = Grown(deployment, deployment.folder / "protected")
    table.begin((K, S), supported("checkpointProtection"))
    table.append([row(1)])
    table.append([row(2)])
    return table


def vacuum_checked(deployment: Deployment) -> Grown:
    table = Grown(deployment, deployment.folder / "vacuum-checked")
    table.begin((K, S), supported("vacuumProtocolCheck"))
    table.append([row(1)])
    table.append([row(2)])
    return table


def _v2(form: Form) -> Callable[[Deployment], Grown]:
    def build(deployment: Deployment) -> Grown:
        """A table whose first versions exist only in a V2 checkpoint."""
        table = Grown(deployment, deployment.folder / f"v2-{form.name.lower()}")
        table.begin((K, S, P), {"delta.checkpointPolicy": "v2"}, ("p",))
        table.append([row(k, p=k % 3) for k in range(6)])
        table.append([row(k, p=k % 3) for k in range(6, 12)])
        snapshot, store = table.snapshot, table.store
        name, _ = put_v2(store, snapshot, form, 0, files_a_sidecar=2)
        version = int(snapshot.version)
        store.put(in_log(LAST_CHECKPOINT), last_checkpoint.encode(LastCheckpoint(version, 10)))
        assert name.startswith(f"{version:020d}")
        for old in range(version):
            store.delete(in_log(commit_name(old)))
        table.append([row(20, p=1)])
        return table

    build.__name__ = f"v2_{form.name.lower()}"
    return build


def v2_checkpointed(deployment: Deployment) -> Grown:
    """A table with a V2 checkpoint that the checkpointer wrote; older versions are gone."""
    table = Grown(deployment, deployment.folder / "v2-checkpointed")
    asked = {"delta.checkpointPolicy": "v2", "delta.checkpointInterval": "4"}
    table.begin((K, S, P), asked, ("p",))
    for start in range(0, 20, 5):
        table.append([row(k, p=k % 3) for k in range(start, start + 5)])
    deployment.checkpointer.poll()
    log = table.path / "_delta_log"
    assert len(list(log.glob(f"{4:020d}.checkpoint.*.json"))) == 1
    for old in range(4):
        table.store.delete(in_log(commit_name(old)))
    table.append([row(20, p=1)])
    return table


FEATURE_TABLES: tuple[Callable[[Deployment], Grown], ...] = (
    mapped_by_name,
    mapped_by_id,
    mapped_in_mid_life,
    widened,
    widened_in_preview,
    evolved,
    row_deletes,
    tracked,
    tracked_in_mid_life,
    timed,
    timed_in_mid_life,
    with_domains,
    clustered,
    numbered,
    generated,
    defaulted,
    checked,
    cdc_recorded,
    append_only,
    without_zone,
    typed_partitions,
    protected,
    vacuum_checked,
    *(iceberg(version) for version in ("V1", "V2", "V3")),
    *(_v2(form) for form in Form),
    v2_checkpointed,
)

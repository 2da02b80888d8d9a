"""The columns by which a table's files are sorted: of a clustered table, or of a Z-order."""

from collections.abc import Iterator, Sequence
from typing import Final

from tidegate_delta.data_skipping.file_statistics import chosen
from tidegate_delta.definitions.definition import Definition, refuse
from tidegate_delta.definitions.resolve_definition import resolve_definition
from tidegate_delta.errors import InvalidRequest
from tidegate_delta.features.clustering import (
    DOMAIN,
    FEATURE,
    clustering_columns,
    clustering_domain,
)
from tidegate_delta.log.actions import Action, DomainMetadata, Metadata
from tidegate_delta.properties.property import column_list
from tidegate_delta.properties.table_properties import (
    FEATURE_PREFIX,
    num_indexed_columns,
    stats_columns,
)
from tidegate_delta.schema.field_paths import FieldPath, dotted, find_field, kind_at, same_name
from tidegate_delta.schema.types import ArrayType, MapType, StructType, leaves, parse_schema
from tidegate_messages.outcome import Outcome
from tidegate_messages.proposal import Operation
from tidegate_producers.cached_clients import store_for
from tidegate_producers.options import TableLocation
from tidegate_producers.writing.table_write import WriteRequest, check_open_to, propose, stamp_for
from tidegate_runtime.client import proposal_builders
from tidegate_runtime.client.client import Client
from tidegate_runtime.table_io.open_table import open_keys

CLUSTER_BY: Final = "clusterBy"
COLUMNS_MAX: Final = 4
"""How many columns a table may be clustered by, as in delta-spark."""

FEATURES: Final = {f"{FEATURE_PREFIX}{FEATURE}": "supported"}
"""The properties by which a table that is created or altered lists the feature."""

_CLUSTERING: Final = {
    "is no column": "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA",
    "is no column of a plain type": "DELTA_CLUSTERING_COLUMNS_DATATYPE_NOT_SUPPORTED",
    "is a partition column": "DELTA_CLUSTER_BY_WITH_PARTITIONED_BY",
    "has no statistics": "DELTA_CLUSTERING_COLUMN_MISSING_STATS",
}
_Z_ORDER: Final = {
    "is no column": "DELTA_ZORDERING_COLUMN_DOES_NOT_EXIST",
    "is no column of a plain type": "DELTA_ZORDERING_ON_COLUMN_WITHOUT_STATS",
    "is a partition column": "DELTA_ZORDERING_ON_PARTITION_COLUMN",
    "has no statistics": "DELTA_ZORDERING_ON_COLUMN_WITHOUT_STATS",
}


def sorted_by(metadata: Metadata, names: Sequence[str], purpose: str) -> tuple[FieldPath, ...]:
    """Return the paths of columns by which files can be sorted, so that readers can skip some.

    `purpose` is the request, for messages.
    Raises: InvalidRequest, naming the column.
    """
    return tuple(_sortable(metadata, name, purpose) for name in names)


def clustered_by(metadata: Metadata, names: Sequence[str], root: str) -> DomainMetadata:
    """Return the domain by which a table is clustered by some columns. Raises: InvalidRequest."""
    if metadata.partition_columns:
        raise InvalidRequest(
            f"{root} is partitioned by {', '.join(metadata.partition_columns)}, and a table is "
            "clustered or partitioned: leave one out; nothing was proposed",
            error_class="DELTA_CLUSTER_BY_WITH_PARTITIONED_BY",
        )
    if len(names) > COLUMNS_MAX:
        raise InvalidRequest(
            f"{root} would be clustered by {len(names)} columns, and {COLUMNS_MAX} are the most: "
            "name those that most queries choose by; nothing was proposed",
            error_class="DELTA_CLUSTER_BY_INVALID_NUM_COLUMNS",
        )
    return clustering_domain(metadata, sorted_by(metadata, names, CLUSTER_BY))


def cluster_by(
    client: Client, place: TableLocation, names: Sequence[str], request: WriteRequest
) -> Outcome | None:
    """Propose that a table is clustered by these columns, or by none, and return the outcome; None
    if it is. Files are sorted by the next `optimize`.

    Raises: InvalidRequest, naming the column; Rejected; OutcomeUnknown; Unavailable.
    """
    record, store = client.require(place.root, request.timeout_s), store_for(place)
    live_keys = open_keys(store)
    check_open_to(live_keys, place.root)
    domain = clustered_by(live_keys.metadata, names, place.root)
    old_columns = clustering_columns(live_keys.metadata, live_keys.domains)
    if old_columns == clustering_columns(live_keys.metadata, {DOMAIN: domain}):
        return None
    asking = live_keys.metadata.with_(
        configuration={**live_keys.metadata.configuration, **FEATURES}
    )
    resolved = resolve_definition(Definition(live_keys.metadata, live_keys.protocol), asking)
    refuse(resolved.flaws, place.root)
    protocol = resolved.definition.protocol
    actions: tuple[Action, ...] = (
        (protocol, domain) if protocol != live_keys.protocol else (domain,)
    )
    parameters = {
        "oldClusteringColumns": ",".join(map(dotted, old_columns)),
        "newClusteringColumns": ",".join(names),
    }
    operation = Operation(name="CLUSTER BY", parameters=dict(parameters))
    target = proposal_builders.Target(
        record.table, record.table_root, int(live_keys.version), live_keys.metadata.id
    )
    rows = tuple(action.to_row() for action in actions)
    body = proposal_builders.Body(operation, rows, proposal_builders.NOTHING)
    proposal = proposal_builders.of_body("commit", target, stamp_for(client, request), body)
    return propose(client, store, proposal, request.timeout_s)


def _sortable(metadata: Metadata, name: str, purpose: str) -> FieldPath:
    schema = parse_schema(metadata.schema_string)
    [wanted_path] = column_list(name)
    path = next((leaf for leaf in leaves(schema) if _is_same(leaf, wanted_path)), None)
    if find_field(schema, wanted_path[0]) is None:
        reason = "is no column"
    elif path is None or isinstance(kind_at(schema, path), ArrayType | MapType):
        reason = "is no column of a plain type"
    elif path[0] in metadata.partition_columns:
        reason = "is a partition column"
    elif path not in set(_counted(metadata, schema)):
        reason = "has no statistics"
    else:
        return path
    counted = [dotted(leaf) for leaf in _counted(metadata, schema)]
    raise InvalidRequest(
        f"{purpose}: {name!r} {reason}, so sorting by it lets no file be skipped: name a column "
        f"with statistics ({', '.join(counted)}; delta.dataSkippingStatsColumns and "
        "delta.dataSkippingNumIndexedCols say which have them); nothing was proposed",
        error_class=(_CLUSTERING if purpose == CLUSTER_BY else _Z_ORDER)[reason],
    )


def _counted(metadata: Metadata, schema: StructType) -> Iterator[FieldPath]:
    """Yield the columns that have statistics in files."""
    partition_columns = metadata.partition_columns
    stored = StructType(tuple(column for column in schema if column.name not in partition_columns))
    yield from chosen(stored, num_indexed_columns(metadata), stats_columns(metadata))


def _is_same(path: FieldPath, wanted_path: Sequence[str]) -> bool:
    return len(path) == len(wanted_path) and all(map(same_name, path, wanted_path))

"""Clustered tables: the columns by whose values the rows of files lie near one another.

They stand in a metadata domain, under their physical names.

Spec: "Clustered Table"
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from tidegate_delta.errors import BrokenLog
from tidegate_delta.log.actions import DomainMetadata, Metadata
from tidegate_delta.schema.column_mapping import logical_path, mode_of, physical_path
from tidegate_delta.schema.field_paths import FieldPath
from tidegate_delta.schema.types import parse_schema
from tidegate_delta.snapshots.snapshot import Snapshot

DOMAIN: Final = "delta.clustering"
FEATURE: Final = "clustering"

_COLUMNS: Final = "clusteringColumns"
_NAME: Final = "domainName"


def clustering_columns(
    metadata: Metadata, domains: Mapping[str, DomainMetadata]
) -> tuple[FieldPath, ...]:
    """Return the columns by which a table is clustered, by their names in the table; () for none.

    Raises: BrokenLog (`CorruptCommit`), for a domain that names no columns of the table.
    """
    schema, mode = parse_schema(metadata.schema_string), mode_of(metadata)
    try:
        paths = physical_clustering_columns(domains)
        return tuple(logical_path(schema, path, mode) for path in paths)
    except ValueError as error:
        raise _broken(domains[DOMAIN], error) from error


def physical_clustering_columns(domains: Mapping[str, DomainMetadata]) -> tuple[FieldPath, ...]:
    """Return the physical paths of the columns by which a table is clustered; () for none.

    Raises: as `clustering_columns`.
    """
    domain = domains.get(DOMAIN)
    if domain is None or domain.removed:
        return ()
    try:
        paths: Any = orjson.loads(domain.configuration)[_COLUMNS]
        return tuple(tuple(path) for path in paths)
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise _broken(domain, error) from error


def unsorted_files(snapshot: Snapshot) -> pa.Table:
    """Return the files of a clustered table that nobody has clustered; none of other tables.

    Raises: as `clustering_columns`.
    """
    files = snapshot.files
    if not physical_clustering_columns(snapshot.domains):
        return files.slice(0, 0)
    return files.filter(pc.is_null(files["clusteringProvider"]))


def _broken(domain: DomainMetadata, error: Exception) -> BrokenLog:
    return BrokenLog(
        f"the metadata domain {DOMAIN} names no columns of the table: "
        f"{domain.configuration[:128]!r} ({error}); set the clustering columns again",
        error_class="CorruptCommit",
    )


def clustering_domain(metadata: Metadata, columns: Sequence[Sequence[str]]) -> DomainMetadata:
    """Return the domain by which a table is clustered by some columns, named as in the table.

    Law: clustering_columns(m, {DOMAIN: clustering_domain(m, c)}) == c
    Raises: ValueError for a column that the table lacks.
    """
    schema, mode = parse_schema(metadata.schema_string), mode_of(metadata)
    physical = [physical_path(schema, path, mode) for path in columns]
    configuration = orjson.dumps({_COLUMNS: physical, _NAME: DOMAIN})
    return DomainMetadata(domain=DOMAIN, configuration=configuration.decode())

"""Clustered tables: the columns by whose values the rows of files lie near one another.

They stand in a metadata domain, under their physical names.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from tidegate_delta.errors import BrokenLog
from tidegate_delta.log.actions import DomainMetadata, Metadata
from tidegate_delta.schema.column_mapping import logical_path, mode_of, physical_path
from tidegate_delta.schema.field_paths import FieldPath
from tidegate_delta.schema.types import parse_schema

DOMAIN: Final = "delta.clustering"
FEATURE: Final = "clustering"

_COLUMNS: Final = "clusteringColumns"
_NAME: Final = "domainName"


def clustering_columns(
    metadata: Metadata, domains: Mapping[str, DomainMetadata]
) -> tuple[FieldPath, ...]:
    """Return the columns by which a table is clustered, by their names in the table; () for none.

    Raises: BrokenLog (`CorruptCommit`), for a domain that names no columns of the table.
    Spec: "Clustered Table"
    """
    domain = domains.get(DOMAIN)
    if domain is None or domain.removed:
        return ()
    schema, mode = parse_schema(metadata.schema_string), mode_of(metadata)
    try:
        paths: Any = orjson.loads(domain.configuration)[_COLUMNS]
        return tuple(logical_path(schema, path, mode) for path in paths)
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise BrokenLog(
            f"the metadata domain {DOMAIN} names no columns of the table: "
            f"{domain.configuration[:128]!r} ({error}); set the clustering columns again",
            error_class="CorruptCommit",
        ) from error


def clustering_domain(metadata: Metadata, columns: Sequence[Sequence[str]]) -> DomainMetadata:
    """Return the domain by which a table is clustered by some columns, named as in the table.

    Law: clustering_columns(m, {DOMAIN: clustering_domain(m, c)}) == c
    Raises: ValueError for a column that the table lacks.
    Spec: "Clustered Table"
    """
    schema, mode = parse_schema(metadata.schema_string), mode_of(metadata)
    physical = [physical_path(schema, path, mode) for path in columns]
    configuration = orjson.dumps({_COLUMNS: physical, _NAME: DOMAIN})
    return DomainMetadata(domain=DOMAIN, configuration=configuration.decode())

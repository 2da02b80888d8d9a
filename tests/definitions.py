"""Build small protocols and metadata for tests of table definitions."""

import json
from typing import Any

from tidegate_delta.log.actions import Add, Metadata, Protocol
from tidegate_delta.schema.types import StructType, format_schema, parse_schema


def a_field(name: str, kind: Any = "long", **about: Any) -> dict[str, Any]:
    """Return a field as a schemaString writes it; `about` is its metadata."""
    return {"name": name, "type": kind, "nullable": True, "metadata": about}


def metadata(*fields: dict[str, Any], **text: str) -> Metadata:
    """Return the metadata of a table with some columns and some properties."""
    columns = list(fields) or [a_field("a")]
    return Metadata(
        id="t", schema_string=json.dumps({"type": "struct", "fields": columns}), configuration=text
    )


def of_schema(
    schema: StructType, configuration: dict[str, str] | None = None, by: tuple[str, ...] = ()
) -> Metadata:
    """Return the metadata of a table of a schema, its properties and partition columns."""
    return Metadata(
        id="t",
        schema_string=format_schema(schema),
        partition_columns=by,
        configuration=configuration or {},
    )


def schema_of(metadata: Metadata) -> StructType:
    """Return the schema of a table."""
    return parse_schema(metadata.schema_string)


def one_file(path: str = "a", **fields: Any) -> Add:
    """Return the action that adds a file of one byte, with some fields replaced."""
    made = Add(path=path, partition_values={}, size=1, modification_time=0, data_change=True)
    return made.with_(**fields)


def versions(reader: int, writer: int) -> Protocol:
    """Return a protocol without feature lists."""
    return Protocol(min_reader_version=reader, min_writer_version=writer)


def listing(*names: str, readers: tuple[str, ...] = ()) -> Protocol:
    """Return a protocol that lists writer features, and some of them as reader features too."""
    return Protocol(
        min_reader_version=3 if readers else 1,
        min_writer_version=7,
        reader_features=readers or None,
        writer_features=tuple(sorted(names)),
    )

"""Build small protocols and metadata for tests of table definitions."""

import json
from typing import Any

from tidegate_delta.log.actions import Metadata, Protocol


def a_field(name: str, kind: Any = "long", **about: Any) -> dict[str, Any]:
    """Return a field as a schemaString writes it; `about` is its metadata."""
    return {"name": name, "type": kind, "nullable": True, "metadata": about}


def metadata(*fields: dict[str, Any], **text: str) -> Metadata:
    """Return the metadata of a table with some columns and some properties."""
    columns = list(fields) or [a_field("a")]
    return Metadata(
        id="t", schema_string=json.dumps({"type": "struct", "fields": columns}), configuration=text
    )


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

"""Log rows and operations of table features: row tracking, identity columns and column mapping."""

import json
from typing import Any

from tests.builders import Row, info, metadata, proposal, protocol
from tidegate_messages.proposal import Operation, Proposal

TRACKED = ("domainMetadata", "rowTracking")
BACKFILL = info("ROW TRACKING BACKFILL")
VECTOR = {
    "storageType": "u",
    "pathOrInlineDv": "0" * 20,
    "offset": 1,
    "sizeInBytes": 34,
    "cardinality": 1,
}
"""The descriptor of a deletion vector with one row, in a file."""
WIDE = '{"numRecords":10,"tightBounds":false}'
"""Statistics with wide bounds, as a file with a deletion vector has them."""
TAGGED = info(tags={"delta.identity.schemaUpdate": "true"})


def listed(*features: str, reader: tuple[str, ...] = ()) -> Row:
    """Return a protocol that lists features, some of which readers need, too."""
    if not reader:
        return protocol(1, 7, writerFeatures=features)
    return protocol(3, 7, readerFeatures=reader, writerFeatures=(*features, *reader))


def named(operation: str, *rows: Row, **fields: Any) -> Proposal:
    """Return a proposal by an operation of this name."""
    return proposal(*rows, operation=Operation(name=operation), **fields)


def numbered(mark: int | None, **changed: Any) -> Row:
    """Return metadata with an identity column at this high-water mark, and other fields changed."""
    own: Row = {"delta.identity.start": 1, "delta.identity.step": 1}
    own["delta.identity.allowExplicitInsert"] = False
    if mark is not None:
        own["delta.identity.highWaterMark"] = mark
    field = {"name": "x", "type": "long", "nullable": True, "metadata": own}
    text = json.dumps({"type": "struct", "fields": [field]})
    return {"metaData": {**metadata()["metaData"], "schemaString": text, **changed}}


def mapped(row: Row, *physical_names: str) -> Row:
    """Return metaData whose columns have the ids 1, 2, … and these names in files and the log."""
    columns = json.loads(row["metaData"]["schemaString"])
    for number, (column, name) in enumerate(zip(columns["fields"], physical_names, strict=True), 1):
        about = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": name}
        column["metadata"] = about
    return {"metaData": {**row["metaData"], "schemaString": json.dumps(columns)}}

"""The values of changes in Debezium's envelope, a column at a time.

docs/changes.md describes the form for subscribers. Everything that all changes of a version
share is one constant text; records differ only in their images and index.
"""

import json
from importlib.metadata import version as version_of
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_cdc_publisher.change_batch import Batch, SourceBlock
from tidegate_cdc_publisher.json_rows import TEXT, join
from tidegate_cdc_publisher.row_diff import Images

CONNECTOR: Final = "tidegate"
_RELEASE: Final = version_of("tidegate")


def envelopes(origin: SourceBlock, batch: Batch, numbers: pa.Array, now_ms: int) -> pa.Array:
    """Return the value of each change as JSON text; `numbers` are their places in the version."""
    version, count = origin.version, len(batch)
    index = pc.cast(numbers, TEXT)
    parts: list[pa.Array | str] = ['{"before":', _image(batch.before), ',"after":']
    parts += [_image(batch.after), f',"source":{{{_source(origin)},"snapshot":']
    parts += [snapshot_marks(batch), f',"sequence":"[\\"{version}\\",\\"', index, '\\"]"}']
    parts += [f',"op":"{batch.op}","ts_ms":{now_ms}']
    if batch.op == "r":
        return join([*parts, pa.repeat(pa.scalar(',"transaction":null}', TEXT), count)])
    order = pc.cast(pc.add(numbers, 1), TEXT)
    parts += [f',"transaction":{{"id":"{origin.table}:{version}","total_order":', order]
    parts += [',"data_collection_order":', order, "}}"]
    return join(parts)


def _source(origin: SourceBlock) -> str:
    """Return the constant fields of the source block, without its braces."""
    *above, table = origin.table_name.split(".")
    schema, database = [*reversed(above), "", ""][:2]
    constant = {
        "version": _RELEASE,
        "connector": CONNECTOR,
        "name": origin.logical_name,
        "ts_ms": origin.timestamp_ms,
        "db": database,
        "schema": schema,
        "table": table,
        "txId": origin.version,
        **origin.more,
    }
    return json.dumps(constant, ensure_ascii=False, separators=(",", ":"))[1:-1]


def snapshot_marks(batch: Batch) -> pa.Array | str:
    """Return each row's place in a snapshot, as JSON: first, true, last, incremental; or false."""
    if batch.op != "r":
        return '"false"'
    if batch.is_incremental:
        return '"incremental"'
    marks = ['"true"'] * len(batch)
    if batch.start == 0 and marks:
        marks[0] = '"first"'
    if batch.ends and marks:
        marks[-1] = '"last"'
    return pa.array(marks, TEXT)


def _image(images: Images | None) -> pa.Array | str:
    return "null" if images is None else images.texts

"""The values of changes in each envelope: Debezium's, flat, or as Delta's change feed has them.

They are made a column at a time. docs/changes.md describes the form for subscribers. Everything
that all changes of a version share is one constant text; records differ only in their images and
index.

A flat row is an image with a few fields in front of it.
"""

import json
from importlib.metadata import version as version_of
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_cdc_publisher.change_batch import Batch, Op, SourceBlock
from tidegate_cdc_publisher.json_rows import TEXT, instant_text, join
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


_CHANGE_TYPES: Final[dict[Op, str]] = {"r": "insert", "c": "insert", "d": "delete"}


def flat_rows(
    origin: SourceBlock, batch: Batch, numbers: pa.Array, marks: pa.Array | str
) -> pa.Array:
    """Return each change as one row: the image after it, or the last one of a deleted row."""
    images = batch.before if batch.after is None else batch.after
    deleted = "true" if batch.op == "d" else "false"
    first = f'{{"__op":"{batch.op}","__deleted":"{deleted}","__version":{origin.version}'
    parts = [f'{first},"__index":', pc.cast(numbers, TEXT)]
    parts += [f',"__commit_ts":{origin.timestamp_ms},"__snapshot":', marks]
    return join([*parts, _rest(images)])


def feed_rows(origin: SourceBlock, batch: Batch) -> tuple[pa.Array, ...]:
    """Return the changes as rows of Delta's change feed; an update has two, before and after."""
    if batch.op == "u":
        sides = ((batch.before, "update_preimage"), (batch.after, "update_postimage"))
        return tuple(_feed(origin, images, kind) for images, kind in sides)
    images = batch.before if batch.after is None else batch.after
    return (_feed(origin, images, _CHANGE_TYPES[batch.op]),)


def _feed(origin: SourceBlock, images: Images | None, kind: str) -> pa.Array:
    timestamp_json = json.dumps(instant_text(origin.timestamp_ms))
    constant = f'{{"_change_type":"{kind}","_commit_version":{origin.version}'
    return join([f'{constant},"_commit_timestamp":{timestamp_json}', _rest(images)])


def _rest(images: Images | None) -> pa.Array:
    """Return the text of each image after its opening brace, led by a comma if it has fields."""
    assert images is not None, "a change has an image"
    text = images.texts.cast(pa.large_binary())
    rest = pc.binary_replace_slice(text, start=0, stop=1, replacement=b"").cast(TEXT)
    return pc.if_else(pc.equal(rest, "}"), rest, join([",", rest]))

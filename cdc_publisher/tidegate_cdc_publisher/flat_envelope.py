"""The values of changes as rows: flat, or as Delta's change feed has them.

A row is an image with a few fields in front of it.
"""

import json
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_cdc_publisher.change_batch import Batch, Op, SourceBlock
from tidegate_cdc_publisher.json_rows import TEXT, instant_text, join
from tidegate_cdc_publisher.row_diff import Images

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

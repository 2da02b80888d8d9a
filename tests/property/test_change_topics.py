"""The change topic of any table, in every envelope and format, replays to the table.

It is read with decoders that share no code with our encoders: Apache's Avro library, jsonschema,
and Protobuf's own messages, by the schema that stands in the registry.
"""

import json
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any, get_args

import pytest
from avro.io import BinaryDecoder, DatumReader
from avro.schema import ArraySchema, MapSchema, parse
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator

from tests.connect_records import payload
from tests.fakes.backward_registry import BackwardRegistry
from tests.property.generated_tables import (
    ODD_NAMES,
    PARTITIONS,
    PLAIN_NAMES,
    GeneratedTable,
    kinds,
    narrowed,
    partition_text,
    rows_of,
    shown,
    structs,
)
from tests.protobuf_records import message_class, of_message
from tests.unit.cdc_publisher.memory_change_topic import Topic, stream
from tidegate_cdc_publisher.record_form import ADDED_FIELDS, Envelope, Format, RecordForm
from tidegate_cdc_publisher.schema_registry import Registry

KEY = {"name": "id", "type": "long", "nullable": False, "metadata": {}}


@st.composite
def histories(draw: st.DrawFn, names: tuple[str, ...]) -> tuple[Any, Any, bool, Any, Any]:
    """Return a schema, the partition column, whether columns are mapped, and two contents."""
    struct = draw(structs(names, kinds(names, 2)))
    struct["fields"].insert(0, dict(KEY))
    partition = draw(st.sampled_from([None, "part"]))
    if partition:
        kind = draw(st.sampled_from(PARTITIONS))
        struct["fields"].append({"name": "part", "type": kind, "nullable": True, "metadata": {}})
    contents = [draw(st.lists(rows_of(struct), max_size=4)) for _ in range(2)]
    for content in contents:
        for number, row in enumerate(content):
            row["id"] = number
            if partition:
                # The log can't tell an empty text from NULL.
                row["part"] = row["part"] if partition_text(row["part"]) else None
    is_mapped = draw(st.booleans()) or set(names) == set(ODD_NAMES)
    return struct, partition, is_mapped, *contents


def read(
    client: BackwardRegistry, content: bytes | None, record_format: Format, by: int | None = None
) -> Any:
    """Return a key or value as another library reads it, with its own schema or that of an id."""
    if content is None:
        return None
    if record_format == "json":
        return json.loads(content)
    if record_format == "json_schema":
        return payload(content)
    written = client.get_schema(int.from_bytes(content[1:5], "big"))
    schema = written if by is None else client.get_schema(by)
    match record_format:
        case "avro":
            schemas = [parse(one.schema_str or "") for one in (written, schema)]
            return as_json(DatumReader(*schemas).read(BinaryDecoder(BytesIO(content[5:]))))
        case "protobuf":
            file = FileDescriptorProto.FromString(b64decode(schema.schema_str or ""))
            return of_message(message_class(file).FromString(content[6:]))
        case _:
            value = json.loads(content[5:])
            Draft7Validator(json.loads(schema.schema_str or "")).validate(value)
            return value


def _promotes(inside: str) -> Callable[[Any, Any], bool]:
    """Return how a list or a map matches another: its items may be promoted, as the format says.

    The library compares the names of their types only, where Java's compares as the format says.
    """
    return lambda reader, writer: (
        reader.type == writer.type and getattr(reader, inside).match(getattr(writer, inside))
    )


ArraySchema.match = _promotes("items")  # type: ignore[method-assign]  # see above
MapSchema.match = _promotes("values")  # type: ignore[method-assign]  # see above

Reader = Callable[..., Any]
"""What reads a record as `read` does."""


def as_json(value: Any) -> Any:
    match value:
        case bytes():
            return b64encode(value).decode()
        case dict():
            return {name: as_json(item) for name, item in value.items()}
        case list():
            return [as_json(item) for item in value]
    return value


def apply(rows: dict[int, Any], key: int, value: dict[str, Any], envelope: Envelope) -> None:
    """Take a change over."""
    if envelope == "debezium":
        row = value["after"]
        is_gone = value["op"] == "d"
    else:
        row = {name: cell for name, cell in value.items() if name not in ADDED_FIELDS[envelope]}
        word = value["__deleted"] if envelope == "flat" else value["_change_type"]
        is_gone = word in ("true", "delete", "update_preimage")
    if is_gone:
        del rows[key]
    else:
        rows[key] = row


def check(history: Any, envelope: Envelope, record_format: Format, read: Reader = read) -> None:
    """Check that the topic of a generated table, read by a library, replays to the table."""
    struct, partition, is_mapped, first, second = history
    client, topic = BackwardRegistry(), Topic()
    registry = Registry(client, "mock://")  # type: ignore[arg-type]  # a double of the client
    form = RecordForm(record_format, record_format, envelope=envelope)
    has_schema = record_format != "json"
    with tempfile.TemporaryDirectory() as folder:
        table = GeneratedTable.at(Path(folder) / "t", struct, partition, mapped=is_mapped)
        for content in (first, second):
            table.replace_rows(content)
            following = stream(table, topic, form=form, registry=registry, on_schema_change="topic")
            following.catch_up(table.version)
            rows: dict[int, Any] = {}
            for record in topic.records:
                value = read(client, record.value, record_format)
                if value is not None:
                    key = read(client, record.key, record_format)
                    assert set(key) == {"id"}
                    apply(rows, key["id"], value, envelope)
            replayed = [narrowed(rows[number], struct) for number in sorted(rows)]
            expected = [shown(row, struct, has_schema=has_schema) for row in content]
            assert replayed == expected


EXAMPLES = settings(
    deadline=None,
    max_examples=settings().max_examples // 16,
    suppress_health_check=[HealthCheck.too_slow],
)


@pytest.mark.parametrize("envelope", get_args(Envelope))
@pytest.mark.parametrize("record_format", get_args(Format))
@EXAMPLES
@given(data=st.data())
def test_the_topic_replays_to_the_table(
    envelope: Envelope, record_format: Format, data: st.DataObject
) -> None:
    check(data.draw(histories(PLAIN_NAMES)), envelope, record_format)


@pytest.mark.parametrize("envelope", get_args(Envelope))
@pytest.mark.parametrize("record_format", ["json", "json_schema", "json_schema_registry"])
@EXAMPLES
@given(data=st.data())
def test_columns_of_odd_names_replay_in_json(
    envelope: Envelope, record_format: Format, data: st.DataObject
) -> None:
    check(data.draw(histories(ODD_NAMES)), envelope, record_format)

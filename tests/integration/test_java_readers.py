"""Java's libraries read generated change topics: Avro's, protobuf-java, and Everit's JSON Schema.

They are what Confluent's deserializers for Java are built on; those themselves are not on Maven
Central. The bytes before the value (a zero, the schema's id, a message's indexes) are read as the
documents of Confluent's wire format say.
"""

import json
import subprocess
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fakes.backward_registry import BackwardRegistry
from tests.integration.connect_sink import JarsMissing, maven_jars
from tests.property.generated_tables import PLAIN_NAMES, GeneratedTable
from tests.property.test_change_topics import check, histories
from tests.property.test_schema_steps import REGISTERED, Followed, begun, take_some
from tidegate_cdc_publisher.record_form import Envelope, Format
from tidegate_local.kafka_jars import java_command

pytestmark = pytest.mark.nightly
PROGRAM: Final = Path(__file__).with_name("RecordReader.java")
JARS: Final = (
    "org.apache.avro:avro:1.12.1",
    "com.google.protobuf:protobuf-java:4.33.5",
    "com.github.erosb:everit-json-schema:1.14.6",
)
EXAMPLES: Final = settings(
    deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow]
)


class Unreadable(Exception):
    """Java's library reads no value."""


@dataclass(frozen=True)
class JavaReader:
    """The program, which answers line by line."""

    process: subprocess.Popen[str]

    def read(
        self,
        client: BackwardRegistry,
        content: bytes | None,
        record_format: Format,
        by: int | None = None,
    ) -> Any:
        """Return a key or value, read with its own schema or that of an id. Raises: Unreadable."""
        if content is None:
            return None
        written = int.from_bytes(content[1:5], "big")
        schemas = [
            client.get_schema(number).schema_str or "" for number in (written, by or written)
        ]
        parts = [*(schema.encode() for schema in schemas), content]
        line = "\t".join([record_format, *(b64encode(part).decode() for part in parts)])
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if "error" in answer:
            raise Unreadable(answer["error"])
        return answer["value"]


@pytest.fixture(scope="module")
def java() -> Iterator[JavaReader]:
    """Start the program. Skips where its jars can't be had, or Java has no compiler."""
    command = [java_command(), "--list-modules"]
    modules = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if "jdk.compiler" not in modules:
        pytest.skip("this Java is a JRE, which compiles nothing")
    try:
        jars = maven_jars("record-reader", *JARS)
    except JarsMissing as error:
        pytest.skip(f"Maven's repository does not give {', '.join(JARS)}: {error}")
    argv = [java_command(), "-Xmx512m", "-cp", f"{jars}/*", str(PROGRAM)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(argv, text=True, encoding="utf-8", **pipes) as process:
        yield JavaReader(process)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("envelope", get_args(Envelope))
@pytest.mark.parametrize("record_format", REGISTERED)
@EXAMPLES
@given(data=st.data())
def test_the_topic_replays_to_the_table(
    java: JavaReader, envelope: Envelope, record_format: Format, data: st.DataObject
) -> None:
    check(data.draw(histories(PLAIN_NAMES)), envelope, record_format, java.read)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("envelope", get_args(Envelope))
@pytest.mark.parametrize("record_format", REGISTERED)
@EXAMPLES
@given(data=st.data())
def test_a_step_of_the_schema_is_taken_or_refused_by_name(
    java: JavaReader, envelope: Envelope, record_format: Format, data: st.DataObject
) -> None:
    with begun(data, envelope, record_format, java.read) as followed:
        take_some(followed, data)


@pytest.mark.parametrize("record_format", REGISTERED)
def test_no_byte_of_a_record_may_be_another_one(
    java: JavaReader, record_format: Format, tmp_path: Path
) -> None:
    kinds = {"id": "long", "name": "string", "price": "double", "raw": "binary", "day": "date"}
    fields = [
        {"name": name, "type": kind, "nullable": name != "id", "metadata": {}}
        for name, kind in kinds.items()
    ]
    struct = {"type": "struct", "fields": fields}
    table = GeneratedTable.at(tmp_path / "t", struct, None, mapped=True)
    table.replace_rows([{"id": 300, "name": "Zürich", "price": 0.1, "raw": b"\0\1", "day": None}])
    followed = Followed(table, "flat", record_format)
    followed.follow()
    [record] = followed.topic.records
    content = record.value or b""
    right = java.read(followed.client, content, record_format)
    assert right["name"] == "Zürich"
    for place in (0, *range(5, len(content))):
        wrong = bytearray(content)
        wrong[place] ^= 1
        try:
            assert java.read(followed.client, bytes(wrong), record_format) != right, place
        except Unreadable:
            continue

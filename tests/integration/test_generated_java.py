"""Java classes are generated from the JSON Schemas alone; they read and write our examples.

The generator knows JSON Schema's types and references, as generators do, and nothing of our
messages. javac judges what it makes, and Jackson reads the examples into it and writes them back.
"""

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import orjson
import pytest

from tidegate_local.kafka_jars import java_command, pyspark_jars
from tidegate_messages.codec import FORMATS
from tidegate_messages.json_schemas import examples_of, shipped_schema
from tidegate_messages.message import Message
from tidegate_messages.outcome import Outcome
from tidegate_messages.proposal import Proposal

_SIMPLE: Final[Mapping[str, str]] = {
    "string": "String",
    "integer": "Long",
    "number": "Double",
    "boolean": "Boolean",
}
_JARS: Final = ("jackson-core-2*", "jackson-databind-2*", "jackson-annotations-2*")
_MAIN: Final = """
    public static void main(String[] files) throws Exception {
        com.fasterxml.jackson.databind.ObjectMapper mapper =
            new com.fasterxml.jackson.databind.ObjectMapper();
        mapper.setSerializationInclusion(
            com.fasterxml.jackson.annotation.JsonInclude.Include.NON_NULL);
        for (String file : files) {
            System.out.println(mapper.writeValueAsString(
                mapper.readValue(new java.io.File(file), %s.class)));
        }
    }
"""


class Generator:
    """Makes Java source of a schema: a class for each object with properties, in one outer class.

    What may be of several types is an Object, and is typed by the program that looks at it.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._defs = schema.get("$defs", {})
        self._classes: dict[str, str] = {}
        self.root = self._object(schema)

    @property
    def source(self) -> str:
        """The classes, and a program that reads and writes JSON with the root's."""
        body = "\n".join(self._classes.values())
        return f"public class Types {{\n{body}\n{_MAIN % self.root}\n}}\n"

    def _object(self, schema: Mapping[str, Any]) -> str:
        name = str(schema["title"])
        if name not in self._classes:
            self._classes[name] = ""
            fields = [
                f"        @com.fasterxml.jackson.annotation.JsonProperty({_quoted(field)}) "
                f"public {self._type(below)} {re.sub('[^a-zA-Z0-9_]', '_', field)}_;"
                for field, below in schema["properties"].items()
            ]
            inside = "\n".join(fields)
            self._classes[name] = f"    public static class {name} {{\n{inside}\n    }}"
        return name

    def _type(self, schema: Mapping[str, Any]) -> str:
        if "$ref" in schema:
            return self._type(self._defs[str(schema["$ref"]).rpartition("/")[2]])
        choices = [item for item in schema.get("anyOf", ()) if item.get("type") != "null"]
        if choices and "type" not in schema:
            return self._type(choices[0]) if len(choices) == 1 else "Object"
        if "properties" in schema:
            return self._object(schema)
        if "enum" in schema or "const" in schema:
            return "Object"
        kind = schema.get("type")
        if kind == "array":
            return f"java.util.List<{self._type(schema.get('items', {}))}>"
        if kind == "object":
            more = schema.get("additionalProperties")
            value = self._type(more) if isinstance(more, dict) else "Object"
            return f"java.util.Map<String, {value}>"
        return _SIMPLE.get(str(kind), "Object")


def _quoted(text: str) -> str:
    return orjson.dumps(text).decode()


def through_java(kind: type[Message], folder: Path, *bodies: Mapping[str, Any]) -> list[Any]:
    """Return examples as the generated classes read and wrote them."""
    spark = pyspark_jars()
    assert spark is not None, "the environment of the tests has PySpark"
    jars = [str(jar) for name in _JARS for jar in spark.glob(f"{name}.jar")]
    path = ":".join([str(folder), *jars])
    source = folder / "Types.java"
    source.write_text(Generator(orjson.loads(shipped_schema(kind))).source, encoding="utf-8")
    compiler = [java_command(), "-m", "jdk.compiler/com.sun.tools.javac.Main", "-d", str(folder)]
    argv = [*compiler, "-Xlint:all", "-cp", path, str(source)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if "Module jdk.compiler not found" in done.stderr:
        pytest.skip("this Java is a JRE, which compiles nothing")
    assert done.returncode == 0, done.stderr
    files = []
    for number, body in enumerate(bodies):
        files.append(folder / f"{number}.json")
        files[-1].write_bytes(orjson.dumps(body))
    program = [java_command(), "-cp", path, "Types", *map(str, files)]
    result = subprocess.run(program, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return [orjson.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.parametrize("kind", [Proposal, Outcome], ids=lambda kind: kind.__name__)
def test_generated_classes_read_and_write_our_examples(kind: type[Message], tmp_path: Path) -> None:
    bodies = list(examples_of(kind).values())
    assert kind in FORMATS
    assert through_java(kind, tmp_path, *bodies) == [_bare(body) for body in bodies]


def test_generated_classes_know_no_other_field(tmp_path: Path) -> None:
    good = examples_of(Proposal)["append"]
    with pytest.raises(AssertionError, match="app_txnz"):
        through_java(Proposal, tmp_path, {**good, "app_txnz": []})


def _bare(value: Any) -> Any:
    """Return a JSON value without the fields that are null."""
    if isinstance(value, dict):
        return {name: _bare(one) for name, one in value.items() if one is not None}
    return [_bare(item) for item in value] if isinstance(value, list) else value

"""Repeat delta-spark's schema changes: our metadata must be equal."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tidegate_delta.constraints import column_defaults, identity_columns, row_constraints
from tidegate_delta.constraints.identity_columns import identity_columns as identities
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_delta.schema.char_varchar import TYPE_STRING
from tidegate_delta.schema.column_mapping import PHYSICAL_NAME, ColumnMappingMode, mode_of
from tidegate_delta.schema.column_mapping_assignment import (
    MAX_COLUMN_ID,
    map_columns,
    unmapped,
    without_mapping,
)
from tidegate_delta.schema.field_paths import field_at, kind_at
from tidegate_delta.schema.types import StructField, StructType, format_schema, parse_schema, walk
from tidegate_delta.schema_evolution import alter_columns, evolve_on_write
from tidegate_delta.schema_evolution.alter_columns import (
    FIRST,
    LAST,
    FieldPosition,
    replace_columns,
)

SEEN_MIN = 60
"""Fewest changes in the corpus; fewer mean that the corpus was not found."""

MAPPED_MIN = 6
"""Fewest tables in the corpus that were created with mapped columns."""

DIGESTS_MIN = 12
"""Fewest distinct sets of requirements in the corpus."""


class Step(NamedTuple):
    """A delta-spark commit with metadata, and the metadata before it, if any."""

    name: str
    operation: str
    parameters: dict[str, str]
    first: Metadata | None
    after: Metadata
    protocol: Protocol

    @property
    def before(self) -> Metadata:
        assert self.first is not None, "a change changes something"
        return self.first


def steps(corpus: Path) -> Iterator[Step]:
    for table in sorted((corpus / "tables" / "spark44").iterdir()):
        before: Metadata | None = None
        protocol = Protocol(min_reader_version=1, min_writer_version=2)
        for path in sorted((table / "_delta_log").glob("[0-9]*[0-9].json")):
            rows = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line]
            one = {key: value for row in rows for key, value in row.items()}
            if "protocol" in one:
                protocol = Protocol.model_validate(one["protocol"])
            if "metaData" not in one:
                continue
            after = Metadata.model_validate(one["metaData"])
            info = one.get("commitInfo", {})
            name, operation = f"{table.name}/{path.name}", info.get("operation", "")
            yield Step(
                name, operation, info.get("operationParameters", {}), before, after, protocol
            )
            before = after


def path_of(text: str) -> tuple[str, ...]:
    """Return the path that an operation names; only dots and backticks are quoted."""
    parts = re.findall(r"`((?:[^`]|``)+)`|([^.`]+)", text)
    return tuple(quoted.replace("``", "`") or plain for quoted, plain in parts)


def place_of(text: str | None) -> FieldPosition:
    if text is None:
        return LAST
    return (
        FIRST if text == "FIRST" else FieldPosition(after=path_of(text.removeprefix("AFTER "))[-1])
    )


def field_of(plain: dict[str, Any]) -> StructField:
    """Return a field as an operation writes it: CHAR and VARCHAR by their own names."""
    kind, metadata = plain["type"], plain["metadata"]
    if isinstance(kind, str) and kind.startswith(("char(", "varchar(")):
        kind, metadata = "string", {**metadata, TYPE_STRING: kind}
    name = path_of(plain["name"])[-1]
    one = {**plain, "name": name, "type": kind, "metadata": metadata}
    return parse_schema(json.dumps({"type": "struct", "fields": [one]})).fields[0]


def renamed(step: Step) -> Metadata:
    old, new = step.parameters["oldColumnPath"], step.parameters["newColumnPath"]
    return alter_columns.rename_column(step.before, path_of(old), path_of(new)[-1])


def dropped(step: Step) -> Metadata:
    metadata = step.before
    for text in json.loads(step.parameters["columns"]):
        metadata = alter_columns.drop_column(metadata, (text,))
    return metadata


def added(step: Step) -> Metadata:
    metadata = step.before
    for load in json.loads(step.parameters["columns"]):
        place = place_of(load.get("position"))
        path = path_of(load["column"]["name"])
        metadata = alter_columns.add_column(metadata, field_of(load["column"]), path[:-1], place)
    return metadata


def changed(step: Step) -> Metadata:
    wanted = json.loads(step.parameters["column"])
    path, one = path_of(wanted["name"]), field_of(wanted)
    metadata = step.before
    kind = kind_at(parse_schema(metadata.schema_string), path)
    if one.kind != kind:
        metadata = alter_columns.change_type(metadata, step.protocol, path, one.kind)
    if path[-1] in ("element", "key", "value"):
        return metadata
    was = field_at(parse_schema(metadata.schema_string), path)
    if one.metadata.get(TYPE_STRING) != was.metadata.get(TYPE_STRING):
        limit = one.metadata.get(TYPE_STRING, "string")
        metadata = alter_columns.change_limit(metadata, path, limit)
    if one.metadata.get("comment") != was.metadata.get("comment"):
        metadata = alter_columns.comment_on(metadata, path, one.metadata.get("comment"))
    if one.metadata.get(column_defaults.CURRENT) != was.metadata.get(column_defaults.CURRENT):
        text = one.metadata.get(column_defaults.CURRENT)
        metadata = column_defaults.set_default(metadata, step.protocol, path[0], text)
    if "position" in step.parameters:
        place = place_of(step.parameters["position"])
        metadata = alter_columns.move_column(metadata, path, place)
    return metadata


def mapped(step: Step) -> Metadata:
    own = json.loads(step.parameters["properties"])
    wanted = {key: text for key, text in own.items() if not key.startswith("delta.min")}
    return step.before.with_(configuration={**step.before.configuration, **wanted})


def merged(step: Step) -> Metadata:
    return evolve_on_write.evolved(
        step.before, step.protocol, parse_schema(step.after.schema_string)
    )


MADE_AGAIN: dict[str, Callable[[Step], Metadata]] = {
    "RENAME COLUMN": renamed,
    "DROP COLUMNS": dropped,
    "ADD COLUMNS": added,
    "CHANGE COLUMN": changed,
    "REPLACE COLUMNS": lambda step: replace_columns(
        step.before, step.protocol, parse_schema(step.after.schema_string)
    ),
    "ADD CONSTRAINT": lambda step: row_constraints.add_check(
        step.before, step.parameters["name"], step.parameters["expr"]
    ),
    "DROP CONSTRAINT": lambda step: row_constraints.drop_check(
        step.before, step.parameters["name"]
    ),
    "REMOVE COLUMN MAPPING": lambda step: without_mapping(step.before),
    "MERGE": merged,
}


def again(step: Step) -> Metadata | None:
    """Return our metadata for a change, or None for one that is not of the schema."""
    if step.operation in MADE_AGAIN:
        return MADE_AGAIN[step.operation](step)
    if "delta.columnMapping.mode" in step.parameters.get("properties", ""):
        return mapped(step)
    if step.operation != "WRITE":
        return None
    if step.parameters.get("canMergeSchema"):
        return merged(step)
    if step.parameters.get("canOverwriteSchema"):
        data = parse_schema(step.after.schema_string)
        return evolve_on_write.overwritten(step.before, data, step.after.partition_columns)
    values = {
        identity.physical: (identity.mark or 0,)
        for identity in identities(step.after, step.protocol)
    }
    return identity_columns.with_marks(step.before, values)


def names_of(step: Step) -> Iterator[str]:
    """Yield the physical names that delta-spark gave to the columns of a change."""
    before = parse_schema(step.first.schema_string) if step.first else StructType()
    known = {field.metadata.get(PHYSICAL_NAME) for field in walk(before)}
    for item in walk(parse_schema(step.after.schema_string)):
        name = item.metadata.get(PHYSICAL_NAME)
        if name is not None and name not in known:
            yield name


def test_what_delta_spark_made_of_a_schema_is_made_again(corpus: Path) -> None:
    count = 0
    for step in steps(corpus):
        result = again(step) if step.first else None
        if result is None:
            continue
        count += 1
        after = parse_schema(step.after.schema_string)
        rewrites = step.operation == "REMOVE COLUMN MAPPING"
        result = map_columns(step.before, result, names_of(step), overwrites=rewrites)
        assert parse_schema(result.schema_string) == after, step.name
        assert result == step.after.with_(schema_string=result.schema_string), step.name
    assert count >= SEEN_MIN


def test_ids_are_given_to_a_new_table_as_delta_spark_gives_them(corpus: Path) -> None:
    mapped_tables = 0
    for step in steps(corpus):
        if step.first is not None or mode_of(step.after) is ColumnMappingMode.NONE:
            continue
        mapped_tables += 1
        bare = unmapped(parse_schema(step.after.schema_string))
        own = {k: v for k, v in step.after.configuration.items() if k != MAX_COLUMN_ID}
        asked = step.after.with_(schema_string=format_schema(bare), configuration=own)
        result = map_columns(None, asked, names_of(step))
        assert parse_schema(result.schema_string) == parse_schema(step.after.schema_string)
        assert result.configuration == step.after.configuration
    assert mapped_tables >= MAPPED_MIN


def test_requirements_of_tables_for_writers_can_be_read(corpus: Path) -> None:
    asked = [row_constraints.requirements(step.after, step.protocol) for step in steps(corpus)]
    for what in ("not_null", "checks", "lengths", "generated", "identities", "defaults"):
        assert any(getattr(item, what) for item in asked), what
    assert len({row_constraints.digest(one) for one in asked}) >= DIGESTS_MIN

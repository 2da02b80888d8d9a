"""Laws of metadata patches: they state what they touch, and commute if that differs."""

import json
from itertools import combinations
from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate_committer.conflicts.metadata_patches import touches
from tidegate_committer.state.metadata_diff import (
    columns_by_physical,
    field_definition,
    in_common,
    touched,
)
from tidegate_delta.definitions.definition import Definition
from tidegate_delta.errors import TidegateError
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_delta.log.protocol_versions import supported_features
from tidegate_delta.schema.column_mapping import ColumnMappingMode, mode_of
from tidegate_delta.schema.column_mapping_assignment import largest_id, max_column_id
from tidegate_delta.schema.types import parse_schema
from tidegate_messages.metadata_patch import MetadataPatch, applied_patch, metadata_hash

READING = ("columnMapping", "typeWidening")
PROTOCOL = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=READING,
    writer_features=(*READING, "invariants", "checkConstraints", "allowColumnDefaults"),
)
FIELDS = ("x", "s", "n", "b")
NAMES = st.sampled_from([*FIELDS, "t", "u", "T"])
INSIDE = st.sampled_from(["y", "z", "w"])
PATHS = st.one_of(NAMES.map(lambda one: (one,)), INSIDE.map(lambda one: ("b", one)))
KEYS = st.sampled_from(
    ["mine", "delta.checkpointInterval", "delta.constraints.c", "delta.dataSkippingStatsColumns"]
)
VALUES = {
    "mine": "1",
    "delta.checkpointInterval": "7",
    "delta.constraints.c": "x > 0 AND n < 9",
    "delta.dataSkippingStatsColumns": "x,n",
}


def field(name: str, kind: Any, number: int = 0) -> dict[str, Any]:
    about = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
    plain = {"name": name, "type": kind, "nullable": True}
    return {**plain, "metadata": about if number else {}}


def table(mode: str, listing: bool) -> Definition:
    """Return a table of x, s, n and the struct b of y and z."""
    count = iter(range(1, 9)) if mode != "none" else iter([0] * 9)
    inner = {"type": "struct", "fields": [field(item, "integer", next(count)) for item in "yz"]}
    kinds = {"x": "integer", "s": "string", "n": "short", "b": inner}
    fields = [field(name, kind, next(count)) for name, kind in kinds.items()]
    own = {"delta.enableTypeWidening": "true", "delta.columnMapping.mode": mode}
    if mode != "none":
        own["delta.columnMapping.maxColumnId"] = "6"
    if listing:
        own["delta.dataSkippingStatsColumns"] = "x,s"
    schema = json.dumps({"type": "struct", "fields": fields})
    return Definition(Metadata(id="t", schema_string=schema, configuration=own), PROTOCOL)


def op(name: str, /, **more_fields: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"op": st.just(name), **more_fields})


CHANGES = st.one_of(
    st.tuples(NAMES, st.sampled_from([(), ("b",)]), st.sampled_from(["long", "string"])).map(
        lambda told: {"op": "add_column", "column": field(told[0], told[2]), "parent": told[1]}
    ),
    op("drop_column", path=PATHS),
    op("rename_column", path=PATHS, name=NAMES),
    op("change_type", path=PATHS, type=st.sampled_from(["integer", "long"])),
    op("comment_on", path=PATHS, comment=st.sampled_from(["c", None])),
    op("allow_nulls", path=PATHS),
    KEYS.map(lambda key: {"op": "set_property", "key": key, "value": VALUES[key]}),
    op("unset_property", key=KEYS),
)
TABLES = st.builds(table, st.sampled_from(["none", "name", "id"]), st.booleans())


def after(patch: MetadataPatch, table_definition: Definition, number: int) -> Definition | None:
    try:
        return applied_patch(patch, table_definition, UUID(int=number))
    except TidegateError:
        return None


def lawful(table_definition: Definition, wanted: list[dict[str, Any]]) -> MetadataPatch | None:
    """Return the patch of those changes that the table permits, one after the other."""
    kept: list[dict[str, Any]] = []
    for change in wanted:
        if (
            after(MetadataPatch.model_validate({"changes": [*kept, change]}), table_definition, 9)
            is not None
        ):
            kept.append(change)
    return MetadataPatch.model_validate({"changes": kept}) if kept else None


@st.composite
def cases(draw: st.DrawFn, most: int) -> tuple[Definition, list[MetadataPatch]]:
    """Draw a table, and patches that it permits."""
    table_definition = draw(TABLES)
    wanted = draw(st.lists(st.lists(CHANGES, min_size=1, max_size=3), min_size=most, max_size=most))
    return table_definition, [patch for item in wanted if (patch := lawful(table_definition, item))]


def meaning(table_definition: Definition | None) -> object:
    """Return a table's definition without ids, physical names and column order."""
    if table_definition is None:
        return None
    known = columns_by_physical(table_definition.metadata).values()
    own = table_definition.metadata.configuration
    return (
        {column.path: field_definition(column) for column in known},
        {key: text for key, text in own.items() if key != "delta.columnMapping.maxColumnId"},
        table_definition.metadata.partition_columns,
        supported_features(table_definition.protocol),
    )


@settings(max_examples=100, deadline=None)
@given(cases(1))
def test_a_patch_lists_what_it_touches(case: tuple[Definition, list[MetadataPatch]]) -> None:
    table_definition, patches = case
    for patch in patches:
        changed = after(patch, table_definition, 1)
        assert changed is not None
        own = touches(patch, table_definition)
        for item in touched(table_definition.metadata, changed.metadata):
            assert any(mine.meets(item) for mine in own), item


@settings(max_examples=120, deadline=None)
@given(cases(4))
def test_patches_that_touch_different_things_commute(
    case: tuple[Definition, list[MetadataPatch]],
) -> None:
    table_definition, patches = case
    for one, other in combinations(patches, 2):
        first, second = after(one, table_definition, 1), after(other, table_definition, 2)
        assert first is not None
        assert second is not None
        # The committer checks the later patch against the result of the earlier one.
        earlier = (
            touched(table_definition.metadata, first.metadata),
            touched(table_definition.metadata, second.metadata),
        )
        asked = (
            in_common(touches(other, table_definition), earlier[0]),
            in_common(touches(one, table_definition), earlier[1]),
        )
        if asked == (None, None):
            assert meaning(after(other, first, 2)) == meaning(after(one, second, 1))


@settings(max_examples=60, deadline=None)
@given(cases(4))
def test_no_id_and_no_physical_name_is_given_twice(
    case: tuple[Definition, list[MetadataPatch]],
) -> None:
    table_definition, patches = case
    last, seen = (
        max_column_id(table_definition.metadata) or 0,
        set(columns_by_physical(table_definition.metadata)),
    )
    for number, patch in enumerate(patches):
        changed = after(patch, table_definition, number)
        if changed is None or mode_of(changed.metadata) is ColumnMappingMode.NONE:
            continue
        added = columns_by_physical(changed.metadata).keys() - columns_by_physical(
            table_definition.metadata
        )
        assert not added & seen
        now = max_column_id(changed.metadata)
        assert now is not None
        assert now >= max(last, largest_id(parse_schema(changed.metadata.schema_string)))
        last, table_definition, seen = now, changed, seen | added


def test_the_hash_of_metadata_is_one_that_any_program_can_make() -> None:
    plain = Metadata(id="t", schema_string="{}", configuration={"b": "é", "a": "1"})
    assert metadata_hash(plain) == (
        "ef4a9c7754105740671f1448a71dda5756b1c8e4bdfb3744fdfcaef5c575d9a6"
    )

"""Changes a table's columns and properties by a metadata patch, or lists all columns again.

A patch lists changes instead of the resulting metadata. So patches of different columns and
properties do not conflict, and the committer assigns column ids and physical names.

A CHECK constraint is added only to a table whose rows all satisfy it.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import orjson
from pydantic import TypeAdapter, ValidationError

from tidegate_delta.constraints.row_constraints import (
    PREFIX,
    add_check,
    checks,
    expressions,
    hashes,
    requirements,
)
from tidegate_delta.definitions.definition import Definition, refuse
from tidegate_delta.definitions.definition_changes import check_change
from tidegate_delta.definitions.resolve_definition import resolve_definition
from tidegate_delta.errors import InvalidRequest
from tidegate_delta.features.clustering import physical_clustering_columns
from tidegate_delta.features.supported_features import check_writable
from tidegate_delta.properties.property import column_list
from tidegate_delta.properties.table_properties import INSTRUCTIONS, check_names
from tidegate_delta.schema.types import (
    StructField,
    StructType,
    format_schema,
    parse_schema,
    parse_type,
)
from tidegate_delta.schema_evolution.alter_columns import (
    LAST,
    FieldPosition,
    move_column,
    replace_columns,
)
from tidegate_delta.snapshots.snapshot import LiveKeys
from tidegate_messages.metadata_patch import MetadataPatch, PatchChange, SetProperty, applied_patch
from tidegate_messages.outcome import Outcome
from tidegate_messages.proposal import Operation, ReadSet
from tidegate_producers.cached_clients import store_for
from tidegate_producers.options import TableLocation
from tidegate_producers.writing.column_checks import Attestation, with_attestation
from tidegate_producers.writing.table_write import WriteRequest, stamp_for
from tidegate_runtime.client import proposal_builders
from tidegate_runtime.client.client import Client, result
from tidegate_runtime.table_io.open_table import open_keys

NAMES: Final[Mapping[str, str]] = {
    "add_column": "ADD COLUMNS",
    "drop_column": "DROP COLUMNS",
    "rename_column": "RENAME COLUMN",
    "set_property": "SET TBLPROPERTIES",
    "unset_property": "UNSET TBLPROPERTIES",
}
"""Delta's operation names by kind of change; a kind not listed is `CHANGE COLUMN`."""

SEVERAL: Final = "ALTER TABLE"
"""The operation name of a commit with changes of several kinds."""

_SQL_NAMES: Final[Mapping[str, str]] = {
    "tinyint": "byte",
    "smallint": "short",
    "int": "integer",
    "bigint": "long",
    "real": "float",
}
_NAME: Final = r"(?:`(?:[^`]|``)+`|[^`.,\s]+)"
_NAMED: Final = re.compile(rf"\s*({_NAME}(?:\.{_NAME})*)\s+(\S.*?)\s*", re.DOTALL)
_CHANGE: Final[TypeAdapter[PatchChange]] = TypeAdapter(PatchChange)


def alter(
    client: Client, place: TableLocation, changes: Sequence[PatchChange], request: WriteRequest
) -> Outcome:
    """Propose changes of a table's metadata, to be applied in order, and return the outcome.

    Raises: InvalidRequest (`TableNotRegistered`, `BadChange`); Rejected (`metadata_changed`), if
    another commit changed the same thing; OutcomeUnknown; UnsupportedFeature; BrokenLog;
    Unavailable.
    """
    try:
        patch = MetadataPatch(changes=tuple(changes))
    except ValidationError as error:
        raise _bad(f"{len(changes)} changes: a patch has from 1 to 100 of them") from error
    target, live_keys = opened(client, place, request)
    stamp = stamp_for(client, request)
    _check_applies(patch, live_keys, stamp.proposal_id, place.root)
    changes_json = orjson.dumps(
        [patch_change.model_dump(mode="json") for patch_change in patch.changes]
    ).decode()
    operation = Operation(name=operation_of(patch.changes), parameters={"changes": changes_json})
    body = proposal_builders.Body(operation, reads=ReadSet(), patch=patch)
    proposal = proposal_builders.of_body("commit", target, stamp, body)
    return result(client.propose(proposal, request.timeout_s))


def _check_applies(patch: MetadataPatch, live_keys: LiveKeys, proposal: UUID, root: str) -> None:
    """Check a patch as the committer will, so that no version of the log records its refusal.

    Raises: InvalidRequest.
    """
    before = Definition(live_keys.metadata, live_keys.protocol)
    try:
        check_names(
            {
                change.key: change.value
                for change in patch.changes
                if isinstance(change, SetProperty) and change.key not in INSTRUCTIONS
            }
        )
        after = applied_patch(
            patch, before, proposal, physical_clustering_columns(live_keys.domains)
        )
        refuse(check_change(before, after), root)
    except InvalidRequest as error:
        raise InvalidRequest(
            f"{error}; nothing was proposed", error_class=error.error_class
        ) from error


def replace(
    client: Client, place: TableLocation, columns: StructType, request: WriteRequest
) -> Outcome | None:
    """Propose that a table has these columns, and return the outcome, or None if it has them.

    Columns that are listed keep their names and data. Raises: InvalidRequest, naming the column,
    for what the table's files do not allow; otherwise as `alter`.
    """
    target, live_keys = opened(client, place, request)
    metadata = replace_columns(live_keys.metadata, live_keys.protocol, columns)
    if metadata == live_keys.metadata:
        return None
    listed = orjson.dumps(orjson.loads(format_schema(columns))["fields"]).decode()
    operation = Operation(name="REPLACE COLUMNS", parameters={"columns": listed})
    stamp = stamp_for(client, request)
    proposal = proposal_builders.change_metadata(target, stamp, operation, metadata)
    return result(client.propose(proposal, request.timeout_s))


def move(
    client: Client,
    place: TableLocation,
    path: Sequence[str],
    position: FieldPosition,
    request: WriteRequest,
) -> Outcome | None:
    """Propose another position of a column, and return the outcome, or None if it has it.

    It writes the whole metadata, so it conflicts with each other change of it. Raises: as `alter`.
    """
    target, live_keys = opened(client, place, request)
    metadata = move_column(live_keys.metadata, path, position)
    if metadata == live_keys.metadata:
        return None
    position_json = {"position": "first" if position.is_first else f"after {position.after}"}
    parameters = {"column": orjson.dumps({"name": ".".join(path)} | position_json).decode()}
    operation = Operation(name="CHANGE COLUMN", parameters=parameters)
    stamp = stamp_for(client, request)
    proposal = proposal_builders.change_metadata(target, stamp, operation, metadata)
    return result(client.propose(proposal, request.timeout_s))


def opened(
    client: Client, place: TableLocation, request: WriteRequest
) -> tuple[proposal_builders.Target, LiveKeys]:
    """Return a registered table as the target of a proposal, and what its log says of it."""
    record = client.require(place.root, request.timeout_s)
    live_keys = open_keys(store_for(place))
    check_writable(live_keys.protocol, live_keys.metadata, place.root)
    version = int(live_keys.version)
    return proposal_builders.Target(
        record.table, record.table_root, version, live_keys.metadata.id
    ), live_keys


def operation_of(changes: Sequence[PatchChange]) -> str:
    """Return the operation name of a commit with these changes."""
    names = {NAMES.get(patch_change.op, "CHANGE COLUMN") for patch_change in changes}
    return names.pop() if len(names) == 1 else SEVERAL


def change(**fields: Any) -> PatchChange:
    """Return a change with the given fields. Raises: InvalidRequest (`BadChange`)."""
    try:
        return _CHANGE.validate_python(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in (fields.get("op"), *first["loc"]))
        raise _bad(f"the change {place}: {first['msg']}") from error


def new_column(
    field: StructField, parent: Sequence[str] = (), place: FieldPosition = LAST
) -> PatchChange:
    """Return the change that adds a column, or a field of the struct at `parent`."""
    [plain] = orjson.loads(format_schema(StructType((field,))))["fields"]
    position = {"first": place.is_first, "after": place.after}
    return change(op="add_column", column=plain, parent=tuple(parent), **position)


def column_from(text: str) -> PatchChange:
    """Return the change that adds a column, given as `name type` or `parent.name type`.

    Raises: InvalidRequest (`BadChange`); UnsupportedFeature, for an unknown type.
    """
    path, kind = _name_and_type(text)
    column = {"name": path[-1], "type": kind, "nullable": True, "metadata": {}}
    return change(op="add_column", column=column, parent=path[:-1])


def schema_from(text: str) -> StructType:
    """Return the columns of a schema, `name type, name type`. Raises: as `column_from`."""
    parts, depth, start = [], 0, 0
    for index, sign in enumerate(text):
        depth += (sign in "([{<") - (sign in ")]}>")
        if sign == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    return columns_from([part.strip() for part in (*parts, text[start:])])


def columns_from(texts: Sequence[str]) -> StructType:
    """Return columns that are each given as `name type`. Raises: as `column_from`."""
    fields = []
    for text in texts:
        path, kind = _name_and_type(text)
        if len(path) > 1:
            raise _bad(f"{text!r} names a field of a struct: list the column with its whole type")
        fields.append({"name": path[0], "type": kind, "nullable": True, "metadata": {}})
    return parse_schema(orjson.dumps({"type": "struct", "fields": fields}).decode())


def type_from(text: str) -> PatchChange:
    """Return the change that widens a column, given as `name type`. Raises: as `column_from`."""
    path, kind = _name_and_type(text)
    return change(op="change_type", path=path, type=kind)


def path_from(text: str) -> tuple[str, ...]:
    """Return the path of one column; names in backticks may hold any character.

    Raises: InvalidRequest (`BadChange`).
    """
    try:
        [path] = column_list(text)
    except ValueError as error:
        raise _bad(f"{text!r} names no column: write name or parent.name") from error
    return path


def pair_from(text: str) -> tuple[str, str]:
    """Return the two sides of `left=right`. Raises: InvalidRequest (`BadChange`)."""
    left, sign, right = text.partition("=")
    if not (sign and left.strip()):
        raise _bad(f"{text!r} has no two sides: write left=right")
    return left.strip(), right


def _name_and_type(text: str) -> tuple[tuple[str, ...], Any]:
    match = _NAMED.fullmatch(text)
    if match is None:
        raise _bad(f"{text!r} is no column with a type: write 'name type'")
    return path_from(match[1]), _type_of(match[2])


def _type_of(text: str) -> Any:
    """Return a type in its `schemaString` form; a type with fields or elements is given as JSON."""
    if text.startswith(("{", '"')):
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise _bad(f"the type {text!r} is no JSON: {error}") from error
    name = "".join(text.lower().split())
    name = _SQL_NAMES.get(name, name)
    try:
        return str(parse_type(name))
    except ValueError as error:
        raise _bad(f"the type {text!r}: {error}") from error


def _bad(message: str) -> InvalidRequest:
    return InvalidRequest(f"{message}; nothing was proposed", error_class="BadChange")


CountViolations = Callable[[int], int]
"""Returns how many rows of a version do not satisfy the constraint."""


def add_constraint(
    client: Client,
    place: TableLocation,
    name: str,
    expression: str,
    violations: CountViolations,
    request: WriteRequest,
) -> Outcome:
    """Propose a CHECK constraint, after counting the rows that violate it, and return the outcome.

    Rows that others add meanwhile make it conflict, unless they were held to it.
    Raises: InvalidRequest, for a name that is taken, or rows that violate it; Rejected;
    OutcomeUnknown; UnsupportedFeature; Unavailable.
    """
    target, live_keys = opened(client, place, request)
    metadata = add_check(live_keys.metadata, name, expression)
    wrong = violations(target.read_version)
    if wrong:
        raise InvalidRequest(
            f"{wrong} rows of {place.root} violate the new CHECK constraint {name!r} "
            f"({expression}): correct or delete them first; nothing was proposed",
            error_class="DELTA_NEW_CHECK_CONSTRAINT_VIOLATION",
        )
    old_definition = Definition(live_keys.metadata, live_keys.protocol)
    new_definition = resolve_definition(old_definition, metadata).definition
    constraint_hashes = hashes(
        expressions(requirements(new_definition.metadata, new_definition.protocol))
    )
    operation = Operation(name="ADD CONSTRAINT", parameters={"name": name, "expr": expression})
    key = f"{PREFIX}{name.lower()}"
    patch = MetadataPatch(changes=(change(op="set_property", key=key, value=expression),))
    body = proposal_builders.Body(operation, reads=proposal_builders.WHOLE_TABLE, patch=patch)
    proposal = proposal_builders.of_body("commit", target, stamp_for(client, request), body)
    proposal = with_attestation(proposal, Attestation(tuple(constraint_hashes)))
    return result(client.propose(proposal, request.timeout_s))


def drop_constraint(
    client: Client, place: TableLocation, name: str, request: WriteRequest
) -> Outcome:
    """Propose to drop a CHECK constraint, and return the outcome. Raises: as `add_constraint`."""
    target, live_keys = opened(client, place, request)
    key = next(
        (
            key
            for key in live_keys.metadata.configuration
            if key.lower() == f"{PREFIX}{name}".lower()
        ),
        None,
    )
    if key is None:
        names = [constraint.name for constraint in checks(live_keys.metadata)]
        raise InvalidRequest(
            f"there is no CHECK constraint {name!r}; there are: {', '.join(names) or 'none'}; "
            "nothing was proposed",
            error_class="DELTA_CONSTRAINT_DOES_NOT_EXIST",
        )
    patch = MetadataPatch(changes=(change(op="unset_property", key=key),))
    parameters = {"name": name, "expr": live_keys.metadata.configuration[key]}
    operation = Operation(name="DROP CONSTRAINT", parameters=dict(parameters))
    body = proposal_builders.Body(operation, reads=proposal_builders.NOTHING, patch=patch)
    proposal = proposal_builders.of_body("commit", target, stamp_for(client, request), body)
    return result(client.propose(proposal, request.timeout_s))

"""`tidegate table create` and `alter`: a table's definition."""

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

import typer

from tidegate_messages.metadata_patch import PatchChange
from tidegate_messages.outcome import Outcome
from tidegate_producers.cli.output import outcome_result
from tidegate_producers.cli.restore_command import moment_from
from tidegate_producers.cli.table_place import (
    TableArgument,
    Timeout,
    Uri,
    client_of,
    location_of,
    root_of,
)
from tidegate_producers.options import TableLocation, WriteOptions
from tidegate_producers.writing.alter_table import (
    change,
    column_from,
    columns_from,
    pair_from,
    path_from,
    replace,
    schema_from,
    type_from,
)
from tidegate_producers.writing.drop_feature import Dropping
from tidegate_producers.writing.drop_feature import drop_feature as drop
from tidegate_producers.writing.optimize import compact_here
from tidegate_producers.writing.restore import RestorePoint
from tidegate_producers.writing.row_tracking_switch import alter_prepared
from tidegate_producers.writing.shallow_clone import CloneRequest, clone
from tidegate_producers.writing.table_write import WriteRequest, commit, creating, creation
from tidegate_runtime.cli.command import Result, command
from tidegate_runtime.client.client import TIMEOUT_S
from tidegate_runtime.service.settings import ServiceSettings

Many = list[str] | None
AddColumns = Annotated[
    Many,
    typer.Option("--add-column", help="Add a column: 'name type'; write a nested type as JSON."),
]
Gone = Annotated[Many, typer.Option("--drop-column", help="Drop a column.")]
Renamed = Annotated[Many, typer.Option("--rename-column", help="Rename a column: old=new.")]
Types = Annotated[Many, typer.Option("--widen", help="Widen a column's type: 'name type'.")]
Nulls = Annotated[Many, typer.Option("--allow-nulls", help="Let a column hold nulls.")]
Comments = Annotated[
    Many,
    typer.Option("--comment", help="Set a column's comment: column=text; column= removes it."),
]
Defaults = Annotated[
    Many,
    typer.Option("--default", help="Set a column's default: column=SQL; column= removes it."),
]
Properties = Annotated[Many, typer.Option("--property", help="Set a table property: key=value.")]
Unset = Annotated[Many, typer.Option("--unset", help="Remove a table property.")]
Replaced = Annotated[
    Many,
    typer.Option(
        "--replace-columns",
        help="List all columns again, each as 'name type'; they may be added or left out.",
    ),
]
DroppedFeature = Annotated[
    str | None,
    typer.Option(
        "--drop-feature",
        help="Take every trace of a feature, such as deletionVectors, out of the table; drop it.",
    ),
]
Truncates = Annotated[
    bool,
    typer.Option(
        "--truncate-history",
        help="Drop the feature without protection of old checkpoints, once none needs it.",
    ),
]


@command()
def create_table(  # noqa: PLR0913 - each is an option of the command
    settings: ServiceSettings,
    uri: Uri,
    schema: Annotated[
        str | None,
        typer.Option(help="Columns and types: 'id bigint, name string, price decimal(10,2)'."),
    ] = None,
    partition_by: Annotated[
        Many, typer.Option("--partition-by", help="Partition by this column. Repeatable.")
    ] = None,
    property_: Properties = None,
    clone_of: Annotated[
        str | None,
        typer.Option(help="Make it a shallow clone of this table: a root, or a registered name."),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(help="Clone this version, or that of a time in UTC: 2024-02-29 12:00:00."),
    ] = None,
    replace_table: Annotated[
        bool, typer.Option("--replace", help="Make a table that is there the clone.")
    ] = False,
    name: Annotated[str | None, typer.Option(help="The name to register the table by.")] = None,
    timeout: Timeout = TIMEOUT_S,
) -> Result:
    """Create an empty table, or a shallow clone of another one, and register it.

    Types are Spark's names; write a struct, array or map as JSON, as in Delta's schemaString. A
    clone is a table of its own that begins with the files of another one. They stay where they
    are; a vacuum of the source may take them.
    """
    if (schema is None) == (clone_of is None):
        raise typer.BadParameter("give one of the two", param_hint="--schema, --clone-of")
    if schema is None and (partition_by or property_):
        raise typer.BadParameter("a clone has its source's partitioning and properties")
    if clone_of is None and (at is not None or replace_table):
        raise typer.BadParameter("they go with --clone-of", param_hint="--at, --replace")
    place = TableLocation(root_of(uri), settings.storage)
    options = WriteOptions(place, settings.kafka, name=name, outcome_timeout_s=timeout)
    if clone_of is not None:
        moment = moment_from(at, "--at") if at else RestorePoint()
        request = CloneRequest(location_of(clone_of, settings), moment, replace_table)
        with client_of(settings) as client:
            outcome = clone(client, options, request)
        return outcome_result(outcome, f"{place.root} is a clone in version {outcome.version}")
    assert schema is not None, "one of the two is given"
    return _created(settings, options, schema, partition_by or (), property_ or ())


def _created(
    settings: ServiceSettings,
    options: WriteOptions,
    schema: str,
    partition_by: Sequence[str],
    properties: Sequence[str],
) -> Result:
    place, columns = options.place, schema_from(schema)
    with client_of(settings) as client:
        table_creation = creation(
            client, columns, tuple(partition_by), options, dict(map(pair_from, properties))
        )
        outcome = commit(client, creating(table_creation, place), (), WriteRequest.of(options))
    assert outcome is not None, "a creation is proposed, empty or not"
    made_as = f"table {outcome.table}, version {outcome.version}"
    return outcome_result(outcome, f"{place.root} is created: {made_as}")


@command()
def alter_table(  # noqa: PLR0913 - each is an option of the command
    settings: ServiceSettings,
    table: TableArgument,
    add_column: AddColumns = None,
    drop_column: Gone = None,
    rename_column: Renamed = None,
    widen: Types = None,
    allow_nulls: Nulls = None,
    comment: Comments = None,
    default: Defaults = None,
    property_: Properties = None,
    unset: Unset = None,
    replace_columns: Replaced = None,
    drop_feature: DroppedFeature = None,
    truncate_history: Truncates = False,
    timeout: Timeout = TIMEOUT_S,
) -> Result:
    """Change a table's columns, properties or features.

    It conflicts only with concurrent changes of the same columns or properties. Changes are made in
    the order of the options below, each of which may be given several times. A field of a struct is
    parent.name; put names with dots, blanks or signs in backticks.

    --replace-columns and --drop-feature are each given alone. Columns that are listed keep their
    data, and the files stay as they are; leaving one out needs column mapping. To drop a feature
    this process writes files anew where the feature asks for it; for large tables use
    Table.dropFeatureSupport, which uses Spark's executors. Run it again if it was interrupted.
    """
    changes = [
        *map(column_from, add_column or ()),
        *_changes_from(drop_column, lambda text: {"op": "drop_column", "path": path_from(text)}),
        *_changes_from(rename_column, _renamed),
        *map(type_from, widen or ()),
        *_changes_from(allow_nulls, lambda text: {"op": "allow_nulls", "path": path_from(text)}),
        *_changes_from(comment, _commented),
        *_changes_from(default, _defaulted),
        *_changes_from(property_, _property),
        *_changes_from(unset, lambda text: {"op": "unset_property", "key": text}),
    ]
    _check_alone(changes, replace_columns, drop_feature, truncates_history=truncate_history)
    request, columns = WriteRequest(timeout), columns_from(replace_columns or ())
    with client_of(settings) as client:
        place = TableLocation(client.require(table, timeout).table_root, settings.storage)
        if drop_feature is not None:
            dropping = Dropping(client, place, request, compact_here)
            dropped = drop(dropping, drop_feature, truncates_history=truncate_history)
            text = f"{table} has no {drop_feature} from version {dropped.version} on"
            return outcome_result(dropped, text)
        outcome: Outcome | None
        if replace_columns:
            outcome = replace(client, place, columns, request)
        else:
            outcome = alter_prepared(client, place, changes, request)
    if outcome is None:
        return Result({}, [f"{table} has these columns; nothing was proposed"])
    return outcome_result(outcome, f"{table} is altered in version {outcome.version}")


def _check_alone(
    changes: Sequence[PatchChange],
    columns: Many,
    feature: str | None,
    *,
    truncates_history: bool,
) -> None:
    """Check that one kind of change is asked for. Raises: BadParameter."""
    if sum((bool(changes), bool(columns), feature is not None)) > 1:
        raise typer.BadParameter(
            "each is given alone: run the others before it or after it",
            param_hint="--replace-columns, --drop-feature",
        )
    if truncates_history and feature is None:
        raise typer.BadParameter("it goes with --drop-feature", param_hint="--truncate-history")


def _changes_from(texts: Many, parse: Callable[[str], dict[str, Any]]) -> Iterator[PatchChange]:
    return (change(**parse(text)) for text in texts or ())


def _renamed(text: str) -> dict[str, Any]:
    old, new = pair_from(text)
    return {"op": "rename_column", "path": path_from(old), "name": new}


def _commented(text: str) -> dict[str, Any]:
    column, comment = pair_from(text)
    return {"op": "comment_on", "path": path_from(column), "comment": comment or None}


def _defaulted(text: str) -> dict[str, Any]:
    column, expression = pair_from(text)
    return {"op": "set_default", "column": column, "expression": expression or None}


def _property(text: str) -> dict[str, Any]:
    key, value = pair_from(text)
    return {"op": "set_property", "key": key, "value": value}

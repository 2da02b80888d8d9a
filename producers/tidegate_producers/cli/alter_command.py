"""`tidegate table create`, `alter`, `replace-columns` and `drop-feature`: a table's definition."""

from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer

from tidegate_messages.metadata_patch import PatchChange
from tidegate_producers.cached_clients import CLIENT_ID
from tidegate_producers.cli.output import OUT
from tidegate_producers.cli.registration_commands import TableArgument, Timeout
from tidegate_producers.cli.row_commands import Uri, root_of
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
from tidegate_producers.writing.drop_feature import Dropping, drop_feature
from tidegate_producers.writing.optimize import compact_here
from tidegate_producers.writing.row_tracking import alter_prepared
from tidegate_producers.writing.table_write import WriteRequest, commit, creating, creation
from tidegate_runtime.cli.service_command import Config, Json, Set, errors_as_exit_status, loaded
from tidegate_runtime.client.client import TIMEOUT_S, Client
from tidegate_runtime.kafka.confluent_bus import KafkaBus
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


def create_table(  # noqa: PLR0913 - each is an option of the command
    uri: Uri,
    schema: Annotated[
        str, typer.Option(help="Columns and types: 'id bigint, name string, price decimal(10,2)'.")
    ],
    partition_by: Annotated[
        Many, typer.Option("--partition-by", help="Partition by this column. Repeatable.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="The name to register the table by.")] = None,
    property_: Properties = None,
    timeout: Timeout = TIMEOUT_S,
    config: Config = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Create an empty table and register it.

    Types are Spark's names; write a struct, array or map as JSON, as in Delta's schemaString.
    """
    settings = loaded(ServiceSettings, config, set_)
    with errors_as_exit_status():
        place = TableLocation(root_of(uri), settings.storage)
        options = WriteOptions(place, settings.kafka, name=name, outcome_timeout_s=timeout)
        properties = dict(map(pair_from, property_ or ()))
        with Client(KafkaBus(settings.kafka, CLIENT_ID), settings.kafka.topics) as client:
            table_creation = creation(
                client, schema_from(schema), tuple(partition_by or ()), options, properties
            )
            outcome = commit(client, creating(table_creation, place), (), WriteRequest.of(options))
    assert outcome is not None, "a creation is proposed, empty or not"
    if as_json:
        OUT.print_json(outcome.model_dump_json(exclude_none=True))
    else:
        made_as = f"table {outcome.table}, version {outcome.version}"
        OUT.print(f"{place.root} is created: {made_as}", soft_wrap=True)


def alter_table(  # noqa: PLR0913 - each is an option of the command
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
    timeout: Timeout = TIMEOUT_S,
    config: Config = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Change a table's columns and properties.

    It conflicts only with concurrent changes of the same columns or properties. Changes are made in
    the order of the options below, each of which may be given several times. A field of a struct is
    parent.name; put names with dots, blanks or signs in backticks.
    """
    settings = loaded(ServiceSettings, config, set_)
    with errors_as_exit_status():
        changes = [
            *map(column_from, add_column or ()),
            *_changes_from(
                drop_column, lambda text: {"op": "drop_column", "path": path_from(text)}
            ),
            *_changes_from(rename_column, _renamed),
            *map(type_from, widen or ()),
            *_changes_from(
                allow_nulls, lambda text: {"op": "allow_nulls", "path": path_from(text)}
            ),
            *_changes_from(comment, _commented),
            *_changes_from(default, _defaulted),
            *_changes_from(property_, _property),
            *_changes_from(unset, lambda text: {"op": "unset_property", "key": text}),
        ]
        with Client(KafkaBus(settings.kafka, CLIENT_ID), settings.kafka.topics) as client:
            place = TableLocation(client.require(table, timeout).table_root, settings.storage)
            outcome = alter_prepared(client, place, changes, WriteRequest(timeout))
    if as_json:
        OUT.print_json(outcome.model_dump_json(exclude_none=True))
    else:
        OUT.print(f"{table} is altered in version {outcome.version}", soft_wrap=True)


Columns = Annotated[list[str], typer.Argument(help="All columns, each as 'name type'.")]


def replace_columns(
    table: TableArgument,
    columns: Columns,
    timeout: Timeout = TIMEOUT_S,
    config: Config = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """List all columns of a table again, in order; columns may be added or dropped.

    Dropping needs column mapping. The files stay as they are.
    """
    settings = loaded(ServiceSettings, config, set_)
    with errors_as_exit_status():
        new_columns = columns_from(columns)
        with Client(KafkaBus(settings.kafka, CLIENT_ID), settings.kafka.topics) as client:
            place = TableLocation(client.require(table, timeout).table_root, settings.storage)
            outcome = replace(client, place, new_columns, WriteRequest(timeout))
    if as_json:
        OUT.print_json(outcome.model_dump_json(exclude_none=True) if outcome else "{}")
    elif outcome is None:
        OUT.print(f"{table} has these columns; nothing was proposed", soft_wrap=True)
    else:
        OUT.print(f"{table} is altered in version {outcome.version}", soft_wrap=True)


def drop_table_feature(  # noqa: PLR0913 - each is an option of the command
    table: TableArgument,
    feature: Annotated[str, typer.Argument(help="The feature's name, such as deletionVectors.")],
    truncate_history: Annotated[
        bool,
        typer.Option(help="Drop it without protection of old checkpoints, once none needs it."),
    ] = False,
    timeout: Timeout = TIMEOUT_S,
    config: Config = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Take every trace of a feature out of a table, then drop the feature.

    Files are written anew by this process where the feature asks for it; for large tables use
    Table.dropFeatureSupport, which uses Spark's executors. Run it again if it was interrupted.
    """
    settings = loaded(ServiceSettings, config, set_)
    bus, topics = KafkaBus(settings.kafka, CLIENT_ID), settings.kafka.topics
    with errors_as_exit_status(), Client(bus, topics) as client:
        place = TableLocation(client.require(table, timeout).table_root, settings.storage)
        dropping = Dropping(client, place, WriteRequest(timeout), compact_here)
        outcome = drop_feature(dropping, feature, truncates_history=truncate_history)
    if as_json:
        OUT.print_json(outcome.model_dump_json(exclude_none=True))
    else:
        OUT.print(f"{table} has no {feature} from version {outcome.version} on", soft_wrap=True)


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

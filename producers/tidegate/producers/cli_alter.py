"""`tidegate table alter`: change a table's columns and properties."""

from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer

from tidegate.pipeline.metadata_patch import Change
from tidegate.producers.altering import (
    alter,
    change,
    column_from,
    pair_from,
    path_from,
    type_from,
)
from tidegate.producers.cli_shown import OUT
from tidegate.producers.cli_standing import Table, Timeout
from tidegate.producers.client import TIMEOUT_S, Client
from tidegate.producers.connection import CLIENT_ID
from tidegate.producers.options import Place
from tidegate.producers.writing import Saying
from tidegate.runtime.cli.service import Config, Json, Set, errors_told, loaded
from tidegate.runtime.kafka.bus import KafkaBus
from tidegate.runtime.settings import ServiceSettings

Many = list[str] | None
Columns = Annotated[
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


def alter_table(  # noqa: PLR0913 - each is an option of the command
    table: Table,
    add_column: Columns = None,
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

    It conflicts only with changes of the same columns or properties that others make meanwhile.
    Changes are made in the order of the options below, each of which may be given several times.
    A field of a struct is parent.name; put names with dots, blanks or signs in backticks.
    """
    settings = loaded(ServiceSettings, config, set_)
    with errors_told():
        changes = [
            *map(column_from, add_column or ()),
            *_each(drop_column, lambda text: {"op": "drop_column", "path": path_from(text)}),
            *_each(rename_column, _renamed),
            *map(type_from, widen or ()),
            *_each(allow_nulls, lambda text: {"op": "allow_nulls", "path": path_from(text)}),
            *_each(comment, _commented),
            *_each(default, _defaulted),
            *_each(property_, _property),
            *_each(unset, lambda text: {"op": "unset_property", "key": text}),
        ]
        with Client(KafkaBus(settings.kafka, CLIENT_ID), settings.kafka.topics) as client:
            place = Place(client.require(table, timeout).table_root, settings.storage)
            outcome = alter(client, place, changes, Saying(timeout))
    if as_json:
        OUT.print_json(outcome.model_dump_json(exclude_none=True))
    else:
        OUT.print(f"{table} is altered in version {outcome.version}", soft_wrap=True)


def _each(texts: Many, told: Callable[[str], dict[str, Any]]) -> Iterator[Change]:
    return (change(**told(text)) for text in texts or ())


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

"""`tidegate up` and `tidegate down`: Kafka and every service on this machine, to try Tidegate."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.table import Table

from tidegate_local.kafka_commands import PORT_MAX
from tidegate_local.local_stack import (
    SERVICES,
    LocalStack,
    StackSettings,
    StackState,
    read_state,
    start_ended,
    state_folder,
    stop_detached,
)
from tidegate_runtime.cli.config_commands import kind_of
from tidegate_runtime.cli.console import console
from tidegate_runtime.cli.service_command import (
    Config,
    Json,
    Set,
    errors_as_exit_status,
    loaded,
    overrides,
)
from tidegate_runtime.service.settings import ServiceSettings

ANY_LOCAL_ROOT: Final = "file:///"
_PORT: Final = 9092
_OUT: Final = console()
_PROGRESS: Final = console(stderr=True)

Folder = Annotated[
    Path | None,
    typer.Option("--folder", help="Where Kafka's data, logs and state are kept.", metavar="PATH"),
]


up_app = typer.Typer(add_completion=False)
down_app = typer.Typer(add_completion=False)


@up_app.command()
def up(
    folder: Folder = None,
    port: Annotated[
        int, typer.Option(help="Kafka's port; 0 takes a free one.", min=0, max=PORT_MAX)
    ] = _PORT,
    root: Annotated[
        list[str] | None,
        typer.Option(help="Root under which tables may lie; default: any local one. Repeatable."),
    ] = None,
    config: Config = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Start Kafka, its topics and every service in the background; `tidegate down` stops them.

    Of a folder from which some still run, the others are started again, as they were started.
    If KAFKA_BOOTSTRAP_SERVERS or `kafka.bootstrap_servers` is set, no Kafka is started.
    """
    stack_folder = folder or state_folder()
    with errors_as_exit_status():
        state = read_state(stack_folder)
        if state is not None and state.running():
            _go_on(state, stack_folder, as_json=as_json)
            return
        service_settings = loaded(ServiceSettings, config, [p for p in set_ or () if _is_shared(p)])
        elsewhere = (
            service_settings.kafka.bootstrap_servers != ServiceSettings().kafka.bootstrap_servers
        )
        roots = [_spelled(uri) for uri in root or [ANY_LOCAL_ROOT]]
        for service in SERVICES:  # check the settings before starting Kafka
            pairs = [f"committer.roots={json.dumps(roots)}", *(set_ or ())]
            loaded(kind_of(service.replace("_", "-")), config, pairs)
        settings = StackSettings(
            folder=stack_folder.absolute(),
            roots=roots,
            port=port,
            kafka=service_settings.kafka if elsewhere else None,
            embedded=service_settings.kafka,
            config=config.absolute() if config else None,
            detached=True,
            overrides=overrides(set_ or ()),
        )
        LocalStack(settings, _tell).start()
        started = read_state(stack_folder)
        assert started is not None, "a detached stack leaves its state"
        _show(started, stack_folder, as_json=as_json)


@down_app.command()
def down(folder: Folder = None, as_json: Json = False) -> None:
    """Stop what `tidegate up` started; data, logs and tables stay."""
    stack_folder = folder or state_folder()
    with errors_as_exit_status():
        ended = stop_detached(stack_folder, _tell)
    if as_json:
        _OUT.print_json(data={"ended": ended})
    else:
        _OUT.print(f"ended: {', '.join(ended)}" if ended else f"nothing runs from {stack_folder}")


def _go_on(state: StackState, folder: Path, *, as_json: bool) -> None:
    if len(state.running()) < len(state.processes):
        state = start_ended(folder.absolute(), state, _tell)
    _show(state, folder, as_json=as_json)


def _show(state: StackState, folder: Path, *, as_json: bool) -> None:
    if as_json:
        shown = asdict(state)
        for process in shown["processes"]:
            # It may hold passwords that were given by --set.
            del process["argv"]
        _OUT.print_json(json.dumps({"folder": str(folder), **shown}))
        return
    table = Table(box=None, pad_edge=False)
    for title in ("service", "pid", "probes", "log"):
        table.add_column(title, overflow="fold")
    for process in state.processes:
        table.add_row(
            process.name, str(process.pid), process.address or state.bootstrap_servers, process.log
        )
    _OUT.print(table)
    down_with = "" if folder == state_folder() else f" --folder {folder}"
    _OUT.print(f"tables may lie under {', '.join(state.roots)}; `tidegate down{down_with}` ends it")
    if state.bootstrap_servers != ServiceSettings().kafka.bootstrap_servers:
        _OUT.print(
            f"other verbs find it by: export KAFKA_BOOTSTRAP_SERVERS={state.bootstrap_servers}"
        )


def _spelled(root: str) -> str:
    """Return a root as an absolute path or URI: services run in another working folder."""
    return root if "://" in root or root.startswith("file:/") else str(Path(root).absolute())


def _is_shared(pair: str) -> bool:
    """Return whether a setting applies to all services."""
    return pair.partition(".")[0] in ServiceSettings.model_fields


def _tell(line: str) -> None:
    _PROGRESS.print(line)

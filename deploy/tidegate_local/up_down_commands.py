"""`tidegate up` and `tidegate down`: Kafka and every service on this machine, to try Tidegate."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.table import Table

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
from tidegate_runtime.cli.command import (
    OUT,
    Config,
    Result,
    Set,
    command,
    console,
    loaded,
    overrides,
)
from tidegate_runtime.cli.commands import kind_of
from tidegate_runtime.service.settings import ServiceSettings

ANY_LOCAL_ROOT: Final = "file:///"
_PORT: Final = 9092
_PORT_MAX: Final = 65_535
_PROGRESS: Final = console(stderr=True)

Folder = Annotated[
    Path | None,
    typer.Option("--folder", help="Where Kafka's data, logs and state are kept.", metavar="PATH"),
]


up_app = typer.Typer(add_completion=False)
down_app = typer.Typer(add_completion=False)


@up_app.command()
@command(None)
def up(
    folder: Folder = None,
    port: Annotated[
        int, typer.Option(help="Kafka's port; 0 takes a free one.", min=0, max=_PORT_MAX)
    ] = _PORT,
    root: Annotated[
        list[str] | None,
        typer.Option(help="Root under which tables may lie; default: any local one. Repeatable."),
    ] = None,
    config: Config = None,
    set_: Set = None,
) -> Result:
    """Start Kafka, its topics and every service in the background; `tidegate down` stops them.

    Of a folder from which some still run, the others are started again, as they were started.
    If KAFKA_BOOTSTRAP_SERVERS or `kafka.bootstrap_servers` is set, no Kafka is started.
    """
    stack_folder = folder or state_folder()
    state = read_state(stack_folder)
    if state is not None and state.running():
        if len(state.running()) < len(state.processes):
            state = start_ended(stack_folder.absolute(), state, _tell)
        return _shown(state, stack_folder)
    service_settings = loaded(ServiceSettings, config, [p for p in set_ or () if _is_shared(p)])
    elsewhere = (
        service_settings.kafka.bootstrap_servers != ServiceSettings().kafka.bootstrap_servers
    )
    roots = [_spelled(uri) for uri in root or [ANY_LOCAL_ROOT]]
    for service in SERVICES.values():  # check the settings before starting Kafka
        pairs = [f"committer.roots={json.dumps(roots)}", *(set_ or ())]
        loaded(kind_of(service), config, pairs)
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
    return _shown(started, stack_folder)


@down_app.command()
@command(None)
def down(folder: Folder = None) -> Result:
    """Stop what `tidegate up` started; data, logs and tables stay."""
    stack_folder = folder or state_folder()
    ended = stop_detached(stack_folder, _tell)
    text = f"ended: {', '.join(ended)}" if ended else f"nothing runs from {stack_folder}"
    return Result({"ended": ended}, [text])


def _shown(state: StackState, folder: Path) -> Result:
    data = asdict(state)
    for process in data["processes"]:
        # It may hold passwords that were given by --set.
        del process["argv"]
    return Result({"folder": str(folder), **data}, lambda: _print(state, folder))


def _print(state: StackState, folder: Path) -> None:
    table = Table(box=None, pad_edge=False)
    for title in ("service", "pid", "probes", "log"):
        table.add_column(title, overflow="fold")
    for process in state.processes:
        table.add_row(
            process.name, str(process.pid), process.address or state.bootstrap_servers, process.log
        )
    OUT.print(table)
    down_with = "" if folder == state_folder() else f" --folder {folder}"
    OUT.print(f"tables may lie under {', '.join(state.roots)}; `tidegate down{down_with}` ends it")
    if state.bootstrap_servers != ServiceSettings().kafka.bootstrap_servers:
        OUT.print(
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

"""`tidegate kafka`: the embedded broker alone."""

import threading
from pathlib import Path
from typing import Annotated, Final

import typer

from tidegate_delta.errors import Unavailable
from tidegate_local.embedded_kafka import EmbeddedKafka
from tidegate_local.local_stack import state_folder
from tidegate_runtime.cli.console import console
from tidegate_runtime.cli.service_command import errors_as_exit_status
from tidegate_runtime.service.runner import stop_on_signals

PORT_MAX: Final = 65_535
_OUT: Final = console()
_PROGRESS: Final = console(stderr=True)

app = typer.Typer(add_completion=False)


@app.command()
def kafka(
    folder: Annotated[
        Path | None, typer.Option(help="Where the broker keeps its data.", metavar="PATH")
    ] = None,
    port: Annotated[
        int, typer.Option(help="The broker's port; 0 takes a free one.", min=0, max=PORT_MAX)
    ] = 9092,
) -> None:
    """Run the embedded Kafka in the foreground, until Ctrl-C or SIGTERM."""
    broker = EmbeddedKafka(folder or state_folder() / "kafka", port)
    stopping = threading.Event()
    with errors_as_exit_status(), stop_on_signals(stopping):
        broker.start(_PROGRESS.print)
        try:
            _OUT.print(f"Kafka answers on {broker.bootstrap}; Ctrl-C ends it")
            while not stopping.wait(0.5):
                if not broker.child.is_alive():
                    raise Unavailable(f"Kafka ended; see {broker.child.log}")
        finally:
            broker.stop()

"""`tidegate console`: the operations page as a service."""

from importlib import import_module

from tidegate_console.web.settings import ConsoleSettings
from tidegate_delta.errors import Misconfigured
from tidegate_runtime.cli.command import service_app
from tidegate_runtime.service.runner import Running


def serve(settings: ConsoleSettings, running: Running) -> None:
    """Serve the operations page: tables, proposals, change streams and dead letters in a browser.

    It reads Kafka, and tables' logs. It changes nothing, unless `console.operator_token_location`
    names a file with the token by which operators sign in.
    """
    try:
        server = import_module("tidegate_console.web.server")
    except ModuleNotFoundError as error:
        raise Misconfigured(
            f"the operations page needs {error.name}: pip install 'tidegate[console]'"
        ) from error
    server.serve_pages(settings, running)


app = service_app("console", ConsoleSettings, serve)

if __name__ == "__main__":
    app()

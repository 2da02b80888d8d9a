"""Build the service from its settings and run it. `python -m tidegate_checkpointer --help`."""

import tidegate_runtime.service.without_pandas  # noqa: F401 - before what loads Arrow

# isort: split
from tidegate_checkpointer.service import Checkpointer
from tidegate_checkpointer.settings import CheckpointerSettings
from tidegate_runtime.cli.command import service_app
from tidegate_runtime.followers.commit_follower import run_follower
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.service.runner import Running


def serve(settings: CheckpointerSettings, running: Running) -> None:
    """Write checkpoints, log compactions and version checksums of every registered table."""
    checkpointer = Checkpointer(settings, KafkaBus(settings.kafka, Checkpointer.name), running)
    run_follower(checkpointer, settings, running)


app = service_app(Checkpointer.name, CheckpointerSettings, serve)

if __name__ == "__main__":
    app()

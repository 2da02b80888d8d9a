"""Wiring: settings -> doors -> service. `python -m tidegate.checkpointer --help`."""

from tidegate.checkpointer.service import Checkpointer
from tidegate.checkpointer.settings import CheckpointerSettings
from tidegate.runtime.cli.service import service_app
from tidegate.runtime.following.follower import run_follower
from tidegate.runtime.kafka.bus import KafkaBus
from tidegate.runtime.service import Running


def serve(settings: CheckpointerSettings, running: Running) -> None:
    """Write checkpoints, log compactions and version checksums of every registered table."""
    checkpointer = Checkpointer(settings, KafkaBus(settings.kafka, Checkpointer.name), running)
    run_follower(checkpointer, settings, running)


app = service_app(Checkpointer.name, CheckpointerSettings, serve)

if __name__ == "__main__":
    app()

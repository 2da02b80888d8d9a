"""Wiring: settings -> doors -> service. `python -m tidegate.cdc_publisher --help`."""

from tidegate.cdc_publisher.service import CdcPublisher
from tidegate.cdc_publisher.settings import CdcSettings
from tidegate.runtime.cli.service import service_app
from tidegate.runtime.following.follower import run_follower
from tidegate.runtime.kafka.bus import KafkaBus
from tidegate.runtime.service import Running


def serve(settings: CdcSettings, running: Running) -> None:
    """Publish the changes of every registered table, row by row, to a topic a table."""
    publisher = CdcPublisher(settings, KafkaBus(settings.kafka, CdcPublisher.name), running)
    try:
        run_follower(publisher, settings, running)
    finally:
        publisher.close()


app = service_app(CdcPublisher.name, CdcSettings, serve)

if __name__ == "__main__":
    app()

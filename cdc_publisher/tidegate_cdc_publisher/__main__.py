"""Build the service from its settings and run it. `python -m tidegate_cdc_publisher --help`."""

import tidegate_runtime.service.without_pandas  # noqa: F401 - before what loads Arrow

# isort: split
from tidegate_cdc_publisher.service import CdcPublisher
from tidegate_cdc_publisher.settings import CdcSettings
from tidegate_runtime.cli.command import service_app
from tidegate_runtime.followers.commit_follower import run_follower
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.service.runner import Running


def serve(settings: CdcSettings, running: Running) -> None:
    """Publish the row changes of every registered table, to one topic per table."""
    publisher = CdcPublisher(settings, KafkaBus(settings.kafka, CdcPublisher.name), running)
    try:
        run_follower(publisher, settings, running)
    finally:
        publisher.close()


app = service_app(CdcPublisher.name, CdcSettings, serve)

if __name__ == "__main__":
    app()

"""`tidegate topics`: the topics that the services need, on any Kafka."""

from typing import Final

import typer
from rich.table import Table

from tidegate_runtime.cli.console import console
from tidegate_runtime.cli.service_command import Config, Json, Set, errors_as_exit_status, loaded
from tidegate_runtime.kafka.topic_admin import create_topics, differing_topics, missing_topics
from tidegate_runtime.service.settings import ServiceSettings

_OUT: Final = console()

topics = typer.Typer(no_args_is_help=True, help="The topics that the services need.")


@topics.command()
def plan(config: Config = None, set_: Set = None, as_json: Json = False) -> None:
    """Show the topics that `apply` would create, and those that differ; change nothing."""
    settings = loaded(ServiceSettings, config, set_).kafka
    declared = settings.topics.declared()
    with errors_as_exit_status():
        missing = missing_topics(settings, declared)
        differing = differing_topics(settings, declared)
    if as_json:
        _OUT.print_json(
            data={"create": missing, "differing": [vars(difference) for difference in differing]}
        )
        return
    table = Table(box=None, pad_edge=False)
    for title in ("topic", "what", "declared", "found"):
        table.add_column(title, overflow="fold")
    for topic in declared:
        if topic.name in missing:
            table.add_row(topic.name, "create", f"{topic.partitions} partitions", "-")
    for difference in differing:
        table.add_row(difference.topic, difference.setting, difference.declared, difference.found)
    _OUT.print(table if missing or differing else f"all {len(declared)} topics are as declared")


@topics.command()
def apply(config: Config = None, set_: Set = None, as_json: Json = False) -> None:
    """Create the missing topics; existing ones are left as they are."""
    settings = loaded(ServiceSettings, config, set_).kafka
    with errors_as_exit_status():
        created = create_topics(settings, settings.topics.declared())
        differing = differing_topics(settings, settings.topics.declared())
    if as_json:
        _OUT.print_json(
            data={"created": created, "differing": [vars(difference) for difference in differing]}
        )
        return
    _OUT.print("\n".join(f"created {name}" for name in created) or "nothing to create")
    for difference in differing:
        _OUT.print(
            f"left as it is: {difference.topic} has {difference.setting} {difference.found}, "
            f"declared is {difference.declared}"
        )

"""`tidegate topics`: the topics that the services need, on any Kafka."""

import typer
from rich.table import Table

from tidegate_runtime.cli.command import OUT, Result, command
from tidegate_runtime.kafka.topic_admin import create_topics, differing_topics, missing_topics
from tidegate_runtime.service.settings import ServiceSettings

topics = typer.Typer(no_args_is_help=True, help="The topics that the services need.")


@topics.command()
@command()
def plan(settings: ServiceSettings) -> Result:
    """Show the topics that `apply` would create, and those that differ; change nothing."""
    declared = settings.kafka.topics.declared()
    missing = missing_topics(settings.kafka, declared)
    differing = differing_topics(settings.kafka, declared)
    table = Table(box=None, pad_edge=False)
    for title in ("topic", "what", "declared", "found"):
        table.add_column(title, overflow="fold")
    for topic in declared:
        if topic.name in missing:
            table.add_row(topic.name, "create", f"{topic.partitions} partitions", "-")
    for difference in differing:
        table.add_row(difference.topic, difference.setting, difference.declared, difference.found)
    shown = table if missing or differing else f"all {len(declared)} topics are as declared"
    data = {"create": missing, "differing": [vars(difference) for difference in differing]}
    return Result(data, lambda: OUT.print(shown))


@topics.command()
@command()
def apply(settings: ServiceSettings) -> Result:
    """Create the missing topics; existing ones are left as they are."""
    declared = settings.kafka.topics.declared()
    created = create_topics(settings.kafka, declared)
    differing = differing_topics(settings.kafka, declared)
    lines = [f"created {name}" for name in created] or ["nothing to create"]
    lines += [
        f"left as it is: {difference.topic} has {difference.setting} {difference.found}, "
        f"declared is {difference.declared}"
        for difference in differing
    ]
    data = {"created": created, "differing": [vars(difference) for difference in differing]}
    return Result(data, lines)

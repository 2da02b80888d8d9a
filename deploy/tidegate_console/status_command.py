"""`tidegate status`: services, tables, change streams and dead letters on one screen."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

import typer

from tidegate_console.overview import Attention, Overview, OverviewReader, ServiceState, attention
from tidegate_runtime.cli.command import Result, command
from tidegate_runtime.clock import instant
from tidegate_runtime.service.runner import EXIT_OK, EXIT_STOP
from tidegate_runtime.service.settings import ServiceSettings

_NAMES: Final = 14
"""Width of the column of names."""

app = typer.Typer(add_completion=False)


@app.command()
@command()
def status(settings: ServiceSettings) -> Result:
    """Show whether everything runs: services, tables, change streams, dead letters.

    It reads Kafka only, and changes nothing. Below the overview stands what needs attention, with
    what to do; `tidegate doctor` looks for causes.

    Exit status: 0 all is well; 3 somebody has to look; 4 the brokers do not answer.
    """
    overview = OverviewReader(settings.kafka).read()
    items = attention(overview)
    has_problem = any(item.level == "problem" for item in items)
    exit_status = EXIT_STOP if has_problem else EXIT_OK
    return Result(as_data(overview, items), lines(overview, items), exit_status)


def lines(overview: Overview, items: list[Attention]) -> Iterator[str]:
    """Yield the lines of the screen."""
    for name, fact in facts(overview).items():
        yield f"{name:<{_NAMES}} {fact}"
    yield ""
    if not items:
        yield "all is well"
    for item in items:
        yield f"{'!' if item.level == 'problem' else '-'} {item.about}: {item.what}"
        yield f"  do: {item.do} (docs/{item.guide})"


def facts(overview: Overview) -> dict[str, str]:
    """Return the state of each part in a few words."""
    states = Counter(table.status for table in overview.tables.values())
    streams = Counter(stream.state for stream in overview.streams)
    cluster, letters = overview.cluster, overview.letters
    size = ""
    if cluster is not None:
        size = f"cluster {cluster.cluster_id}, {_counted(len(cluster.brokers), 'broker')}, "
    newest = f", the newest of {instant(letters.newest[0].at_ms)} UTC" if letters.newest else ""
    return {
        "kafka": f"{overview.bootstrap_servers}: {size}topics {overview.topics.prefix}*",
        **{service: _service(state) for service, state in overview.services.items()},
        "tables": f"{len(overview.tables)}{_by_state(states)}",
        "set aside": str(sum(len(records) for records in overview.quarantined.values())),
        "change streams": f"{len(overview.streams)}{_by_state(streams)}",
        "dead letters": f"{letters.count}{newest}",
    }


def as_data(overview: Overview, items: list[Attention]) -> dict[str, Any]:
    """Return an overview as JSON values."""
    return {
        "at_ms": overview.at_ms,
        "kafka": {
            "bootstrap_servers": overview.bootstrap_servers,
            "topic_prefix": overview.topics.prefix,
            "cluster_id": overview.cluster.cluster_id if overview.cluster else None,
            "brokers": list(overview.cluster.brokers) if overview.cluster else None,
        },
        "services": {name: _service_data(state) for name, state in overview.services.items()},
        "tables": dict(Counter(table.status for table in overview.tables.values())),
        "set_aside": [
            record.model_dump(mode="json")
            for records in overview.quarantined.values()
            for record in records
        ],
        "streams": dict(Counter(stream.state for stream in overview.streams)),
        "dead_letters": overview.letters.count,
        "unread": dict(overview.unread),
        "attention": [asdict(item) for item in items],
    }


def _service(state: ServiceState) -> str:
    members = f"{len(state.active)} active, {len(state.standby)} standby"
    if not state.waiting:
        return f"{members}, nothing waits"
    age = "" if state.oldest_ms is None else f", the oldest for {state.oldest_ms / 1000:.1f} s"
    return f"{members}, {_counted(state.waiting, 'record')} waiting{age}"


def _service_data(state: ServiceState) -> dict[str, Any]:
    return {
        "active": len(state.active),
        "standby": len(state.standby),
        "topic_partitions": state.topic_partitions,
        "owned": state.owned,
        "waiting": state.waiting,
        "oldest_ms": state.oldest_ms,
        "members": [
            {
                "client_id": member.client_id,
                "host": member.host,
                "partitions": [str(topic_partition) for topic_partition in member.partitions],
            }
            for member in state.members
        ],
    }


def _by_state(counts: Counter[Any]) -> str:
    states = ", ".join(f"{count} {state}" for state, count in counts.most_common())
    return f": {states}" if states else ""


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count != 1 else ''}"

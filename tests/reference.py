"""Writes `docs/reference.md` from the code: commands, settings, topics, messages, refusals, errors.

Metrics come from the code, too, and alerts from the rules that the chart ships.

    python -m tests.reference          # prints the page; `make docs` writes it

`tests/house/test_reference.py` holds the page to the code.
"""

import sys
from collections.abc import Iterator
from typing import Any

import prometheus_client
from typer.core import TyperGroup

from tests.house import chart, test_commands, test_documents
from tidegate_delta import errors
from tidegate_messages.codec import FORMATS
from tidegate_messages.json_schemas import schema_of
from tidegate_messages.refusals import REFUSALS
from tidegate_messages.topics import Topics
from tidegate_runtime.observability import metrics

DAY_MS = 24 * 60 * 60 * 1000


def page() -> str:
    """Return the page."""
    parts = (commands, settings, topics, messages, measures, alerts, refusals, error_classes)
    return "\n".join([*_head(), *(line for part in parts for line in part())]) + "\n"


def _head() -> Iterator[str]:
    yield "# Reference"
    yield ""
    yield "Made from the code by `make docs`; do not edit it."
    yield "[`operations.md`](operations.md) explains settings, log lines and metrics,"
    yield "[`writing-from-spark.md`](writing-from-spark.md) options and verbs,"
    yield "[`wire-contract.md`](wire-contract.md) records,"
    yield "[`features.md`](features.md) table features."


def commands() -> Iterator[str]:
    """Yield the command line: each command with what it does and its options."""
    yield from _section("Commands", "command", "what it does", "options")
    yield from _commands(test_commands.whole(), "tidegate")


def _commands(command: Any, path: str) -> Iterator[str]:
    if isinstance(command, TyperGroup):
        for name, below in sorted(command.commands.items()):
            if not below.hidden:
                yield from _commands(below, f"{path} {name}")
        return
    named = [param for param in command.params if param.param_type_name == "option"]
    options = sorted(item.opts[0] for item in named if item.opts[0] not in ("--help",))
    text = (command.help or "").strip().partition("\n\n")[0].replace("\n", " ")
    given = " ".join(
        param.name.upper() for param in command.params if param.param_type_name == "argument"
    )
    yield _row(
        f"`{path}`{f' {given}' if given else ''}",
        text,
        ", ".join(f"`{option}`" for option in options),
    )


def settings() -> Iterator[str]:
    """Yield every setting with its default and its environment variable."""
    yield from _section("Settings", "setting", "default", "environment")
    for section, kind in sorted(test_documents.sections()):
        for key, field in kind.model_fields.items():
            default = test_documents.shown(field.get_default(call_default_factory=True))
            variable = f"TIDEGATE__{section}__{key}".upper()
            yield _row(f"`{section}.{key}`", default.partition("\n")[0], f"`{variable}`")


def topics() -> Iterator[str]:
    """Yield the topics as `tidegate topics apply` creates them."""
    yield from _section("Topics", "topic", "key", "partitions", "cleanup", "kept")
    for topic in Topics("tidegate.", 1).declared():
        kept = "for ever" if topic.retention_ms < 0 else f"{topic.retention_ms / DAY_MS:g} days"
        partitions = str(topic.partitions)
        yield _row(f"`{topic.name}`", topic.key or "none", partitions, topic.cleanup, kept)


def messages() -> Iterator[str]:
    """Yield the messages with their fields."""
    yield from _section("Messages", "format", "required", "optional")
    for kind, form in sorted(FORMATS.items(), key=lambda item: item[1]):
        schema = schema_of(kind)
        required = schema.get("required", [])
        optional = [name for name in schema.get("properties", {}) if name not in required]
        yield _row(
            f"`{form}`",
            *(", ".join(f"`{name}`" for name in names) for names in (required, optional)),
        )


def measures() -> Iterator[str]:
    """Yield the metrics with their labels."""
    yield from _section("Metrics", "metric", "labels", "meaning")
    kinds = (prometheus_client.Counter, prometheus_client.Gauge, prometheus_client.Histogram)
    result = [value for value in vars(metrics).values() if isinstance(value, kinds)]
    for value in sorted(result, key=lambda one: str(one._name)):
        suffix = "_total" if isinstance(value, prometheus_client.Counter) else ""
        labels = ", ".join(f"`{name}`" for name in value._labelnames)
        yield _row(f"`{value._name}{suffix}`", labels, value._documentation)


def alerts() -> Iterator[str]:
    """Yield the alerts of `deploy/helm/tidegate/files/alerts.yaml`: when each fires."""
    yield from _section("Alerts", "alert", "fires when", "for", "severity")
    for alert in chart.alerts():
        link = f"[`{alert['alert']}`]({alert['runbook']})"
        # `|` inside code would end the cell, and a regular expression must keep it.
        expression = alert["expr"].replace("|", "\\|")
        yield f"| {link} | `{expression}` | {alert['for']} | {alert['severity']} |"
    yield from _ABOUT_ALERTS


_ABOUT_ALERTS = (
    "",
    "They are the rules of `deploy/helm/tidegate/files/alerts.yaml`, which the chart installs as a",
    "`PrometheusRule`. The [runbook](runbook.md) says what each means and what to do. `page` wakes",
    "somebody, `ticket` waits for the morning; *for* is how long the expression must hold.",
    "",
    "Where no committer is scraped a sum has no value, and no value raises no alert: hence",
    "`or vector(0)`. A counter that first appears with the value 1 shows no increase: so counters",
    "whose first increase matters are exported at 0 from the start, and `poison`, which a new",
    "process counts, is compared by its value.",
)


def refusals() -> Iterator[str]:
    """Yield the rules by which a proposal is refused, each with its cause and remedy."""
    yield from _section("Refusals", "rule", "because", "do")
    for rule, refusal in REFUSALS.items():
        yield _row(f"`{rule}`", refusal.cause, refusal.remedy)
    yield ""
    yield "The rule is `rejection.rule` in the outcome, and `rule` in the log and the metrics."
    yield "While a table is created or registered it may also be the class of an error of its log"
    yield "or store ([errors](operations.md#errors))."


def error_classes() -> Iterator[str]:
    """Yield the classes of errors with what their reader should do."""
    yield from _section("Errors", "class", "advice", "meaning")
    for name, value in sorted(vars(errors).items()):
        if isinstance(value, type) and issubclass(value, errors.TidegateError):
            text = (value.__doc__ or "").strip().partition("\n\n")[0].replace("\n", " ")
            yield _row(f"`{name}`", value.advice, " ".join(text.split()))


def _section(title: str, *columns: str) -> Iterator[str]:
    yield ""
    yield f"## {title}"
    yield ""
    yield _row(*columns)
    yield _row(*("---" for _ in columns))


def _row(*cells: str) -> str:
    return f"| {' | '.join(' '.join(cell.replace('|', '/').split()) for cell in cells)} |"


if __name__ == "__main__":
    sys.stdout.write(page())

"""`tidegate doctor`: what is wrong with Kafka, rights, stores, clocks, versions; and the remedy."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated, Final

import typer

from tidegate_console.doctor import clock_checks, kafka_checks, store_checks, version_checks
from tidegate_console.doctor.check import Check, CheckStatus
from tidegate_console.overview import Overview, OverviewReader, attention
from tidegate_delta.errors import TidegateError, Unavailable
from tidegate_messages.topics import Role
from tidegate_runtime.cli.command import OUT, Json, command, printable
from tidegate_runtime.service.runner import EXIT_FIX, EXIT_RETRY
from tidegate_runtime.service.settings import ServiceSettings
from tidegate_runtime.storage.open_store import canonical_root
from tidegate_runtime.table_registry import find_table

_WIDTH: Final = 10
_MARKS: Final[dict[CheckStatus, str]] = {
    "ok": "ok",
    "note": "note",
    "wrong": "WRONG",
    "away": "AWAY",
    "skipped": "skipped",
}

app = typer.Typer(add_completion=False)


class RoleOption(StrEnum):
    """Whose rights in Kafka are looked for."""

    COMMITTER = "committer"
    CHECKPOINTER = "checkpointer"
    CDC_PUBLISHER = "cdc-publisher"
    LEASE_HOLDER = "lease-holder"
    WRITER = "writer"
    INGEST = "ingest"
    MAINTAINER = "maintainer"
    OPERATOR = "operator"


_ROLES: Final[dict[RoleOption, Role]] = {
    RoleOption.COMMITTER: "committer",
    RoleOption.CHECKPOINTER: "checkpointer",
    RoleOption.CDC_PUBLISHER: "change publisher",
    RoleOption.LEASE_HOLDER: "lease holder",
    RoleOption.WRITER: "writer",
    RoleOption.INGEST: "ingest",
    RoleOption.MAINTAINER: "maintainer",
    RoleOption.OPERATOR: "operator",
}


@app.command()
@command()
def doctor(
    settings: ServiceSettings,
    tables: Annotated[
        list[str] | None,
        typer.Argument(
            help="Tables to look at, by registered name or root. The committer of a registered one "
            "is asked a question, and clocks are compared; nothing is written to the table.",
            show_default=False,
        ),
    ] = None,
    role: Annotated[
        RoleOption | None, typer.Option(help="Name each right that this role lacks in Kafka.")
    ] = None,
    probe: Annotated[
        bool,
        typer.Option(
            "--probe",
            help="Also write scratch files to the stores, and remove them. If no table is named, "
            "compare the clocks by a question about one.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Check Kafka, rights, stores, clocks and versions: what is wrong, and how to mend it.

    Give it the settings of a service to see the world as that service does. One table of each
    store is opened. Without a table and without --probe it only reads.

    Exit status: 0 nothing is wrong; 2 something has to be changed; 4 something does not answer.
    """
    done_checks: list[Check] = []
    of_role = None if role is None else _ROLES[role]
    for check in checks(settings, of_role, tables or (), probes=probe):
        done_checks.append(check)
        if not as_json:
            _show(check)
    if as_json:
        OUT.print_json(data=[asdict(check) for check in done_checks])
    verdicts = {check.verdict for check in done_checks}
    if "wrong" in verdicts:
        raise typer.Exit(EXIT_FIX)
    if "away" in verdicts:
        raise typer.Exit(EXIT_RETRY)


def checks(
    settings: ServiceSettings, role: Role | None, tables: Sequence[str], *, probes: bool
) -> Iterator[Check]:
    """Yield the checks one by one. Where the brokers do not answer, only stores are checked."""
    yield version_checks.installed()
    connection = kafka_checks.connection(settings.kafka)
    yield from connection
    roots = [table for table in tables if "/" in table]
    if kafka_checks.is_let_in(connection):
        try:
            yield from kafka_checks.cluster(settings.kafka)
            yield from kafka_checks.topics(settings.kafka)
            yield from kafka_checks.producers(settings.kafka)
            yield from kafka_checks.rights(settings.kafka, role)
            yield from version_checks.formats(settings.kafka)
            yield from version_checks.past_the_gate(settings.kafka)
            overview = OverviewReader(settings.kafka).read()
            yield from _running(overview)
            yield from clock_checks.newest_record(settings.kafka)
            if not tables:
                yield from _clock_of_brokers(settings, overview, probes=probes)
            records = [(table, find_table(overview.tables, table)) for table in tables]
            for table, record in records:
                if record is not None:
                    roots.append(record.table_root)
                    yield from clock_checks.round_trip(settings.kafka, record.table_root)
                elif table not in roots:
                    do = "`tidegate table list` shows those that are"
                    yield Check("tables", "wrong", f"no table is registered as {table}", do)
            roots += store_checks.roots_to_check(overview.tables.values())
        except Unavailable as error:
            yield Check("kafka", "away", str(error))
        except TidegateError as error:
            yield Check("kafka", "wrong", str(error))
    elif names := [table for table in tables if table not in roots]:
        yield Check("tables", "skipped", f"without brokers names mean nothing: {', '.join(names)}")
    yield from store_checks.stores(_once(roots), settings.storage, probes=probes)


def _clock_of_brokers(
    settings: ServiceSettings, overview: Overview, *, probes: bool
) -> Iterator[Check]:
    """Yield how this machine's clock compares with the brokers', by a question about some table.

    Brokers tell their time only of records that they take.
    """
    served = sorted(
        record.table_root for record in overview.tables.values() if record.status == "open"
    )
    if probes and served:
        yield from clock_checks.round_trip(settings.kafka, served[0])
    else:
        do = "name a registered table, or give --probe: its committer is asked a question"
        yield Check("clock", "skipped", "whether it is ahead of the brokers' is not known", do)


def _once(roots: Sequence[str]) -> list[str]:
    """Return each root once, in the form that is shown."""
    return list(dict.fromkeys(canonical_root(root) for root in roots))


def _running(overview: Overview) -> Iterator[Check]:
    items = attention(overview)
    for item in items:
        verdict: CheckStatus = "wrong" if item.level == "problem" else "note"
        do = f"{item.do} (docs/{item.guide})"
        yield Check("services", verdict, f"{item.about}: {item.what}", do)
    if not items:
        yield Check("services", "ok", "committer, checkpointer and cdc-publisher run")


def _show(check: Check) -> None:
    line = f"{_MARKS[check.verdict]:<8}{check.name:<{_WIDTH}} {check.found}"
    OUT.print(printable(line), soft_wrap=True)
    if check.do:
        OUT.print(f"{'':<{9 + _WIDTH}}do: {printable(check.do)}", soft_wrap=True)

"""What of an overview needs somebody's attention, and what to do about each."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from tidegate_console.overview import Overview, ServiceState
from tidegate_messages.published_records import TableRecord

WAITS_MAX_MS: Final = 60_000
"""Past this age of the oldest waiting proposal somebody should look (`TidegateWritersWait`)."""

DAY_MS: Final = 24 * 60 * 60 * 1000
Level = Literal["problem", "note"]


@dataclass(frozen=True)
class Attention:
    """Something to look at. A `problem` needs somebody to act, a `note` may be intended.

    `guide` is the part of the documents that tells more.
    """

    level: Level
    about: str
    what: str
    do: str
    guide: str


def attention(overview: Overview) -> list[Attention]:
    """Return what needs attention, problems first."""
    items = [
        *_services(overview),
        *_tables(overview),
        *_followers(overview),
        *_streams(overview),
        *_letters(overview),
        *_unread(overview),
    ]
    return sorted(items, key=lambda item: item.level != "problem")


def _services(overview: Overview) -> Iterator[Attention]:
    for service, state in overview.services.items():
        yield from _of_service(service, state)


def _of_service(service: str, state: ServiceState) -> Iterator[Attention]:
    effect = {
        "committer": "proposals wait, nothing is lost",
        "checkpointer": "readers replay more and more commits",
        "cdc-publisher": "subscribers fall behind",
    }[service]
    guide = "operations.md#running"
    if not state.members:
        yield Attention(
            "problem", service, f"none runs: {effect}", f"start one: `tidegate {service}`", guide
        )
    elif state.owned < state.topic_partitions:
        yield Attention(
            "problem",
            service,
            f"{state.topic_partitions - state.owned} of {state.topic_partitions} partitions of "
            f"{state.topic} have no owner: {effect}",
            "wait some seconds for the rebalance; then look at `/readyz` of its processes",
            "committer.md#states-of-the-loop",
        )
    if state.oldest_ms is not None and state.oldest_ms > WAITS_MAX_MS:
        yield Attention(
            "problem",
            service,
            f"{state.waiting} records wait, the oldest for {state.oldest_ms // 1000} s: {effect}",
            "look at its log, and at the tables that are halted or rest",
            "committer.md#alerts" if service == "committer" else "operations.md#metrics",
        )
    if service == "committer" and len(state.members) == 1:
        yield Attention(
            "note",
            service,
            "there is no standby: if this one dies, writers wait until another is started",
            "run two",
            guide,
        )


def _tables(overview: Overview) -> Iterator[Attention]:
    for table in sorted(overview.tables.values(), key=lambda record: record.name):
        if table.status == "halted":
            yield _halted(table)
        elif table.status == "open" and table.reason is not None:
            do = "mend what the reason names; it goes on by itself"
            guide = "committer.md#halting-and-healing"
            yield Attention("problem", table.name, table.reason, do, guide)


def _halted(table: TableRecord) -> Attention:
    if table.halted_by_hand is not None:
        return Attention(
            "note",
            table.name,
            f"is halted by hand: {table.halted_by_hand}",
            f"when it is over: `tidegate table reopen {table.name}`",
            "committer.md#halting-and-healing",
        )
    return Attention(
        "problem",
        table.name,
        f"is halted: {table.reason}",
        f"repair what the reason names; then `tidegate table retry {table.name}`",
        "committer.md#halting-and-healing",
    )


def _followers(overview: Overview) -> Iterator[Attention]:
    for records in overview.aside.values():
        for record in records:
            yield Attention(
                "problem",
                record.name,
                f"{record.service} has set it aside, after {record.attempts} attempts: "
                f"{record.reason}",
                f"repair what the reason names; then `tidegate table retry {record.name}`",
                "changes.md#when-a-table-stops"
                if record.service == "cdc-publisher"
                else "operations.md#errors",
            )


def _streams(overview: Overview) -> Iterator[Attention]:
    aside = {record.name for records in overview.aside.values() for record in records}
    for stream in overview.streams:
        if stream.state == "stopped" and stream.table not in aside:
            yield Attention(
                "problem",
                stream.table,
                f"its change stream has stopped: {stream.reason}",
                f"repair what the reason names; then `tidegate table retry {stream.table}`",
                "changes.md#when-a-table-stops",
            )


def _letters(overview: Overview) -> Iterator[Attention]:
    lately = [
        letter for letter in overview.letters.newest if letter.at_ms > overview.at_ms - DAY_MS
    ]
    if lately:
        newest = lately[0]
        count = f"{len(lately)}{' or more' if len(lately) == len(overview.letters.newest) else ''}"
        yield Attention(
            "note",
            "dead letters",
            f"{count} in the last day; the newest, of {newest.source}: {newest.reason}",
            "find the program that sends them: its name is in the header `producer`",
            "committer.md#alerts",
        )


def _unread(overview: Overview) -> Iterator[Attention]:
    for part, reason in overview.unread.items():
        yield Attention(
            "problem",
            part,
            f"could not be read: {reason}",
            "`tidegate doctor` says what is missing",
            "operations.md#running",
        )

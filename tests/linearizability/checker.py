"""Check whether a serial order explains every outcome; the log names one, and it is tested here.

Committed proposals are ordered by version and by index within it. The order explains the run if
each proposal has, once, the effect its outcome states; if each finds what it had read unchanged; if
none comes after one that was sent only after its own outcome; and if each rejected proposal lost to
an earlier one. It shares no code with the committer.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, takewhile
from typing import Final
from urllib.parse import unquote

from tests.linearizability.rejection_check import injustice
from tests.linearizability.run_record import (
    FILES,
    Account,
    Key,
    PublishedOutcome,
    Rows,
    Sent,
    Table,
    paths,
)

REQUESTS = ("register", "halt", "reopen", "drop", "move")
"""Kinds of proposals that write nothing into the log; a repeat may get another version."""


NO_MOVES: Final[Mapping[str, str]] = {}


class Unexplained(AssertionError):
    """No serial order explains the run."""


@dataclass(frozen=True)
class Step:
    """A proposal in the serial order of its table."""

    root: str
    version: int
    place: int
    key: Key


def explain(account: Account) -> tuple[Step, ...]:
    """Return the serial order that explains a run.

    Raises: Unexplained, with everything that it does not explain.
    """
    order = tuple(Step(*member) for member in account.members())
    wrong = [
        *_doubled(order),
        *_from_nowhere(account, order),
        *_torn(account),
        *_misplaced(account, order),
        *_inexact(account),
        *_unjust(account),
        *_out_of_time(account, order),
        *_lost(account, order),
    ]
    if not wrong:
        wrong = list(_replayed(account, order))
    if wrong:
        raise Unexplained("\n".join(wrong))
    return order


def _doubled(order: tuple[Step, ...]) -> Iterator[str]:
    """Yield proposals that are in the order twice, whatever their bytes."""
    seen: dict[str, Step] = {}
    for step in order:
        identity = step.key[0]
        if identity in seen:
            first = seen[identity]
            yield f"{identity} is in version {first.version} and again in {step.version}"
        seen[identity] = step


def _from_nowhere(account: Account, order: tuple[Step, ...]) -> Iterator[str]:
    """Yield what is in the log or was answered, but was not sent for that table."""
    for step in order:
        sent = account.sent.get(step.key)
        if sent is None:
            yield f"version {step.version} holds {step.key[0]}, which nobody sent"
        elif sent.root != step.root:
            yield f"version {step.version} of {step.root} holds {step.key[0]}, for {sent.root}"
    for result in account.outcomes:
        if result.key not in account.sent:
            yield f"{result.key[0]} was answered, and nobody sent it"


def _torn(account: Account) -> Iterator[str]:
    """Yield proposals with two different definite outcomes."""
    promised: dict[Key, tuple[str, int | None]] = {}
    for result in account.outcomes:
        if result.status not in ("committed", "rejected"):
            continue
        version = result.body.get("version") if result.status == "committed" else None
        promise = (result.status, version)
        if (
            _kind(account, result) not in REQUESTS
            and promised.setdefault(result.key, promise) != promise
        ):
            yield f"{result.key[0]} was told {promised[result.key]} and {promise}"


def _misplaced(account: Account, order: tuple[Step, ...]) -> Iterator[str]:
    """Yield committed proposals that are not at their place, and rejected ones in the log."""
    places = {step.key: step for step in order}
    by_id = {step.key[0]: step for step in order}
    for result in account.outcomes:
        sent = account.sent.get(result.key)
        if sent is None or sent.kind in (*REQUESTS, "verbatim"):
            continue
        is_cancel = sent.kind == "cancel"
        step = by_id.get(str(sent.body["cancels"])) if is_cancel else places.get(result.key)
        if result.status == "committed":
            if step is None:
                yield f"{result.key[0]} was told version {result.body['version']} and is in none"
            elif not _is_at(result, step, is_cancel=is_cancel):
                yield f"{result.key[0]} was told {result.body['version']} and is in {step.version}"
        if result.status == "rejected" and step is not None:
            yield f"{result.key[0]} was told rejected ({result.rule}) and is in {step.version}"


def _inexact(account: Account) -> Iterator[str]:
    """Yield verbatim entries that are not their version, and rejected ones in the log."""
    for result in account.outcomes:
        sent = account.sent.get(result.key)
        if sent is None or sent.kind != "verbatim" or sent.root not in account.tables:
            continue
        table, exact = account.tables[sent.root], sent.body["exact_version"]
        version = table.digests.get(sent.body["claim_check"]["sha256"])
        if result.status == "committed" and (version != exact or result.body["version"] != exact):
            yield f"{result.key[0]} was told {result.body['version']} and is {version}, not {exact}"
        if result.status == "rejected" and (version is not None or exact >= len(table.entries)):
            yield f"{result.key[0]} was told that {exact} is taken, and is {version}"


def _unjust(account: Account) -> Iterator[str]:
    """Yield unjust outcomes: rejected without a winner, or expired or denied without cause."""
    for result in account.outcomes:
        sent = account.sent.get(result.key)
        if sent is None or sent.kind != "commit" or sent.root not in account.tables:
            continue
        table = account.tables[sent.root]
        if result.status == "rejected":
            why = injustice(account, sent, result)
            if why is not None:
                yield f"{sent.key[0]} {why}"
        elif result.status == "expired" and table.floor == 0:
            yield f"{sent.key[0]} was told that it came too late for a log that is whole"
        elif result.rule == "read_version_ahead" and _was_there(table, sent, result):
            yield f"{sent.key[0]} was told that version {sent.read_version} is not there"


def _out_of_time(account: Account, order: tuple[Step, ...]) -> Iterator[str]:
    """Yield proposals ordered after one that was sent after their own outcome."""
    result = {
        record.key: record.moment
        for record in reversed(account.outcomes)
        if record.status == "committed"
    }
    by_table: dict[str, list[Step]] = {}
    for step in order:
        by_table.setdefault(step.root, []).append(step)
    for steps in by_table.values():
        # Going backwards: the earliest outcome among all later proposals.
        behind, who = float("inf"), ""
        for step in reversed(steps):
            sent = account.sent.get(step.key)
            if sent is not None and behind < sent.moment:
                yield f"{who} was told before {step.key[0]} was sent and comes after it"
            if result.get(step.key, behind) < behind:
                behind, who = result[step.key], step.key[0]
    places = {(step.root, step.version): step for step in order}
    for item in account.outcomes:
        sent = account.sent.get(item.key)
        if sent is None or item.status != "rejected" or item.winner is None:
            continue
        winner = places.get((sent.root, item.winner))
        later = account.sent.get(winner.key) if winner else None
        if later is not None and later.moment > item.moment:
            yield f"{item.key[0]} lost to {later.key[0]}, which was sent after it was told"


def _lost(account: Account, order: tuple[Step, ...]) -> Iterator[str]:
    """Yield proposals without an outcome, if the run is over."""
    if not account.is_over:
        return
    answered = {result.key for result in account.outcomes}
    for key in account.sent:
        if key not in answered:
            yield f"{key[0]} was never answered"


@dataclass(frozen=True)
class _Deed:
    """What one proposal, or another writer's version, did to the files of a table.

    `revised` are files that lost or regained rows and stay; `moved` are the removed files whose
    rows it relocates, `kept` the new files that hold no new rows.
    """

    version: int
    gone: frozenset[str]
    came: frozenset[str]
    revised: frozenset[str]
    moved: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()


def _deed(
    version: int,
    rows: Rows,
    intents: frozenset[str] = frozenset(),
    moves: Mapping[str, str] = NO_MOVES,
    returned: frozenset[str] = frozenset(),
) -> _Deed:
    gone = frozenset(path for _, path in paths(rows, "remove"))
    came = frozenset(path for _, path in paths(rows, "add"))
    both = gone & came
    kept = returned.union(moves.values())
    return _Deed(version, gone - both, came - both, both | intents, frozenset(moves), kept)


def _landed(rows: Rows, moved: Mapping[str, str], returned: frozenset[str]) -> Rows:
    """Return a proposal's actions without files whose rows moved, and with those that came back."""
    left = {path for _, path in paths(rows, "remove") if {path, unquote(path)} & moved.keys()}
    kept = [row for row in rows if not left.intersection(path for _, path in paths([row], *FILES))]
    return [*kept, *({"add": {"path": path}} for path in sorted(returned))]


def _loses_rows(member: Sent, rows: Rows, moved: Mapping[str, str]) -> frozenset[str]:
    """Return the files of which a proposal deletes rows, where these are at present."""
    removed = {path for _, path in paths(rows, "remove")}
    removed |= {unquote(path) for path in removed}
    return _now(member.intents | (removed & moved.keys()), moved)


def _now(files: frozenset[str], moved: Mapping[str, str]) -> frozenset[str]:
    """Return the files that hold the rows of the given files at present."""
    result = set[str]()
    for path in files:
        while path in moved:
            path = moved[path]
        result.add(path)
    return frozenset(result)


def _replayed(account: Account, order: tuple[Step, ...]) -> Iterator[str]:
    """Yield what the order leaves unexplained when its proposals are applied one by one."""
    for root, table in account.tables.items():
        live: set[str] = set()
        since: list[_Deed] = []
        moved: dict[str, str] = {}
        for version, rows in enumerate(table.entries):
            where = f"{version} of {root}"
            members = [account.sent[key] for key in table.accepted(version)]
            returned = table.returned(version)
            proposed = [account.actions(member) for member in members]
            brought = [
                _landed(own, moved, back) for own, back in zip(proposed, returned, strict=True)
            ] or [rows]
            whole = _deed(version, rows)
            deeds = [whole]
            if members:
                # Deleting rows that are already gone changes nothing.
                changed = whole.revised | whole.gone
                deeds = [
                    _deed(
                        version,
                        own,
                        _loses_rows(member, all_of, moved) & changed,
                        member.moves,
                        back,
                    )
                    for member, own, all_of, back in zip(
                        members, brought, proposed, returned, strict=True
                    )
                ]
            if not _is_sum(version, rows, deeds, brought):
                yield f"version {where} is not what its members brought"
            for place, deed in enumerate(deeds):
                if members:
                    yield from _stale(members[place], since, where)
                yield from _applied(live, deed, where)
                since.append(deed)
            # If several members delete a file's last rows, the file is removed with all of them.
            live -= whole.gone
            for member, back in zip(members, returned, strict=True):
                moved |= member.moves
                came_back = back.union(unquote(path) for path in back)
                moved = {path: to for path, to in moved.items() if path not in came_back}


def _is_sum(version: int, rows: Rows, deeds: list[_Deed], brought: list[Rows]) -> bool:
    """Whether a version has the files of its members, and revises no files but theirs.

    A file without rows is removed; one whose rows were already gone stays as it is. Which rows were
    deleted is not checked here.
    """
    whole = _deed(version, rows)
    revised = frozenset().union(*(deed.revised for deed in deeds))
    if not whole.revised <= revised:
        return False
    kept = [path for path in paths(rows, *FILES) if path[1] not in revised]
    own = [path for path in paths([*chain(*brought)], *FILES) if path[1] not in revised]
    return Counter(kept) == Counter(own)


def _stale(sent: Sent, since: list[_Deed], where: str) -> Iterator[str]:
    """Yield whether something that a proposal read was changed before its place in the order."""
    read, whole = set(sent.reads.get("files", ())), bool(sent.reads.get("whole_table"))
    if not read and not whole:
        return
    for deed in takewhile(lambda one: one.version > sent.read_version, reversed(since)):
        gone = deed.gone - deed.moved
        if sent.needs_lost_rows:
            gone |= deed.revised - sent.intents
        came = deed.came - deed.kept if sent.is_serializable else frozenset()
        if gone & read or (whole and (gone or came)):
            yield f"{sent.key[0]} in version {where} had read what {deed.version} changed"
            return


def _applied(live: set[str], deed: _Deed, where: str) -> Iterator[str]:
    missing = (deed.gone | deed.revised) - live
    if missing:
        yield f"version {where} removes {min(missing)!r}, which is not there"
    live -= deed.gone
    if deed.came & live:
        yield f"version {where} adds {min(deed.came & live)!r}, which is there"
    live |= deed.came


def _was_there(table: Table, sent: Sent, told: PublishedOutcome) -> bool:
    return table.appeared.get(sent.read_version, told.moment) < sent.moment


def _is_at(told: PublishedOutcome, step: Step, *, is_cancel: bool) -> bool:
    same = told.body.get("sub_index") == step.place
    return told.body["version"] == step.version and (same or is_cancel)


def _kind(account: Account, told: PublishedOutcome) -> str:
    sent = account.sent.get(told.key)
    return sent.kind if sent else "commit"

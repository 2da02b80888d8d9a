"""Operators: they halt tables, reopen and move them, and open all of them in the end."""

from tests import builders
from tests.simulation.history import History, Sent
from tests.simulation.run_state import Stage
from tests.simulation.tables import TABLES, Table


def halt(stage: Stage) -> None:
    """Halt a table, for a new reason or the same."""
    reason = stage.dice.choice(("a restore", "a restore", f"incident {stage.next()} " * 50))[:999]
    _ask(stage, stage.dice.choice(TABLES), kind="halt", reason=reason)


def reopen(stage: Stage) -> None:
    """Reopen a table, whether it is halted or not."""
    _ask(stage, stage.dice.choice(TABLES), kind="reopen")


def drop(stage: Stage) -> None:
    """Drop a table; its root cannot be registered again."""
    _ask(stage, stage.dice.choice(TABLES), kind="drop")


def move(stage: Stage) -> None:
    """Move a table to one of the topic partitions, be it its own."""
    count = stage.bus.partitions(stage.topics.proposals)
    number = stage.dice.randrange(count)
    _ask(stage, stage.dice.choice(TABLES), kind="move", to_partition=number)


def make_again(stage: Stage) -> None:
    """Create a table where one exists or existed, under a new id or the same."""
    table = stage.dice.choice(TABLES)
    opening = table.opening(stage.new_id())
    again = opening.model_copy(
        update={} if stage.dice.random() < 0.5 else {"table": stage.new_id()}
    )
    stage.produce(again.table, builders.value_of(again))


def reopen_all(stage: Stage) -> None:
    """Reopen all tables."""
    for table in TABLES:
        _ask(stage, table, kind="reopen")


def _ask(stage: Stage, table: Table, **fields: str | int) -> None:
    known: builders.Row = {
        "proposal_id": stage.new_id(),
        "table": table.id,
        "table_root": table.root,
    }
    stage.administer(table.id, builders.value_of(builders.proposal(**{**known, **fields})))


def halted_by_hand(history: History) -> str | None:
    """A halt's outcome bars later commits until a reopen; a drop's outcome bars them for ever."""
    answered: dict[str, int] = {}
    for result in history.outcomes:
        if result.body["status"] == "committed":
            answered.setdefault(result.key, result.moment)
    for deliveries in history.spots().values():
        for delivery in deliveries:
            if (
                delivery is None
                or delivery.kind not in ("halt", "drop")
                or delivery.key not in answered
            ):
                continue
            # A committer that was suspended may still land what it took before that.
            since = answered[delivery.key]
            behind = {sent.key for sent in history.sent.values() if sent.moment > since}
            found = _committed(history, delivery, since, behind)
            if found is not None:
                return found
    return None


def _committed(history: History, halt: Sent, since: int, behind: set[str]) -> str | None:
    root = halt.body["table_root"]
    later = [
        item.moment
        for item in history.sent.values()
        if (halt.kind, item.kind) == ("halt", "reopen")
        and item.body["table_root"] == root
        and item.moment >= halt.moment
    ]
    until = min(later, default=history.moment + 1)
    log = history.logs[root]
    for version in range(len(log.entries)):
        if not since < log.appeared[version] < until:
            continue
        for one in log.provenance(version).get("accepted", ()):
            if f"{one['id']}/{one['sha256']}" in behind:
                return f"{one['id']} in {version} of {root} came behind a {halt.kind}, {halt.id}"
    return None

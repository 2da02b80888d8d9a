"""The commands over an in-memory committer: a table called `shop`, on one bus and one store."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from tests.builders import Gate, add, create, delete, proposal
from tests.fakes.memory_bus import MemoryBus
from tests.fakes.memory_clients import MemoryProducer
from tidegate_messages.proposal import Proposal
from tidegate_producers import explanation_search
from tidegate_producers.cli import (
    proposal_commands,
    row_commands,
    table_commands,
    table_place,
    vacuum_command,
)
from tidegate_producers.vacuum import vacuum
from tidegate_producers.writing import (
    alter_table,
    drop_feature,
    shallow_clone,
    table_requests,
    table_write,
)
from tidegate_runtime.storage.log_store import LogStore


class Prompt(MemoryProducer):
    """A producer that runs the committer after each flush of proposals."""

    def __init__(self, bus: MemoryBus, work: Callable[[], None]) -> None:
        super().__init__(bus)
        self._work = work

    def flush(self, timeout_s: float) -> None:
        is_asking = any(at.topic.endswith(("proposals", "admin")) for at, *_ in self.queued)
        super().flush(timeout_s)
        if is_asking:
            self._work()


@dataclass
class Line:
    """A committer with a table called `shop`, and commands on the same bus and stores."""

    gate: Gate

    def run(self, app: typer.Typer, *arguments: object) -> Result:
        return CliRunner().invoke(app, [str(argument) for argument in arguments])

    def json(self, app: typer.Typer, *arguments: object, exit_code: int = 0) -> Any:
        result = self.run(app, *arguments, "--json")
        assert result.exit_code == exit_code, result.output
        return json.loads(result.stdout)

    def explained(self, one: Proposal, exit_code: int, *more: object) -> Any:
        shown = self.json(
            proposal_commands.app, "show", one.proposal_id, *more, exit_code=exit_code
        )
        return shown["explanation"]


def line_of(monkeypatch: pytest.MonkeyPatch) -> Line:
    """Return a `Line` whose commands use its bus and its stores."""
    gate = Gate()
    gate.ask(create(name="shop"))
    monkeypatch.setattr(gate.bus, "producer", lambda: Prompt(gate.bus, gate.settle))

    def store_for(place: Any) -> LogStore:
        return gate.stores[place.root]

    for module in (table_place, explanation_search):
        monkeypatch.setattr(module, "KafkaBus", lambda *_: gate.bus)
    commands = (table_commands, proposal_commands, row_commands, vacuum_command)
    writing = (alter_table, drop_feature, shallow_clone, table_write, table_requests, vacuum)
    for module in (*commands, explanation_search, *writing):
        monkeypatch.setattr(module, "store_for", store_for)
    return Line(gate)


def conflict(line: Line) -> Proposal:
    """Return a refused delete; the winner is version 2."""
    line.gate.ask(proposal(add("a"), add("b"), engine_info="Job/1"))
    winner = delete("a", read_version=1, engine_info="Nightly/7")
    line.gate.ask(winner)
    loser = delete("a", "b", read_version=1)
    line.gate.ask(loser)
    return loser

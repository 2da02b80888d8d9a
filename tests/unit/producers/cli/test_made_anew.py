"""`tidegate table reopen --made-anew`: serves the table that is in the folder now."""

import pytest

from tests.builders import ROOT, TABLE, add, info, metadata, proposal, protocol, to_bytes
from tests.fakes.memory_store import MemoryStore
from tests.unit.producers.commands import Line, line_of
from tidegate_delta.log.file_names import commit_name, in_log
from tidegate_producers.cli import table_commands


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Line:
    return line_of(monkeypatch)


def test_a_table_that_was_made_anew_is_served_by_one_command(line: Line) -> None:
    refused = line.run(table_commands.app, "reopen", "shop", "--made-anew")
    assert refused.exit_code == 2
    assert "it was not made anew" in " ".join(refused.stderr.split())
    store = line.gate.stores[ROOT]
    assert isinstance(store, MemoryStore)
    store.files.clear()
    again = {"metaData": {**metadata()["metaData"], "id": "another"}}
    store.put(in_log(commit_name(0)), to_bytes([info(), protocol(), again]))
    store.put(in_log(commit_name(1)), to_bytes([info(), add("there")]))
    result = line.json(table_commands.app, "reopen", "shop", "--made-anew")
    assert (result["status"], result["version"]) == ("committed", 1)
    record = line.gate.tables()[TABLE]
    assert (record.status, record.table_id, record.name) == ("open", "another", "shop")
    [outcome] = line.gate.ask(proposal(add("late"), read_version=0))
    assert outcome.rejection is not None
    assert outcome.rejection.rule == "other_table"

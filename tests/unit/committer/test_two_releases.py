"""An older committer beside or after a newer one: it preserves the fields that it does not know."""

import json
from collections.abc import Callable
from uuid import UUID

import pytest

from tests.builders import ROOT, TABLE, Gate, Row, add, create, proposal, to_bytes
from tests.support.outcomes import rules_of
from tidegate_delta.log.file_names import commit_name, in_log
from tidegate_messages.codec import encode, headers
from tidegate_messages.commit_provenance import Provenance
from tidegate_messages.published_records import TableRecord
from tidegate_runtime.kafka.client_protocols import TopicPartition


def test_fields_of_a_newer_release_stay_in_the_registry() -> None:
    gate = Gate()
    gate.ask(create())
    record = gate.tables()[TABLE].model_dump(mode="json") | {"from_a_newer_release": {"a": 1}}
    newer = TableRecord.model_validate(record)
    at = TopicPartition(gate.topics.table_state, 0)
    gate.bus.append(at, str(TABLE).encode(), encode(newer), headers(newer))
    gate.restart()
    assert rules_of(gate.ask(proposal(add("a"), read_version=0))) == ["committed"]
    result = gate.tables()[TABLE]
    assert (result.published_through, result.model_extra) == (1, {"from_a_newer_release": {"a": 1}})


def with_unknown_fields(provenance: Row) -> None:
    provenance["from_a_newer_release"] = ["x"]
    provenance["accepted"][0]["and_this"] = {"y": None}
    Provenance.model_validate(provenance)


def with_other_types(provenance: Row) -> None:
    provenance["rules"], provenance["accepted"][0]["metrics"] = "12.1", ["files: 1"]


@pytest.mark.parametrize("changed", [with_unknown_fields, with_other_types])
def test_what_another_release_committed_is_not_committed_again(
    changed: Callable[[Row], None],
) -> None:
    gate = Gate()
    one = proposal(add("a"), read_version=0)
    assert [outcome.version for outcome in gate.ask(create(), one)] == [0, 1]
    rows = gate.entries()[1]
    changed(rows[0]["commitInfo"]["tidegate"])
    gate.stores[ROOT].put(in_log(commit_name(1)), to_bytes(rows))
    successor = Gate(stores=gate.stores)
    successor.ask(proposal(kind="register", table=TABLE, table_root=ROOT, proposal_id=UUID(int=9)))
    [again] = successor.ask(one)
    assert (again.status, again.version, again.repeat) == ("committed", 1, True)
    assert len(successor.entries()) == 2
    assert json.loads(json.dumps(successor.entries()[1])) == rows

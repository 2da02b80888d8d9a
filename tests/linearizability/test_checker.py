"""The checker explains what the gate did, and nothing else."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.builders import (
    ROOT,
    Gate,
    add,
    batch_of,
    compact,
    create,
    delete,
    late,
    metadata,
    proposal,
    remove,
)
from tests.linearizability.checker import Unexplained, explain
from tests.linearizability.memory_run_record import account_of
from tests.linearizability.rejection_check import LOST_TO
from tests.linearizability.run_record import Account, Key, PublishedOutcome, Rows, Table
from tests.support.row_deletes import FEATURE, ON
from tests.support.tables import creating
from tidegate_committer.conflicts.conflict_rules import RULES
from tidegate_messages.proposal import ReadSet


@pytest.fixture(scope="module")
def run() -> Account:
    """Return a run: a table, two appends, a delete, one that lost, a repeat, two refusals."""
    gate = Gate()
    gate.ask(create())
    gate.ask(proposal(add("a")))
    gate.ask(proposal(add("b")))
    gate.ask(delete("a", read_version=2))
    gate.ask(delete("a", read_version=2))
    gate.ask(proposal(add("c"), read_version=1, reads=ReadSet(whole_table=True)))
    gate.ask(batch_of("stream", 5, add("d")))
    gate.ask(batch_of("stream", 5, add("e")))
    gate.ask(late(add("late")), proposal(add("f")), proposal(add("g")))
    gate.ask(proposal(add("../outside")))
    gate.ask(proposal(add("h"), read_version=99))
    return account_of(gate)


def test_what_the_gate_did_has_a_serial_order(run: Account) -> None:
    order = explain(run)
    assert [(step.version, step.place) for step in order] == [
        *((0, 0), (1, 0), (2, 0), (3, 0), (4, 0)),
        *((5, 0), (5, 1)),
    ]
    assert {result.status for result in run.outcomes} == {"committed", "rejected", "denied"}


def key_at(run: Account, version: int, place: int = 0) -> Key:
    return run.tables[ROOT].accepted(version)[place]


def with_log(run: Account, entries: list[Rows]) -> Account:
    return replace(run, tables={ROOT: Table(entries)})


def log_of(run: Account) -> list[Rows]:
    copied: list[Rows] = json.loads(json.dumps(run.tables[ROOT].entries))
    return copied


def with_outcome(run: Account, key: Key, **changed: Any) -> Account:
    """Return a run in which one outcome is different."""
    result = [
        replace(record, body={**record.body, **changed}) if record.key == key else record
        for record in run.outcomes
    ]
    return replace(run, outcomes=result)


def rejected_by(run: Account, rule: str) -> PublishedOutcome:
    return next(item for item in run.outcomes if item.rule == rule)


def doubled(run: Account) -> Account:
    return with_log(run, [*log_of(run), log_of(run)[1]])


def doubled_by_its_file_alone(run: Account) -> Account:
    entries = log_of(run)
    return with_log(run, [*entries, [row for row in entries[2] if "commitInfo" not in row]])


def lost_by_the_log(run: Account) -> Account:
    return with_log(run, log_of(run)[:-1])


def lost_by_the_topic(run: Account) -> Account:
    return replace(
        run, outcomes=[record for record in run.outcomes if record.key != key_at(run, 2)]
    )


def lost_in_part(run: Account) -> Account:
    entries = log_of(run)
    entries[5] = [row for row in entries[5] if row.get("add", {}).get("path") != "g"]
    return with_log(run, entries)


def reordered(run: Account) -> Account:
    entries, first, second = log_of(run), key_at(run, 1), key_at(run, 2)
    entries[1], entries[2] = entries[2], entries[1]
    return with_log(with_outcome(with_outcome(run, first, version=2), second, version=1), entries)


def misplaced(run: Account) -> Account:
    return with_outcome(run, key_at(run, 5, 1), sub_index=0)


def elsewhere(run: Account) -> Account:
    return with_outcome(run, key_at(run, 1), version=2)


def torn(run: Account) -> Account:
    other = replace(
        run.outcomes[1], body={**run.outcomes[1].body, "status": "rejected", "rejection": {}}
    )
    return replace(run, outcomes=[*run.outcomes, other])


def rejected_and_there(run: Account) -> Account:
    entries, refused = log_of(run), rejected_by(run, "concurrent_append").key
    result = {"id": refused[0], "offset": 0, "sha256": refused[1]}
    entries[5][0]["commitInfo"]["tidegate"]["accepted"].append(result)
    entries[5].append(add("c"))
    return with_log(run, entries)


def rejected_for_nothing(run: Account) -> Account:
    result = rejected_by(run, "concurrent_delete_read")
    rejection = {**result.body["rejection"], "winner_version": 4}
    return with_outcome(run, result.key, rejection=rejection)


def rejected_for_what_it_had_read(run: Account) -> Account:
    result = rejected_by(run, "concurrent_delete_read")
    rejection = {**result.body["rejection"], "winner_version": 2}
    return with_outcome(run, result.key, rejection=rejection)


def rejected_for_what_came_later(run: Account) -> Account:
    key = rejected_by(run, "concurrent_append").key
    result = [replace(record, moment=0) if record.key == key else record for record in run.outcomes]
    return replace(run, outcomes=result)


def rejected_and_not_written_down(run: Account) -> Account:
    entries = log_of(run)
    entries[5][0]["commitInfo"]["tidegate"]["refused"] = []
    return with_log(run, entries)


def rejected_for_a_path_that_is_fine(run: Account) -> Account:
    key = rejected_by(run, "bad_path").key
    body = {**run.sent[key].body, "actions": [add("inside")]}
    return replace(run, sent={**run.sent, key: replace(run.sent[key], body=body)})


def rejected_for_an_application_unseen(run: Account) -> Account:
    entries = log_of(run)
    entries[4] = [row for row in entries[4] if row.get("txn", {}).get("appId") != "stream"]
    return with_log(run, entries)


def rejected_by_a_rule_unheard_of(run: Account) -> Account:
    result = rejected_by(run, "concurrent_append")
    return with_outcome(run, result.key, rejection={**result.body["rejection"], "rule": "bad_mood"})


def accepted_though_stale(run: Account) -> Account:
    first = key_at(run, 4)
    body = {**run.sent[first].body, "reads": {"whole_table": True}, "read_version": 1}
    return replace(run, sent={**run.sent, first: replace(run.sent[first], body=body)})


def expired_on_a_whole_log(run: Account) -> Account:
    return with_outcome(
        run, rejected_by(run, "read_version_ahead").key, status="expired", rejection={}
    )


def not_there_though_seen(run: Account) -> Account:
    key = rejected_by(run, "read_version_ahead").key
    body = {**run.sent[key].body, "read_version": 1}
    tables = {ROOT: replace(run.tables[ROOT], appeared={1: 0})}
    return replace(run, sent={**run.sent, key: replace(run.sent[key], body=body)}, tables=tables)


def from_nowhere(run: Account) -> Account:
    sent = {key: one for key, one in run.sent.items() if key != key_at(run, 2)}
    return replace(run, sent=sent)


def anothers(run: Account) -> Account:
    key = key_at(run, 2)
    body = {**run.sent[key].body, "table_root": "memory://tables/other"}
    return replace(run, sent={**run.sent, key: replace(run.sent[key], body=body)})


@pytest.mark.parametrize(
    ("tampered", "why"),
    [
        (doubled, "is in version 1 and again in 6"),
        (doubled_by_its_file_alone, "adds 'b', which is there"),
        (lost_by_the_log, "was told version 5 and is in none"),
        (lost_by_the_topic, "was never answered"),
        (lost_in_part, "is not what its members brought"),
        (reordered, "was told before .* was sent and comes after it"),
        (misplaced, "was told 5 and is in 5"),
        (elsewhere, "was told 2 and is in 1"),
        (torn, "was told .* and .*"),
        (rejected_and_there, "was told rejected .* and is in 5"),
        (rejected_for_nothing, "lost to version 4 by 'concurrent_delete_read', which is not so"),
        (rejected_for_what_it_had_read, "lost to version 2, which does not come after 2"),
        (rejected_for_what_came_later, "which was sent after it was told"),
        (rejected_and_not_written_down, "does not stand in the log"),
        (rejected_for_a_path_that_is_fine, "by 'bad_path', which does not stand in the log"),
        (rejected_for_an_application_unseen, "an application that the log has not seen"),
        (rejected_by_a_rule_unheard_of, "rejected by 'bad_mood'"),
        (accepted_though_stale, "had read what 3 changed"),
        (expired_on_a_whole_log, "too late for a log that is whole"),
        (not_there_though_seen, "was told that version 1 is not there"),
        (from_nowhere, "which nobody sent"),
        (anothers, "for memory://tables/other"),
    ],
)
def test_what_the_gate_must_not_do_has_none(
    run: Account, tampered: Callable[[Account], Account], why: str
) -> None:
    with pytest.raises(Unexplained, match=why):
        explain(tampered(run))


def test_a_run_that_goes_on_may_owe_answers(run: Account) -> None:
    result = [record for record in run.outcomes if record.key != key_at(run, 2)]
    explain(replace(run, outcomes=result, is_over=False))


def test_every_rule_that_names_a_winner_is_known_to_the_checker() -> None:
    assert {rule.__name__ for rule in RULES} <= LOST_TO.keys()


def test_rows_that_moved_are_followed_however_their_file_is_spelt() -> None:
    gate = Gate()
    gate.ask(creating(FEATURE, metadata(**ON)))
    gate.ask(proposal(add("ol%64", stats=json.dumps({"numRecords": 10}))))
    gate.ask(compact({"ol%64": 10}, "packed", read_version=1))
    rewrite = proposal(remove("old"), add("n"), read_version=1, reads=ReadSet(files=("old",)))
    [outcome] = gate.ask(rewrite)
    assert outcome.status == "committed"
    explain(account_of(gate))

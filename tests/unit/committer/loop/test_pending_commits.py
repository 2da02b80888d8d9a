"""What is decided while a PUT is pending, when the next one starts, and what is published after."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace

import pytest

from tests.builders import (
    Gate,
    StillClock,
    add,
    creation,
    info,
    metadata,
    proposal,
    row_delete,
    rows_of,
)
from tests.support.decisions import considered, table
from tests.support.feature_rows import TRACKED, listed
from tests.verbatim_proposals import verbatim
from tidegate_committer.intake.proposal_reader import CLAIM_FOLDER
from tidegate_committer.loop.entry_put import PutResult
from tidegate_committer.loop.pending_commits import (
    DECISION_AGE_MAX_S,
    decidable_from_memory,
    turn_behind,
)
from tidegate_committer.policy import Policy
from tidegate_committer.state.fetched_inputs import NOTHING
from tidegate_committer.state.table_state import TableState
from tidegate_messages.proposal import ClaimCheck, Proposal

TABLE = table(creation(), [info(), add("a")], [info(), add("b")])
UNNUMBERED = replace(table([info(), listed(*TRACKED), metadata()]), mark_before=None)


def ready() -> Proposal:
    gate = Gate()
    gate.ask(proposal(*creation()[1:], read_version=-1))
    return verbatim(gate, 3, info(), add("c"))


def claiming() -> Proposal:
    one = proposal(read_version=2)
    path = f"{CLAIM_FOLDER}{one.proposal_id}.ndjson"
    return one.model_copy(
        update={"claim_check": ClaimCheck(path=path, size=1, sha256="0" * 64), "actions": ()}
    )


ODD: dict[str, tuple[TableState, Callable[[], Proposal]]] = {
    "verbatim bytes": (TABLE, ready),
    "actions that lie in a file": (TABLE, claiming),
    "a version that is not there yet": (TABLE, lambda: proposal(add("c"), read_version=3)),
    "a version from before the window": (
        replace(TABLE, window_start=2),
        lambda: proposal(add("c"), read_version=0),
    ),
    "a file of which nothing is known": (
        TABLE,
        lambda: row_delete(rows_of("a", [1]), read_version=2),
    ),
    "row ids where the mark is not known": (
        UNNUMBERED,
        lambda: proposal(add("c", baseRowId=3, defaultRowCommitVersion=0)),
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_no_candidate_is_decided_behind_one_that_needs_a_store_read(name: str) -> None:
    state, odd = ODD[name]
    easy = proposal(add("d"), read_version=state.version)
    line = [considered(easy), considered(odd(), 1), considered(easy, 2)]
    decided = decidable_from_memory(iter(line), state, NOTHING, Policy())
    assert [item.offset for item in decided] == [0]


def test_a_turn_that_does_not_come_while_the_decision_is_young_is_given_up() -> None:
    clock = StillClock(boot=DECISION_AGE_MAX_S)
    assert not turn_behind(Future[PutResult](), 0.0, clock)()


def test_a_repeat_beside_an_entry_has_not_the_row_ids_of_its_members() -> None:
    gate = Gate()
    properties = {
        "enableRowTracking": "true",
        "rowTracking.materializedRowIdColumnName": "_row-id",
        "rowTracking.materializedRowCommitVersionColumnName": "_row-version",
    }
    gate.ask(proposal(listed(*TRACKED), metadata(**properties), read_version=-1))
    first, second = proposal(add("a")), proposal(add("b"))
    gate.ask(first)
    again, new = gate.ask(first, second)
    assert (again.repeat, again.version, again.assigned) == (True, 1, {})
    assert new.version == 2
    assert new.assigned["base_row_ids"] == {"b": 10}

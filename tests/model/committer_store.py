"""The store in the committer's model: pending PUTs, and how a committer handles the response.

It models `put_if_absent` and the table committer's PUT and RESOLVE.
"""

from collections.abc import Iterator
from typing import Any

from tests.model.committer_state import Committer, Entry, Put, Setting, State, head_of

Steps = Iterator[tuple[str, Any]]


def arrivals(setting: Setting, state: State) -> Steps:
    """Yield what may happen to each pending PUT."""
    for put in state.network:
        rest = state.network - {put}
        who = state.committers[put.sender]
        name = _name(put)
        if put.version < state.floor:
            why = f"version {put.version} was written again after cleanup"
            yield f"{name} lands on a cleaned place", state._replace(network=rest, broken=why)
            continue
        there = state.log[put.version] if put.version < len(state.log) else None
        if there is None:
            yield from _lands(setting, state._replace(network=rest), put, who)
        elif not setting.puts_if_absent:
            yield _lands_again(state._replace(network=rest), put, who)
        else:
            answered = who
            if _waits_for(who, put):
                won = setting.compares and there == put.entry
                answered = who._replace(phase="publishing") if won else rebased(who, state)
            yield f"{name} finds another", _with(state._replace(network=rest), put.sender, answered)
        if state.budget.drops:
            budget = state.budget._replace(drops=state.budget.drops - 1)
            yield f"{name} is lost", state._replace(network=rest, budget=budget)


def _lands(setting: Setting, state: State, put: Put, who: Committer) -> Steps:
    gap: tuple[Entry | None, ...] = (None,) * (put.version - len(state.log))
    log = (*state.log[: put.version], *gap, put.entry, *state.log[put.version + 1 :])
    landed = state._replace(log=log)
    name = f"{_name(put)} lands"
    if not _waits_for(who, put):
        yield name, landed
        return
    yield name, _with(landed, put.sender, who._replace(phase="publishing"))
    if setting.library_retries and not setting.compares:
        # The client library repeats a request that has landed, and reports the version as taken.
        yield f"{name}, reported as taken", _with(landed, put.sender, rebased(who, landed))


def _lands_again(state: State, put: Put, who: Committer) -> tuple[str, Any]:
    name = _name(put)
    if state.log[put.version] != put.entry:
        why = f"c{put.sender} (generation {put.entry.token}) overwrote version {put.version}"
        return f"{name} overwrites", state._replace(broken=why)
    answered = who._replace(phase="publishing") if _waits_for(who, put) else who
    return f"{name} lands again", _with(state, put.sender, answered)


def timeouts(state: State, number: int, who: Committer) -> Steps:
    """Let a PUT time out: certain if it was lost, possible if it is pending."""
    travels = _own_put(number, who) in state.network
    if travels and not state.budget.timeouts:
        return
    budget = state.budget
    if travels:
        budget = budget._replace(timeouts=budget.timeouts - 1)
    doubting = _with(state._replace(budget=budget), number, who._replace(phase="resolving"))
    yield f"c{number} has no answer to its PUT", doubting


def resolved(setting: Setting, state: State, number: int, who: Committer) -> tuple[str, Any]:
    """RESOLVE: read, compare, send the same bytes again."""
    put = _own_put(number, who)
    if not setting.compares:
        return f"c{number} takes its PUT for failed", _with(state, number, rebased(who, state))
    there = state.log[put.version] if put.version < len(state.log) else None
    if there is None:
        again = _with(state, number, who._replace(phase="waiting"))
        return f"c{number} sends again", again._replace(network=state.network | {put})
    if there == put.entry:
        return f"c{number} finds its own", _with(state, number, who._replace(phase="publishing"))
    return f"c{number} finds another's", _with(state, number, rebased(who, state))


def rebased(who: Committer, state: State) -> Committer:
    """REBASE: read the other writers' versions, drop the plan, keep the batch."""
    return who._replace(phase="ready", head=head_of(state.log), plan=None)


def _name(put: Put) -> str:
    """Return a name that no other pending PUT has."""
    ids = "+".join(operation.id for operation in put.entry.operations)
    return f"PUT {put.version} of c{put.sender} (p{ids}, {put.entry.token})"


def _own_put(number: int, who: Committer) -> Put:
    assert who.plan is not None, "who waits has sent something"
    assert who.plan.entry is not None, "what was sent has bytes"
    return Put(who.plan.version, who.plan.entry, number)


def _waits_for(who: Committer, put: Put) -> bool:
    return who.phase == "waiting" and _own_put(put.sender, who) == put


def _with(state: State, number: int, who: Committer) -> State:
    others = state.committers
    return state._replace(committers=(*others[:number], who, *others[number + 1 :]))

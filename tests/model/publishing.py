"""Publication in the committer's model: outcomes, then the offset, in order and perhaps late.

It models what the partition worker publishes and commits.
"""

from collections.abc import Iterator
from typing import Any

from tests.model.committer_state import Committer, Outcome, Plan, Setting, State

Steps = Iterator[tuple[str, Any]]


def publishes(setting: Setting, state: State, number: int, who: Committer) -> Steps:
    """PUBLISH: the outcomes, and in one transaction with them or after them the offset."""
    plan = _planned(who)
    ready = _ready(who, plan)
    if len(who.unpublished) < setting.behind_max:
        later = ready._replace(unpublished=(*who.unpublished, (plan.end, plan.outcomes)))
        after = state._replace(committers=placed(state, number, later))
        yield f"c{number} will publish {_listed(plan.outcomes)} later", after
    if who.unpublished and setting.publishes_in_order:
        return
    if not _may_publish(setting, state, who):
        gone = state._replace(committers=placed(state, number, who._replace(phase="off")))
        yield f"c{number} is fenced", gone
        return
    outcomes = state.outcomes | frozenset(plan.outcomes)
    label = f"c{number} publishes {_listed(plan.outcomes)}"
    if setting.publishing == "plain":
        result = state._replace(
            committers=placed(state, number, who._replace(phase="published")), outcomes=outcomes
        )
        yield label, result
        return
    moved = state._replace(
        committers=placed(state, number, ready),
        group=state.group._replace(offset=max(state.group.offset, plan.end)),
    )
    yield label, moved._replace(outcomes=outcomes)
    if state.budget.torn:
        budget = state.budget._replace(torn=0)
        yield f"c{number} publishes the offset alone", moved._replace(budget=budget)


def publishes_late(setting: Setting, state: State, number: int, who: Committer) -> Steps:
    """Publish the first of the waiting batches."""
    if not who.unpublished:
        return
    end, outcomes = who.unpublished[0]
    if _may_publish(setting, state, who):
        after = state._replace(
            committers=placed(state, number, who._replace(unpublished=who.unpublished[1:])),
            outcomes=state.outcomes | frozenset(outcomes),
            group=state.group._replace(offset=max(state.group.offset, end)),
        )
        yield f"c{number} publishes {_listed(outcomes)} late", after
    else:
        gone = state._replace(committers=placed(state, number, who._replace(phase="off")))
        yield f"c{number} is fenced late", gone


def records(setting: Setting, state: State, number: int, who: Committer) -> tuple[str, State]:
    """Commit the offset after the outcomes before it are published."""
    plan, group = _planned(who), state.group
    if who.generation < group.generation and setting.offsets_are_fenced:
        gone = state._replace(committers=placed(state, number, who._replace(phase="off")))
        return f"c{number} may not record an offset", gone
    offset = max(group.offset, plan.end) if setting.offsets_are_fenced else plan.end
    after = state._replace(
        committers=placed(state, number, _ready(who, plan)), group=group._replace(offset=offset)
    )
    return f"c{number} records {plan.end}", after


def _may_publish(setting: Setting, state: State, who: Committer) -> bool:
    return not setting.is_fenced or who.generation >= state.group.fence


def placed(state: State, number: int, who: Committer) -> tuple[Committer, ...]:
    """Return the committers with one of them changed."""
    return (*state.committers[:number], who, *state.committers[number + 1 :])


def _planned(who: Committer) -> Plan:
    assert who.plan is not None, "who publishes has settled something"
    return who.plan


def _ready(who: Committer, plan: Plan) -> Committer:
    head = who.head if plan.entry is None else max(who.head, plan.version + 1)
    return who._replace(phase="ready", position=plan.end, head=head, plan=None)


def _listed(outcomes: tuple[Outcome, ...]) -> str:
    return ", ".join(f"p{outcome.id} {outcome.status}{outcome.reason}" for outcome in outcomes)

"""Invariants of the committer's model; the names are those of docs/proof.md."""

from collections.abc import Mapping
from typing import Any, Final

from tests.model.checker import Invariant
from tests.model.committer_state import State, misread


def exactly_once(state: State) -> str | None:
    """I1: a proposal is in at most one version."""
    seen: dict[str, int] = {}
    for version, entry in enumerate(state.log):
        for item in entry.operations if entry else ():
            if item.id in seen:
                return f"p{item.id} is in version {seen[item.id]} and in {version}"
            seen[item.id] = version
    return None


def no_overwrite(state: State) -> str | None:
    """I2: a visible version does not change, and none comes back after cleanup."""
    return state.broken or None


def no_gap(state: State) -> str | None:
    """I3: versions are contiguous."""
    if None not in state.log:
        return None
    return f"version {state.log.index(None)} is missing below a later one"


def consistent_read(state: State) -> str | None:
    """I4, which implies I8: each version holds exactly what was committed up to it."""
    return misread(state.log)


def outcome_agreement(state: State) -> str | None:
    """I5: committed means that the version holds it; rejected, that no version does."""
    if not state.outcomes:
        return None
    places = {
        operation.id: version
        for version, entry in enumerate(state.log)
        if entry is not None
        for operation in entry.operations
    }
    return disagreement(state, places)


def disagreement(state: State, places: Mapping[str, int]) -> str | None:
    """Return an outcome that contradicts the log, or None."""
    for result in state.outcomes:
        if result.status == "C" and places.get(result.id) != result.reason:
            return f"p{result.id} was told {result.reason}, the log has {places.get(result.id)}"
        if result.status == "R" and result.id in places:
            return f"p{result.id} was told rejected ({result.reason}) and is in {places[result.id]}"
    return None


def offset_safe(state: State) -> str | None:
    """I6: the offset passes no record without an outcome."""
    result = {outcome.id for outcome in state.outcomes}
    for record in state.topic[: state.group.offset]:
        if record.id not in result:
            return f"offset {state.group.offset} was recorded, p{record.id} has no outcome"
    return None


INVARIANTS: Final[Mapping[str, Invariant[Any]]] = {
    "NoOverwrite": no_overwrite,
    "NoGap": no_gap,
    "ExactlyOnce": exactly_once,
    "OutcomeAgreement": outcome_agreement,
    "ConsistentRead": consistent_read,
    "OffsetSafe": offset_safe,
}

"""Further invariants where there are verbatim proposals."""

from collections.abc import Mapping
from typing import Any

from tests.model.checker import Invariant
from tests.model.committer_invariants import disagreement
from tests.model.committer_state import State
from tests.model.verbatim_setting import VerbatimSetting
from tests.model.verbatim_writers import foreign_of


def exact_version(state: State) -> str | None:
    """Bytes written for a version are that version."""
    for version, entry in enumerate(state.log):
        if entry is not None and isinstance(entry.token, tuple) and entry.token[1] != version:
            return f"the bytes {entry.token[0]} were made for {entry.token[1]} and are {version}"
    return None


def outcome_agreement(state: State) -> str | None:
    """I5 for verbatim proposals: the outcome concerns the attempt, that is its bytes."""
    if not state.outcomes:
        return None
    places: dict[str, int] = {}
    for version, entry in enumerate(state.log):
        for item in entry.operations if entry else ():
            token = entry.token if entry else 0
            places[token[0] if isinstance(token, tuple) else item.id] = version
    return disagreement(state, places)


def client_agreement(state: State) -> str | None:
    """A foreign writer with outcome committed is in that version; one that gave up is in none."""
    for number, writer in enumerate(foreign_of(state).writers):
        own = f"v{number}"
        at = [
            version
            for version, entry in enumerate(state.log)
            if entry is not None and any(operation.id == own for operation in entry.operations)
        ]
        if writer.phase == "ok" and writer.version not in at:
            return f"{own} was told version {writer.version}, the log has {at}"
        if writer.phase == "conflict" and at:
            return f"{own} gave up and is in {at[0]}"
    return None


def denied_only_gap(state: State) -> str | None:
    """Only a proposal that skips a version is denied."""
    for result in state.outcomes:
        if result.reason == "denied" and not result.id.endswith("g"):
            return f"{result.id} was denied, and was no version too far"
    return None


def denied_stays(state: State) -> str | None:
    """Not guaranteed: that a denied proposal never gets into the table."""
    denied = {result.id for result in state.outcomes if result.reason == "denied"}
    for entry in state.log:
        if entry is not None and isinstance(entry.token, tuple) and entry.token[0] in denied:
            return f"{entry.token[0]} was denied and is version {entry.token[1]}"
    return None


def of(setting: VerbatimSetting) -> Mapping[str, Invariant[Any]]:
    """Return the invariants for a setting."""

    def right_of_way(state: State) -> str | None:
        return _right_of_way(setting, state)

    return {
        "OutcomeAgreement": outcome_agreement,
        "ExactVersion": exact_version,
        "ClientAgreement": client_agreement,
        "DeniedOnlyGap": denied_only_gap,
        "DeniedStays": denied_stays,
        "RightOfWay": right_of_way,
    }


def _right_of_way(setting: VerbatimSetting, state: State) -> str | None:
    """Each refusal by native groups after the first has a cause.

    Causes are a hold that ran out, an impatient writer or a takeover. Where holds take turns, other
    writers' versions count too: losing to them starts no hold, and the turn may have been theirs.
    """
    foreign = foreign_of(state)
    takeovers = setting.native.rebalances - state.budget.rebalances
    paid = setting.expiries - foreign.extras.expiries
    paid += setting.impatient - foreign.extras.impatient
    paid += setting.refusals_per_takeover * takeovers
    for number, writer in enumerate(foreign.writers):
        allowed, own = 1 + paid, f"v{number}"
        if setting.begins == "turn" and writer.refused_for_native > allowed:
            deeds = (operation for entry in state.log if entry for operation in entry.operations)
            allowed += sum(deed.id[0] in "vx" and deed.id != own for deed in deeds)
        if writer.refused_for_native > allowed:
            result = f"{own} was refused {writer.refused_for_native} times for native groups"
            return f"{result}, {allowed} are accounted for"
    return None

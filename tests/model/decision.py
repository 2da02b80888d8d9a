"""The decision of the model's committer: a function of the log that it read, and of the rule.

It models `plan` and `decide` of the committer's machine, with `STEPS` in their order.
"""

from typing import NamedTuple

from tests.model.committer_state import Committer, Entry, Operation, Outcome, Record, Setting, State


class Decision(NamedTuple):
    """The result for the next records: what is applied, refused in the log, and answered."""

    operations: tuple[Operation, ...]
    refused: tuple[str, ...]
    outcomes: tuple[Outcome, ...]


class _Group(NamedTuple):
    """The members of an entry so far."""

    operations: list[Operation]
    refused: list[str]


def decide(setting: Setting, state: State, who: Committer, count: int) -> Decision:
    """Return a committer's decision on its next records, given what it has read."""
    view = state.log[: who.head]
    group = _Group([], [])
    result: list[Outcome] = []
    for record in state.topic[who.position : who.position + count]:
        outcome = _decided(setting, state, who, view, record, group)
        if outcome is None:
            group.operations.append(Operation(record.id, record.rows, record.removes))
            outcome = Outcome(record.id, "C", who.head)
        elif outcome.reason == "refused" and setting.refusals == "logged":
            is_new = not _settled(setting, who, view, record, group)
            if is_new:
                group.refused.append(record.id)
        result.append(outcome)
    return Decision(tuple(group.operations), tuple(group.refused), tuple(result))


def _decided(
    setting: Setting,
    state: State,
    who: Committer,
    view: tuple[Entry | None, ...],
    record: Record,
    group: _Group,
) -> Outcome | None:
    """Return the outcome of a record that is not applied, or None."""
    if record.read < state.floor:
        old = setting.too_old == "expired"
        return Outcome(record.id, "E" if old else "R", "expired" if old else "old")
    settled = _settled(setting, who, view, record, group)
    if settled and setting.looks_for_id_first:
        return settled
    if state.denies and record.id in setting.deniable:
        return Outcome(record.id, "R", "refused")
    if _conflicts(setting, view, record, group):
        return Outcome(record.id, "R", "conflict")
    return settled


def _settled(
    setting: Setting, who: Committer, view: tuple[Entry | None, ...], record: Record, group: _Group
) -> Outcome | None:
    """Return the outcome that the log after the read version, or memory, has for an id, or None."""
    own = record.id
    if setting.dedupe == "none":
        return None
    in_group = Outcome(own, "C", who.head) if _has(group.operations, own) else None
    if setting.dedupe == "memory":
        return next((item for item in who.known if item.id == own), in_group)
    for version in range(record.read, who.head):
        entry = view[version]
        if entry is None:
            continue
        if _has(entry.operations, own):
            return Outcome(own, "C", version)
        if own in entry.refused:
            return Outcome(own, "R", "refused")
    if in_group is None and own in group.refused:
        return Outcome(own, "R", "refused")
    return in_group


def _has(operations: list[Operation] | tuple[Operation, ...], own: str) -> bool:
    return any(operation.id == own for operation in operations)


def _conflicts(
    setting: Setting, view: tuple[Entry | None, ...], record: Record, group: _Group
) -> bool:
    """Whether another operation committed after the version that a rewrite had read."""
    if setting.kinds[int(record.id)] == "A":
        return False
    if any(entry is not None and entry.operations for entry in view[record.read :]):
        return True
    return setting.group_is_checked and bool(group.operations)

"""Foreign writers: they read the log, stage the bytes of the next version, and propose them.

After a refusal a writer reads the winning versions, gives up if it conflicts with them, or stages
new bytes for the same transaction. It does not look for its own transaction among the winners: if
its version is reported as taken by its own bytes, it commits the same work twice.
"""

from collections.abc import Iterator
from typing import Final

from tests.model.committer_state import Extras, Foreign, Outcome, Record, State, Writer, made_of
from tests.model.verbatim_setting import VerbatimSetting

ENDED: Final = ("ok", "conflict", "failed", "unknown")

Steps = Iterator[tuple[str, State]]


def foreign_of(state: State) -> Foreign:
    """Return the state beside the native protocol."""
    assert state.foreign is not None, "a verbatim model has foreign writers"
    return state.foreign


def transaction_of(attempt: str) -> str:
    """Return the transaction that an attempt belongs to."""
    return attempt.partition(".")[0]


def writers(setting: VerbatimSetting, state: State) -> Steps:
    """Yield what foreign writers, the gateway and the staging area may do next."""
    foreign = foreign_of(state)
    for number, writer in enumerate(foreign.writers):
        own = f"v{number}"
        match writer.phase:
            case "new" | "refused":
                yield from _begins(setting, state, number, writer)
            case "staged":
                record = Record(writer.attempt, writer.version, writer.rows, writer.removes)
                sent = writer._replace(phase="sent", rows=(), removes=frozenset())
                after = _with(state, number, sent)._replace(topic=(*state.topic, record))
                yield f"{own} proposes {writer.attempt} as version {writer.version}", after
            case "sent":
                for result in state.outcomes:
                    if result.id == writer.attempt:
                        yield _receives(state, number, writer, result)
                if foreign.extras.impatient:
                    extras = foreign.extras._replace(impatient=foreign.extras.impatient - 1)
                    again = _idle(writer, "refused")._replace(refused=writer.refused + 1)
                    yield f"{own} loses patience", _spent(_with(state, number, again), extras)
        yield from _mishaps(state, own)


def _begins(setting: VerbatimSetting, state: State, number: int, writer: Writer) -> Steps:
    own, kind = f"v{number}", setting.writers[number]
    late = state.log[writer.version :] if writer.phase == "refused" else ()
    if kind == "W" and any(entry is not None and entry.operations for entry in late):
        given_up = _idle(writer, "conflict")
        yield f"{own} conflicts with a winner and gives up", _with(state, number, given_up)
        return
    if writer.refused >= setting.attempts:
        yield f"{own} ends", _with(state, number, _idle(writer, "failed"))
        return
    head = len(state.log)
    yield f"{own} stages bytes for version {head}", _staged(state, number, kind, head, "")
    foreign = foreign_of(state)
    if foreign.extras.gaps and writer.phase == "new" and kind in setting.gap_kinds:
        extras = foreign.extras._replace(gaps=foreign.extras.gaps - 1)
        far = _staged(state, number, kind, head + 1, "g")
        yield f"{own} stages bytes for version {head + 1}, one too far", _spent(far, extras)


def _staged(state: State, number: int, kind: str, version: int, mark: str) -> State:
    writer, own = foreign_of(state).writers[number], f"v{number}"
    made = made_of(state.log, kind, own)
    staged = writer._replace(
        phase="staged",
        version=version,
        attempt=f"{own}.{writer.refused}{mark}",
        rows=made.rows,
        removes=made.removes,
    )
    return _with(state, number, staged)


def _receives(state: State, number: int, writer: Writer, told: Outcome) -> tuple[str, State]:
    own = f"v{number}"
    if told.status == "C":
        done = _idle(writer, "ok")._replace(version=int(told.reason))
        return f"{own} is told version {told.reason}", _with(state, number, done)
    if told.status == "E":
        phase = "unknown" if told.reason == "expired" else "failed"
        over = _idle(writer, "unknown" if phase == "unknown" else "failed")
        return f"{own} is told {told.reason}", _with(state, number, over)
    winner = state.log[writer.version]
    is_native = winner is not None and isinstance(winner.token, int) and winner.token > 0
    refused = _idle(writer, "refused")._replace(
        refused=writer.refused + 1, refused_for_native=writer.refused_for_native + is_native
    )
    return f"{own} is told that {writer.version} is taken", _with(state, number, refused)


def _mishaps(state: State, own: str) -> Steps:
    """Lose a staged file, or let a gateway repeat a proposal."""
    foreign = foreign_of(state)
    extras = foreign.extras
    mine = [record for record in state.topic if transaction_of(record.id) == own]
    if extras.spoils:
        for attempt in sorted({record.id for record in mine} - foreign.lost):
            lost = foreign._replace(
                lost=foreign.lost | {attempt}, extras=extras._replace(spoils=extras.spoils - 1)
            )
            yield f"the staged file of {attempt} is lost", state._replace(foreign=lost)
    if extras.replays:
        first = {record.id: record for record in reversed(mine)}
        spent = extras._replace(replays=extras.replays - 1)
        for attempt in sorted(first):
            again = state._replace(topic=(*state.topic, first[attempt]))
            yield f"{attempt} is proposed again", _spent(again, spent)


def _idle(writer: Writer, phase: str) -> Writer:
    """Return a writer with nothing staged."""
    return writer._replace(phase=phase, attempt="", rows=(), removes=frozenset())  # type: ignore[arg-type]  # _replace knows no literals


def _with(state: State, number: int, writer: Writer) -> State:
    foreign = foreign_of(state)
    others = foreign.writers
    changed = (*others[:number], writer, *others[number + 1 :])
    return state._replace(foreign=foreign._replace(writers=changed))


def _spent(state: State, extras: Extras) -> State:
    return state._replace(foreign=foreign_of(state)._replace(extras=extras))

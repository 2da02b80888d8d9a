"""Makes a case smaller while the same difference stays."""

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce, singledispatch

from tests.judge.cases import Append, Case, Delete, Frame, Merge, Overwrite, Update, Verb
from tests.judge.comparison import Difference, Judge


def shrunk(
    judge: Judge, case: Case, difference: Difference, runs_max: int
) -> tuple[Case, Difference]:
    """Return the smallest case with the same signature that some runs find."""
    runs = 0
    smaller = True
    tried: set[str] = set()
    while smaller and runs < runs_max:
        smaller = False
        for candidate in candidates(case):
            if repr(candidate) in tried:
                continue
            tried.add(repr(candidate))
            if runs >= runs_max:
                break
            runs += 1
            found = [
                item for item in judge.check(candidate) if item.signature == difference.signature
            ]
            if found:
                case, difference, smaller = candidate, found[0], True
                break
    return case, difference


def candidates(case: Case) -> Iterator[Case]:
    """Yield smaller cases: fewer columns, verbs, properties, rows."""
    for names in _halves(case):
        yield reduce(_without, names, case)
    yield from _fewer_verbs(case)
    yield from _plainer(case)
    for column in case.columns:
        yield _without(case, column.name)
    for rows in _fewer(case.rows):
        yield replace(case, rows=rows)
    for at, verb in enumerate(case.verbs):
        for smaller in _smaller(verb):
            yield replace(case, verbs=(*case.verbs[:at], smaller, *case.verbs[at + 1 :]))


def _fewer_verbs(case: Case) -> Iterator[Case]:
    count = len(case.verbs)
    if count > 2:
        yield replace(case, verbs=case.verbs[count - 1 :])
        yield replace(case, verbs=case.verbs[: count // 2])
    for at in reversed(range(count)):
        yield replace(case, verbs=case.verbs[:at] + case.verbs[at + 1 :])


def _plainer(case: Case) -> Iterator[Case]:
    """Yield a case with fewer properties, without partitions, clustering or another's files."""
    if len(case.properties) > 1:
        yield replace(case, properties={})
    for name in case.properties:
        left = {key: value for key, value in case.properties.items() if key != name}
        yield replace(case, properties=left)
    if case.origin != "each":
        yield replace(case, origin="each")
    if case.by:
        yield replace(case, by=(), in_other_case=False)
    if case.clustered:
        yield replace(case, clustered=())


def _halves(case: Case) -> Iterator[list[str]]:
    """Yield halves of the columns of a wide case."""
    names = [column.name for column in case.columns]
    if len(names) > 3:
        yield names[: len(names) // 2]
        yield names[len(names) // 2 :]


def _without(case: Case, name: str) -> Case:
    """Return a case without a column, in rows, too."""
    return replace(
        case,
        columns=tuple(column for column in case.columns if column.name != name),
        by=tuple(column for column in case.by if column != name),
        rows=_narrower(case.rows, name),
        verbs=tuple(_without_column(verb, name) for verb in case.verbs),
    )


def _without_column(verb: Verb, name: str) -> Verb:
    if isinstance(verb, Append | Overwrite):
        return replace(verb, rows=_narrower(verb.rows, name))
    if isinstance(verb, Merge) and verb.rows is not None:
        return replace(verb, rows=_narrower(verb.rows, name))
    return verb


def _narrower(frame: Frame, name: str) -> Frame:
    kept = [at for at, known in enumerate(frame.names) if known.lower() != name.lower()]
    return Frame(
        tuple(frame.names[at] for at in kept),
        tuple(frame.types[at] for at in kept),
        tuple(tuple(row[at] for at in kept) for row in frame.rows),
    )


def _fewer(frame: Frame) -> Iterator[Frame]:
    count = len(frame.rows)
    if count > 1:
        yield replace(frame, rows=frame.rows[:1])
    for at in range(count):
        yield replace(frame, rows=frame.rows[:at] + frame.rows[at + 1 :])


@singledispatch
def _smaller(verb: Verb) -> Iterator[Verb]:
    yield from ()


@_smaller.register
def _(verb: Append) -> Iterator[Verb]:
    for rows in _smaller_frames(verb.rows):
        yield replace(verb, rows=rows)


@_smaller.register
def _(verb: Overwrite) -> Iterator[Verb]:
    for rows in _smaller_frames(verb.rows):
        yield replace(verb, rows=rows)


@_smaller.register
def _(verb: Merge) -> Iterator[Verb]:
    for at, clause in enumerate(verb.clauses):
        if len(verb.clauses) > 1:
            yield replace(verb, clauses=verb.clauses[:at] + verb.clauses[at + 1 :])
        if clause.condition is not None:
            bare = replace(clause, condition=None)
            yield replace(verb, clauses=(*verb.clauses[:at], bare, *verb.clauses[at + 1 :]))
    if verb.rows is not None:
        for rows in _smaller_frames(verb.rows):
            yield replace(verb, rows=rows)
    if verb.evolves:
        yield replace(verb, evolves=False)


@_smaller.register
def _(verb: Update) -> Iterator[Verb]:
    if len(verb.assigned) > 1:
        for at in range(len(verb.assigned)):
            yield replace(verb, assigned=verb.assigned[:at] + verb.assigned[at + 1 :])
    if verb.condition is not None:
        yield replace(verb, condition=None)


@_smaller.register
def _(verb: Delete) -> Iterator[Verb]:
    if verb.condition is not None:
        yield replace(verb, condition=None)


def _smaller_frames(frame: Frame) -> Iterator[Frame]:
    yield from _fewer(frame)
    for name in frame.names:
        yield _narrower(frame, name)

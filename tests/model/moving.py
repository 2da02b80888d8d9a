"""A table that moves between two topic partitions: owners, zombies, crashes within a move, late
records.

Each partition has an owner; a takeover makes the old one a zombie, which may still do what it was
about to do. An owner serves the table if the registry, as it last read it, says so. The registry
has a record for each partition, which one with a lower number does not replace; of two records the
one with the higher number counts, then the lower partition.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tests.model.checker import Invariant


@dataclass(frozen=True)
class MovingSetting:
    """The size of the world, and the rules that a mutant lacks.

    `numbers`: a move raises the record's number. `flushes`: versions are published before the
    record that counts them. `reads_again`: who does not serve the table reads the registry before
    it denies. `knows_ids`: a proposal is looked up in the log by its id after a move, too.
    `withdraws`: a second write takes back the record of the old partition. `keeps`: a record of a
    lower number replaces none. `remembers`: a request that is delivered again is known by what each
    partition has carried out.
    """

    proposals: int = 2
    moves: tuple[int, ...] = (1,)
    takeovers: int = 1
    late: int = 1
    sends: int = 6
    numbers: bool = True
    flushes: bool = True
    reads_again: bool = True
    knows_ids: bool = True
    withdraws: bool = False
    keeps: bool = True
    remembers: bool = True


class Registration(NamedTuple):
    """A record of the registry: the home, its number, and how many versions were published.

    `done` is the offset of the last move that each partition has carried out.
    """

    home: int
    number: int
    through: int
    done: tuple[int, int] = (-1, -1)


Registry = tuple[Registration | None, Registration | None]


class Flight(NamedTuple):
    """A PUT: the proposal, its version, and what the store answered, None until it has landed."""

    proposal: int
    version: int
    won: bool | None = None


class Process(NamedTuple):
    """An owner of a topic partition, or one that was. `record` is the registration as it knows it.

    `serves` is whether it serves the table, from the log up to `seen`. `taken` is the offset of the
    record that it handles. `unpublished` are versions whose outcomes are published, and they are
    not. `moved_to` is set from the registration of a move until its request is answered.
    """

    home: int
    serves: bool
    record: Registration
    seen: int
    position: int
    taken: int | None = None
    flight: Flight | None = None
    moved_to: int | None = None
    unpublished: frozenset[int] = frozenset()
    is_zombie: bool = False


class State(NamedTuple):
    """The whole state.

    `topics` has each partition's records: proposals, and moves as -1 - target. `offsets` are those
    of the group. `answered` are the records with an outcome, `committed` the outcomes that promise
    a version, `views` where each writer sends next, and `sends` how often it still may.
    """

    log: tuple[int, ...]
    registry: Registry
    topics: tuple[tuple[int, ...], tuple[int, ...]]
    offsets: tuple[int, int]
    processes: tuple[Process, ...]
    network: frozenset[Flight]
    committed: frozenset[tuple[int, int]]
    published: frozenset[int]
    views: tuple[int, ...]
    sends: tuple[int, ...]
    moves: tuple[int, ...]
    last_move: int
    takeovers: int
    late: int


Steps = Iterator[tuple[str, State]]


def counting(registry: Iterable[Registration | None]) -> Registration:
    """Return the record that counts."""
    records = [record for record in registry if record is not None]
    return min(records, key=lambda record: (-record.number, record.home))


@dataclass(frozen=True)
class Moving:
    """The model with a setting."""

    setting: MovingSetting

    @property
    def invariants(self) -> Mapping[str, Invariant[State]]:
        """The invariants."""
        return {"ExactlyOnce": once, "Agreement": agreement, "NotUndone": not_undone}

    def starts(self) -> Iterable[State]:
        """Return the initial state: partition 0 serves a table with one version."""
        record = Registration(0, 0, 1)
        owners = (Process(0, True, record, 1, 0), Process(1, False, record, 1, 0))
        setting = self.setting
        yield State(
            log=(-1,),
            registry=(record, None),
            topics=((), ()),
            offsets=(0, 0),
            processes=owners,
            network=frozenset(),
            committed=frozenset(),
            published=frozenset({0}),
            views=(0,) * setting.proposals,
            sends=(setting.sends,) * setting.proposals,
            moves=setting.moves,
            last_move=0,
            takeovers=setting.takeovers,
            late=setting.late,
        )

    def is_done(self, state: State) -> bool:
        """Whether every proposal is promised, every version published, and every move made."""
        promised = {proposal for proposal, _ in state.committed}
        is_all = promised == set(range(self.setting.proposals)) and not state.moves
        return is_all and state.published >= set(range(len(state.log)))

    def serves(self, label: str) -> bool:
        """Return True: no wait is checked here, see `is_done`."""
        return True

    def steps(self, state: State) -> Steps:
        """Yield the next steps."""
        yield from self._sends(state)
        for flight in state.network:
            yield from _lands(state, flight)
        for number, process in enumerate(state.processes):
            if not process.is_zombie:
                yield from self._takes(state, number, process)
                yield from self._is_taken_over(state, number, process)
            else:
                yield from self._speaks_late(state, number, process)
            yield from _publishes(state, number, process)
            yield from self._goes_on(state, number, process)

    def _sends(self, state: State) -> Steps:
        promised = {proposal for proposal, _ in state.committed}
        for proposal, home in enumerate(state.views):
            waiting = state.topics[home][state.offsets[home] :]
            may_send = state.sends[proposal] > 0 and proposal not in waiting
            if proposal not in promised and may_send:
                sends = list(state.sends)
                sends[proposal] -= 1
                sent = _sent(state, home, proposal)._replace(sends=tuple(sends))
                yield f"w{proposal} sends to {home}", sent
        if state.moves:
            home = counting(state.registry).home
            asked = -1 - state.moves[0]
            if asked not in state.topics[home][state.offsets[home] :]:
                yield f"a move to {state.moves[0]} is sent", _sent(state, home, asked)
        if state.late:
            for proposal in range(self.setting.proposals):
                for home in (0, 1):
                    if any(proposal in topic for topic in state.topics):
                        late = _sent(state, home, proposal)._replace(late=state.late - 1)
                        yield f"w{proposal} arrives late on {home}", late

    def _takes(self, state: State, number: int, process: Process) -> Steps:
        """An owner takes its next record, and answers what it need not write."""
        records = state.topics[process.home]
        if process.taken is not None or process.position == len(records):
            return
        asked = records[process.position]
        if not process.serves:
            record = counting(state.registry) if self.setting.reads_again else process.record
            if record.home == process.home:
                served = process._replace(serves=True, record=record, seen=len(state.log))
                after = _with(state, number, served)
                missed = frozenset(range(record.through, len(state.log)))
                after = after._replace(published=after.published | missed)
                yield f"{number} finds itself the home", after
                return
            views = state.views
            if asked >= 0:
                views = (*views[:asked], record.home, *views[asked + 1 :])
            denied = _with(state, number, process._replace(position=process.position + 1))
            denied = denied._replace(views=views, offsets=_past(state, process))
            yield f"{number} denies {asked}", denied
            return
        taken = process._replace(taken=process.position, position=process.position + 1)
        yield f"{number} takes {asked}", _with(state, number, taken)

    def _goes_on(self, state: State, number: int, process: Process) -> Steps:
        """A process goes on with the record that it has taken, be it a zombie by now."""
        if process.taken is None:
            return
        asked = state.topics[process.home][process.taken]
        if process.moved_to is not None:
            yield self._closes(state, number, process)
        elif asked < 0:
            yield from self._moves(state, number, process, -1 - asked)
        elif process.flight is None:
            yield from self._decides(state, number, process, asked)
        else:
            yield from self._hears(state, number, process, process.flight)

    def _decides(self, state: State, number: int, process: Process, asked: int) -> Steps:
        known = state.log[: process.seen]
        if asked in known and (self.setting.knows_ids or process.record.number == 0):
            yield (
                f"{number} finds {asked} in the log",
                _answered(state, number, process, asked, known.index(asked)),
            )
            return
        flight = Flight(asked, process.seen)
        sent = _with(state, number, process._replace(flight=flight))
        yield f"{number} puts {asked}", sent._replace(network=state.network | {flight})

    def _hears(self, state: State, number: int, process: Process, flight: Flight) -> Steps:
        """The answer of the store: it won, by its bytes also where a twin did; or it lost."""
        if flight in state.network:
            return
        is_there = len(state.log) > flight.version and state.log[flight.version] == flight.proposal
        if is_there:
            won = process._replace(seen=flight.version + 1, flight=None)
            yield (
                f"{number} has won",
                _answered(state, number, won, flight.proposal, flight.version),
            )
        else:
            lost = process._replace(seen=len(state.log), flight=None)
            yield f"{number} has lost", _with(state, number, lost)

    def _moves(self, state: State, number: int, process: Process, to: int) -> Steps:
        """The write that moves the table: its registration on the new partition."""
        through = process.seen
        raised = process.record.number + (1 if self.setting.numbers else 0)
        assert process.taken is not None, "it has taken a request"
        is_over = self.setting.remembers and process.taken <= process.record.done[process.home]
        if to == process.home or is_over:
            answered = process._replace(taken=None)
            after = _with(state, number, answered)._replace(offsets=_past(state, process))
            yield f"{number} need not move it", after if is_over else _made(after, to)
            return
        done = list(process.record.done)
        done[process.home] = process.taken
        record = Registration(to, raised, through, (done[0], done[1]))
        registry = _registered(state.registry, record, to, keeps=self.setting.keeps)
        published = state.published
        if self.setting.flushes:
            published |= process.unpublished
        gone = process._replace(moved_to=to, record=record, unpublished=frozenset())
        after = _with(state, number, gone)
        after = after._replace(registry=registry, published=published)
        yield f"{number} moves the table to {to}", _made(after, to)

    def _closes(self, state: State, number: int, process: Process) -> tuple[str, State]:
        """The request is answered; a mutant takes back its own record first."""
        closed = process._replace(serves=False, moved_to=None, taken=None)
        after = _with(state, number, closed)
        if self.setting.withdraws:
            kept = state.registry[1 - process.home]
            registry = (None, kept) if process.home == 0 else (kept, None)
            after = after._replace(registry=registry)
        if not process.is_zombie:
            after = after._replace(offsets=_past(state, process))
        return f"{number} serves it no longer", after

    def _speaks_late(self, state: State, number: int, process: Process) -> Steps:
        """A zombie publishes the registration that it knows, on its own partition."""
        if process.serves and process.record.home == process.home:
            gone = process._replace(serves=False, taken=None, flight=None)
            registry = _registered(
                state.registry, process.record, process.home, keeps=self.setting.keeps
            )
            after = _with(state, number, gone)._replace(registry=registry)
            yield f"zombie {number} publishes its registration", after

    def _is_taken_over(self, state: State, number: int, process: Process) -> Steps:
        """Another process gets the topic partition; this one does not know it yet."""
        if not state.takeovers:
            return
        record = counting(state.registry)
        serves = record.home == process.home
        successor = Process(
            process.home, serves, record, len(state.log), state.offsets[process.home]
        )
        published = state.published
        if serves:
            published |= frozenset(range(record.through, len(state.log)))
        processes = list(state.processes)
        processes[number] = successor
        zombie = process._replace(is_zombie=True)
        yield (
            f"{number} is taken over",
            state._replace(
                processes=(*processes, zombie), published=published, takeovers=state.takeovers - 1
            ),
        )


def _registered(
    registry: Registry, record: Registration, partition: int, *, keeps: bool
) -> Registry:
    """Return the registry with a record on a partition, unless that has one of a higher number."""
    known = registry[partition]
    if keeps and known is not None and known.number > record.number:
        return registry
    return (record, registry[1]) if partition == 0 else (registry[0], record)


def _publishes(state: State, number: int, process: Process) -> Steps:
    """A process publishes versions, then the registration that counts them."""
    if not process.unpublished or not process.serves or process.moved_to is not None:
        return
    record = process.record._replace(through=process.seen)
    done = _with(state, number, process._replace(unpublished=frozenset(), record=record))
    registry = _registered(state.registry, record, process.home, keeps=True)
    after = done._replace(published=state.published | process.unpublished, registry=registry)
    yield f"{number} publishes its versions", after


def _lands(state: State, flight: Flight) -> Steps:
    arrived = state._replace(network=state.network - {flight})
    if len(state.log) == flight.version:
        arrived = arrived._replace(log=(*state.log, flight.proposal))
    yield f"the PUT of {flight.proposal} as version {flight.version} arrives", arrived


def _answered(state: State, number: int, process: Process, asked: int, version: int) -> State:
    """Return the state once an outcome, and the version, are published."""
    unpublished = process.unpublished | {version}
    after = _with(state, number, process._replace(taken=None, unpublished=unpublished))
    after = after._replace(committed=state.committed | {(asked, version)})
    if process.is_zombie:
        return after
    return after._replace(offsets=_past(state, process))


def _past(state: State, process: Process) -> tuple[int, int]:
    offsets = list(state.offsets)
    taken = process.position if process.taken is None else process.taken
    offsets[process.home] = max(offsets[process.home], taken + 1)
    return (offsets[0], offsets[1])


def _made(state: State, to: int) -> State:
    if not state.moves or state.moves[0] != to:
        return state
    return state._replace(moves=state.moves[1:], last_move=to)


def _sent(state: State, home: int, record: int) -> State:
    topics = list(state.topics)
    topics[home] = (*topics[home], record)
    return state._replace(topics=(topics[0], topics[1]))


def _with(state: State, number: int, process: Process) -> State:
    processes = list(state.processes)
    processes[number] = process
    return state._replace(processes=tuple(processes))


def once(state: State) -> str | None:
    """No proposal is in the log twice."""
    twice = [each for each in state.log if state.log.count(each) > 1]
    return f"{twice[0]} is in the log twice" if twice else None


def agreement(state: State) -> str | None:
    """What an outcome promises is in the log, at that version."""
    for proposal, version in state.committed:
        if len(state.log) <= version or state.log[version] != proposal:
            return f"{proposal} was promised as version {version}"
    return None


def not_undone(state: State) -> str | None:
    """The home that counts is that of the last move."""
    home = counting(state.registry).home
    return None if home == state.last_move else f"the home is {home} again"

"""The line before a desk: in the order of arrival, and fair where there are too many for one entry.

Who sends a flood waits behind himself. The producer's name is a claim, so it orders the line and
gives no rights.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from tidegate.committer.proposals.candidate import Candidate
from tidegate.committer.proposals.intake import full_size


@dataclass(frozen=True)
class Waiting:
    """A candidate in the line, and when it came. Units: `since_s` by `Clock.boot_s`."""

    candidate: Candidate
    since_s: float


@dataclass
class Line:
    """Who waits, first come first. `last` are the producers of those who were served last."""

    waiting: deque[Waiting] = field(default_factory=deque)
    last: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return len(self.waiting)

    def __bool__(self) -> bool:
        return bool(self.waiting)

    def __getitem__(self, place: int) -> Waiting:
        return self.waiting[place]

    def join(self, candidate: Candidate, now_s: float) -> None:
        """Stand at the end."""
        self.waiting.append(Waiting(candidate, now_s))

    def replace(self, place: int, candidate: Candidate) -> None:
        """Let a candidate take the place of an earlier form of itself."""
        self.waiting[place] = Waiting(candidate, self.waiting[place].since_s)

    def bring_forward(self, place: int) -> None:
        """Let who stands at a place stand first."""
        if place:
            one = self.waiting[place]
            del self.waiting[place]
            self.waiting.appendleft(one)

    def first_verbatim(self) -> int | None:
        """Return the place of the first who brings ready bytes, or None."""
        places = (place for place, one in enumerate(self.waiting) if one.candidate.is_verbatim)
        return next(places, None)

    def head(self, start: int, count: int) -> Iterator[Candidate]:
        """Yield up to `count` candidates from place `start` on."""
        return (one.candidate for one in islice(self.waiting, start, start + count))

    def batch(self, start: int, most: int, bytes_max: int) -> Iterator[Candidate]:
        """Yield as many from a place on as may share an entry, claims included."""
        size = 0
        for place, candidate in enumerate(self.head(start, most - start)):
            size += full_size(candidate)
            if candidate.is_verbatim or ((start or place) and size > bytes_max):
                return
            yield candidate

    def served(self, count: int) -> None:
        """Let the first ones go."""
        if count:
            self.last = _producers(self.waiting, count)
        for _ in range(count):
            self.waiting.popleft()

    def everybody(self) -> list[Waiting]:
        """Return all, and leave the line empty."""
        all_of_them, self.waiting = list(self.waiting), deque()
        return all_of_them

    def share_out(self, start: int, count: int) -> None:
        """Bring a fair choice of `count` to place `start`: each producer in turn, oldest first.

        Whose turn it was in the entry before comes after the others: those who stand before
        `start`, or were served last. Where an entry holds one proposal, too, nobody starves.
        Law: nobody is lost, the order of each producer's own is kept, and where all fit nothing
        moves. The chosen stand in the order of arrival.
        """
        if len(self.waiting) - start <= count:
            return
        before = _producers(self.waiting, start) if start else self.last
        behind = islice(self.waiting, start, None)
        chosen = _fresh(behind, count, before)
        if len(chosen) < count:
            chosen = sorted(_in_turn(list(self.waiting)[start:], count, before))
        for moved, place in enumerate(chosen):
            self._move(start + place, start + moved)

    def _move(self, place: int, to: int) -> None:
        if place != to:
            one = self.waiting[place]
            del self.waiting[place]
            self.waiting.insert(to, one)


def _producers(waiting: deque[Waiting], count: int) -> frozenset[str]:
    return frozenset(one.candidate.producer for one in islice(waiting, count))


def _fresh(waiting: Iterator[Waiting], count: int, before: frozenset[str]) -> list[int]:
    """Return the places of the first `count` producers who had no turn before, or of fewer.

    Where there are so many, they are those whose turn it is: nearly always, and then nobody behind
    them needs to be looked at.
    """
    chosen: list[int] = []
    seen = set(before)
    for place, one in enumerate(waiting):
        producer = one.candidate.producer
        if producer not in seen:
            seen.add(producer)
            chosen.append(place)
            if len(chosen) == count:
                break
    return chosen


def _in_turn(waiting: list[Waiting], count: int, before: frozenset[str]) -> set[int]:
    """Return the places of those who are served when each producer has his turn, those who had one
    `before` after the others.
    """
    queues: dict[str, deque[int]] = {}
    for place, one in enumerate(waiting):
        queues.setdefault(one.candidate.producer, deque()).append(place)
    chosen: set[int] = set()
    in_turn = sorted(queues, key=before.__contains__)
    while len(chosen) < count:
        for producer in [one for one in in_turn if one in queues]:
            chosen.add(queues[producer].popleft())
            if not queues[producer]:
                del queues[producer]
            if len(chosen) == count:
                break
    return chosen

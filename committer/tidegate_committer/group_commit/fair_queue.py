"""The queue of a table's waiting candidates: by arrival, and fair between producers under load.

A producer that floods the table delays only itself. The producer's name is a header that is not
verified, so it only affects the order and grants nothing.

Rewrites, which pack files and change no rows, let other proposals go first, for REWRITE_WAITS_S at
most.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from itertools import islice
from math import inf
from typing import Final

from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.proposal_reader import full_size

REWRITE_WAITS_S: Final = 5.0
"""How long a rewrite lets proposals go first that came after it. In seconds."""


@dataclass(frozen=True)
class QueuedCandidate:
    """A candidate in the queue, and when it was queued. Units: `since_s` by `Clock.boot_s`."""

    candidate: Candidate
    since_s: float


@dataclass
class FairQueue:
    """The waiting candidates, oldest first. `last` are the producers of those decided last;
    `deferred` are the candidates that are out of the queue while something is read for them;
    `behind` are rewrites that let others go first, and what must come after these.

    Law: while a candidate is behind, another one waits or is deferred
    """

    waiting: deque[QueuedCandidate] = field(default_factory=deque)
    last: frozenset[str] = frozenset()
    deferred: list[QueuedCandidate] = field(default_factory=list)
    behind: list[QueuedCandidate] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.waiting)

    def __bool__(self) -> bool:
        return bool(self.waiting or self.deferred or self.behind)

    def __getitem__(self, place: int) -> QueuedCandidate:
        return self.waiting[place]

    def join(self, candidate: Candidate, now_s: float) -> None:
        """Add a candidate at the end: a rewrite behind all others that wait."""
        queued = QueuedCandidate(candidate, now_s)
        if self.behind or candidate.is_rewrite:
            self.behind.append(queued)
            self._bring_up(len(self.waiting))
        else:
            self.waiting.append(queued)

    def replace(self, place: int, candidate: Candidate) -> None:
        """Replace the candidate at a place by the same one with its claim check read."""
        self.waiting[place] = QueuedCandidate(candidate, self.waiting[place].since_s)

    def bring_forward(self, place: int) -> None:
        """Move the candidate at a place to the front."""
        if place:
            queued = self.waiting[place]
            del self.waiting[place]
            self.waiting.appendleft(queued)

    def first_verbatim(self) -> int | None:
        """Return the place of the first verbatim candidate, or None."""
        places = (
            place for place, queued in enumerate(self.waiting) if queued.candidate.is_verbatim
        )
        return next(places, None)

    def head(self, start: int, count: int) -> Iterator[Candidate]:
        """Yield up to `count` candidates from place `start` on."""
        return (queued.candidate for queued in islice(self.waiting, start, start + count))

    def batch(self, start: int, most: int, bytes_max: int) -> Iterator[Candidate]:
        """Yield candidates from a place on, as many as fit an entry by count and by size,
        claim-check files included. A verbatim candidate ends the batch.
        """
        size = 0
        for place, candidate in enumerate(self.head(start, most - start)):
            size += full_size(candidate)
            if candidate.is_verbatim or ((start or place) and size > bytes_max):
                return
            yield candidate

    def served(self, count: int) -> None:
        """Remove the first `count` candidates, which have their verdicts."""
        if count:
            self.last = _producers(self.waiting, count)
        for _ in range(count):
            self.waiting.popleft()
        self._bring_up(len(self.waiting))

    def leave(self, offsets: Collection[int]) -> None:
        """Remove the candidates with these offsets."""
        self.waiting = deque(
            queued for queued in self.waiting if queued.candidate.offset not in offsets
        )
        self.deferred = [
            queued for queued in self.deferred if queued.candidate.offset not in offsets
        ]
        self.behind = [queued for queued in self.behind if queued.candidate.offset not in offsets]
        self._bring_up(len(self.waiting))

    def everybody(self) -> list[QueuedCandidate]:
        """Remove all candidates, those set aside too, and return them."""
        all_of_them = [*self.deferred, *self.waiting, *self.behind]
        self.waiting, self.deferred, self.behind = deque(), [], []
        return all_of_them

    def defer(self, start: int, count: int, needs: Callable[[Candidate], bool]) -> None:
        """Set aside the candidates that need something, among `count` from place `start` on.

        Law: a candidate that may depend on one set aside is set aside behind it (`_series`)
        """
        behind = islice(self.waiting, start, start + count)
        if not self.deferred and not any(needs(queued.candidate) for queued in behind):
            return
        series = {_series(queued.candidate) for queued in self.deferred} - {None}
        place, end = start, min(start + count, len(self.waiting))
        while place < end:
            queued = self.waiting[place]
            candidate_series = _series(queued.candidate)
            if candidate_series in series or needs(queued.candidate):
                del self.waiting[place]
                self.deferred.append(queued)
                series |= {candidate_series} - {None}
                end -= 1
            else:
                place += 1
        self._bring_up(len(self.waiting))

    def remove_deferred(self, is_removed: Callable[[Candidate], bool]) -> list[Candidate]:
        """Remove some of the candidates that are set aside, and return them."""
        removed = [queued.candidate for queued in self.deferred if is_removed(queued.candidate)]
        self.deferred = [queued for queued in self.deferred if queued.candidate not in removed]
        self._bring_up(len(self.waiting))
        return removed

    def bring_back(self, start: int) -> None:
        """Move the candidates that are set aside back into the queue, from place `start` on."""
        for place, queued in enumerate(self.deferred, start):
            self.waiting.insert(place, queued)
        self.deferred = []
        self._bring_up(len(self.waiting))

    def _bring_up(self, start: int = 0, overdue_s: float = -inf) -> None:
        """Move into the queue, from place `start` on, what need not be behind.

        That is a rewrite if no other candidate waits, all rewrites from before `overdue_s`, and
        what comes after no rewrite, and nothing deferred, in its series.
        """
        if not self.behind:
            return
        is_idle, left = not self.waiting, list[QueuedCandidate]()
        series = {_series(queued.candidate) for queued in self.deferred} - {None}
        for queued in self.behind:
            own = _series(queued.candidate)
            is_held = queued.candidate.is_rewrite and queued.since_s >= overdue_s and not is_idle
            if is_held or own in series:
                left.append(queued)
                series |= {own} - {None}
            else:
                is_idle = False
                self.waiting.insert(self._place_by_arrival(queued, start), queued)
        self.behind = left

    def _place_by_arrival(self, queued: QueuedCandidate, start: int) -> int:
        """Return the place after all that came before a candidate, and after its own series."""
        own, place = _series(queued.candidate), min(start, len(self.waiting))
        for index, other in enumerate(islice(self.waiting, start, None), start + 1):
            is_own = own is not None and _series(other.candidate) == own
            if is_own or other.since_s <= queued.since_s:
                place = index
        return place

    def share_out(self, start: int, count: int, now_s: float) -> None:
        """Move a fair choice of `count` candidates to place `start`: producers in turn, oldest
        first. Rewrites that have waited for REWRITE_WAITS_S are among those to choose from.

        Producers with a turn in the entry before (those before `start`, else those decided last)
        come after the others, so that none starves even if an entry holds one proposal.
        Law: no candidate is lost, each producer's candidates keep their order, and if all fit
        nothing moves. The chosen keep the order of arrival.
        """
        self._bring_up(start, now_s - REWRITE_WAITS_S)
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
            queued = self.waiting[place]
            del self.waiting[place]
            self.waiting.insert(to, queued)


def _series(candidate: Candidate) -> str | None:
    """Return the name of the series in which a candidate keeps its order: its producer, or without
    one its application; None if it has neither.
    """
    if candidate.producer:
        return f"producer {candidate.producer}"
    return next((f"application {txn.app_id}" for txn in candidate.txns), None)


def _producers(waiting: deque[QueuedCandidate], count: int) -> frozenset[str]:
    return frozenset(queued.candidate.producer for queued in islice(waiting, count))


def _fresh(waiting: Iterator[QueuedCandidate], count: int, before: frozenset[str]) -> list[int]:
    """Return the places of the oldest candidate of each of `count` producers without a turn before.

    There are nearly always enough; then the rest of the queue need not be read.
    """
    chosen: list[int] = []
    seen = set(before)
    for place, queued in enumerate(waiting):
        producer = queued.candidate.producer
        if producer not in seen:
            seen.add(producer)
            chosen.append(place)
            if len(chosen) == count:
                break
    return chosen


def _in_turn(waiting: list[QueuedCandidate], count: int, before: frozenset[str]) -> set[int]:
    """Return `count` places, one producer after the other; the producers of `before` come last."""
    queues: dict[str, deque[int]] = {}
    for place, queued in enumerate(waiting):
        queues.setdefault(queued.candidate.producer, deque()).append(place)
    chosen: set[int] = set()
    in_turn = sorted(queues, key=before.__contains__)
    while len(chosen) < count:
        for producer in [producer for producer in in_turn if producer in queues]:
            chosen.add(queues[producer].popleft())
            if not queues[producer]:
                del queues[producer]
            if len(chosen) == count:
                break
    return chosen

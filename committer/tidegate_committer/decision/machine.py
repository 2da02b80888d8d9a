"""The committer's pure core: verdicts on proposals, given a table's state.

    batch ──plan──▶ group + verdicts ──▶ one entry ──put-if-absent─▶ VersionLanded ──evolve──▶ state

Several proposals may share an entry (group commit): each is decided against the versions it has not
read and against the members before it, as if these had landed. The first proposal that cannot share
the entry closes the group and opens the next.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidegate_committer.admission.tidegate_properties import within_group_limits
from tidegate_committer.decision.decision_types import Consider, DecisionInput, Verdict, target_of
from tidegate_committer.decision.steps import CANCEL_STEPS, QUESTION_STEPS, STEPS, Step
from tidegate_committer.group_commit.grouping import Group
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.policy import Policy
from tidegate_committer.state.fetched_inputs import NOTHING, FetchedInputs
from tidegate_committer.state.log_entry import Entry
from tidegate_committer.state.table_state import TableState, advance
from tidegate_committer.verbatim.verbatim_validation import AnsweredBytes, VerbatimEntry


@dataclass(frozen=True)
class DecisionTerms:
    """The outside inputs of a decision: the time, and how many refusals it may write."""

    now_ms: int
    refusals_max: int


@dataclass(frozen=True)
class VersionLanded:
    """A version is in the log, written by us or by others.

    Units: `written_ms`, when its file was written, since the Unix epoch; None if that was not read.
    """

    entry: Entry
    written_ms: int | None = None


@dataclass(frozen=True)
class BatchPlan:
    """The verdicts on the first records of a batch, and the group whose entry makes them true.

    For a verbatim proposal, `ready` holds the bytes of the entry, and `answer` the answer to its
    writer.
    """

    group: Group
    verdicts: tuple[Verdict, ...]
    ready: VerbatimEntry | None = None
    answer: AnsweredBytes | None = None


def decide(view: DecisionInput, command: Consider) -> Verdict:
    """Return the verdict on a candidate. It is valid once the group's entry has landed."""
    for step in _steps(command.candidate):
        answer = step(view, command)
        if answer is None:
            continue
        if isinstance(answer, Verdict):
            return answer
        command = answer
    group = view.group
    return Verdict(command.candidate, "committed", "membership", group.version, len(group.members))


def _steps(candidate: Candidate) -> tuple[Step, ...]:
    if candidate.is_question:
        return QUESTION_STEPS
    return CANCEL_STEPS if candidate.is_cancel else STEPS


def members_max(state: TableState, policy: Policy) -> int:
    """Return how many proposals may share an entry, by our settings and the table's properties."""
    return _of_table(state, policy).group_members_max


def _of_table(state: TableState, policy: Policy) -> Policy:
    return (
        within_group_limits(policy, state.table_definition.metadata.configuration)
        if state.table_definitions
        else policy
    )


class BatchPlanner:
    """Plans the next entry: decides candidates in order and adds them to its group.

    `is_closed`: no more may join, because the group is full or the next candidate needs another
    entry.
    """

    def __init__(self, state: TableState, policy: Policy) -> None:
        self.state = state
        self.group = Group(state.version + 1)
        self.verdicts: list[Verdict] = []
        self.is_closed = False
        self._policy = _of_table(state, policy)

    @property
    def taken(self) -> int:
        """How many candidates have a verdict."""
        return len(self.verdicts)

    def extend(
        self, batch: Iterable[Candidate], terms: DecisionTerms, known: FetchedInputs = NOTHING
    ) -> None:
        """Decide the next candidates, up to the first that needs another entry.

        `known` is what was read for them; `required_reads.wanted` says what must be read.
        """
        if self.is_closed:
            return
        group, view = self.group, DecisionInput(self.state, self.group, self._policy, known)
        for candidate in batch:
            may_refuse = len(group.refused) < terms.refusals_max
            verdict = decide(view, Consider(candidate, terms.now_ms, may_refuse))
            if verdict.needs == "another entry":
                self.is_closed = True
                return
            if verdict.needs == "membership":
                group.take(verdict.candidate, known)
            elif verdict.needs == "refusal":
                assert verdict.rejection is not None, "a refusal says why"
                group.refuse(candidate, target_of(candidate), verdict.rejection)
            self.verdicts.append(verdict)
            if len(group.members) + len(group.refused) >= self._policy.group_members_max:
                self.is_closed = True
                return

    def plan(self) -> BatchPlan:
        """Return the plan of everything decided so far."""
        return BatchPlan(self.group, tuple(self.verdicts))


def plan(
    state: TableState,
    batch: Sequence[Candidate],
    policy: Policy,
    terms: DecisionTerms,
    known: FetchedInputs = NOTHING,
) -> BatchPlan:
    """Decide a batch in order, up to the first candidate that needs another entry."""
    planning = BatchPlanner(state, policy)
    planning.extend(batch, terms, known)
    assert planning.verdicts or not batch, "the first record fits into an empty group"
    return planning.plan()


def evolve(state: TableState, event: VersionLanded) -> TableState:
    """Return the state after a version that is in the log, by any writer."""
    return advance(state, event.entry, event.written_ms)

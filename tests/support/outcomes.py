"""What a writer is told: rejections and their rules."""

from collections.abc import Iterable

from tidegate_committer.decision.decision_types import Verdict
from tidegate_messages.outcome import Outcome, Rejection


def rejection_of(answer: Outcome | Verdict) -> Rejection:
    """Return why a proposal was not committed; fail where no reason is given."""
    assert answer.rejection is not None, answer
    return answer.rejection


def rule_of(answer: Outcome | Verdict) -> str:
    """Return the rule that rejects a proposal, or its status if none does."""
    return answer.rejection.rule if answer.rejection else answer.status


def rules_of(answers: Iterable[Outcome | Verdict]) -> list[str]:
    """Return the rule that rejects each proposal, or its status if none does."""
    return [rule_of(answer) for answer in answers]


def answers_of(answers: Iterable[Outcome | Verdict]) -> list[tuple[str, str]]:
    """Return each answer's status, with the rule that rejects or, if none does, the status."""
    return [(answer.status, rule_of(answer)) for answer in answers]

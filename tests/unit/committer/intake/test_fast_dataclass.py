from dataclasses import fields

from tests.builders import add, proposal, remove, value_of
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.proposal_actions import CheckedActions, make_fast
from tidegate_committer.intake.proposal_reader import read_record
from tidegate_committer.policy import Policy


def test_a_value_is_what_its_class_would_have_made() -> None:
    wanted = CheckedActions(lines=(b"{}\n",), removed=frozenset({"a"}))
    result = make_fast(CheckedActions, dict(vars(wanted)))
    assert result == wanted
    assert vars(result) == vars(wanted)


def test_what_is_read_has_every_field_in_its_order() -> None:
    read = read_record(value_of(proposal(add("a"), remove("b"))), 0, Policy())
    assert isinstance(read, Candidate)
    for item in (read, read.content):
        assert list(vars(item)) == [field.name for field in fields(item)]

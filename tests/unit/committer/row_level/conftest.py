"""A committer whose vectors are in the log, and a table that takes deletion vectors."""

import pytest

from tests.builders import Gate
from tests.support.row_deletes import IN_THE_LOG, opening
from tidegate_messages.proposal import Proposal


@pytest.fixture
def new_gate() -> Gate:
    return Gate(IN_THE_LOG)


@pytest.fixture
def first_proposals() -> list[Proposal]:
    return opening()

"""Fixtures of several folders of the committer's tests."""

import pytest

from tests.unit.committer.held_reads import Held


@pytest.fixture
def held() -> Held:
    """Return reads that are answered when a test says so."""
    return Held()

"""What every test folder shares: the options of the simulation, and the corpus beside the clone."""

from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).parent.parent
CORPUS = ROOT.parent / "shared" / "conformance"

# The same examples every time, so that a change is judged and not luck; nothing is timed.
# `--hypothesis-profile explore` looks further.
settings.register_profile("steady", derandomize=True, deadline=None)
settings.register_profile("explore", max_examples=1_000, deadline=None)
settings.load_profile("steady")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--seed n` (one seed, loudly), `--seeds n` (that many, from 0) and `--full`."""
    group = parser.getgroup("simulation")
    group.addoption("--seed", type=int, default=None, help="run this seed of the simulation only")
    group.addoption("--seeds", type=int, default=500, help="run this many seeds, from 0 (500)")
    parser.addoption(
        "--full", action="store_true", help="the night's length: large models, long walks"
    )


@pytest.fixture(scope="session")
def corpus() -> Path:
    """Return the folder of the conformance corpus, or skip: a lone clone has none beside it."""
    if not (CORPUS / "manifest.json").is_file():
        pytest.skip("no conformance corpus beside this clone (../shared/conformance)")
    return CORPUS

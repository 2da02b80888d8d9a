"""Random walks over models too large to exhaust: correct ones pass, every mutant fails."""

from dataclasses import replace
from typing import Any, Final

import pytest

from tests.model.cases_protocol import committer
from tests.model.cases_verbatim import verbatim
from tests.model.checker import Model, walk

SEEDS_MAX: Final = 4_000
"""Most walks per mutant; the slowest mutant needs 919."""

SOUND_SEEDS: Final = 300
NIGHTLY_SEEDS: Final = 20_000

BIG: Final[dict[str, Any]] = {
    "kinds": "AWAW",
    "committers": 3,
    "group_max": 3,
    "external": "AW",
    "external_max": 2,
    "deniable": "0123",
    "rule_changes": 3,
    "refusals": "logged",
    "behind_max": 2,
    "rebalances": 4,
    "repeats": 4,
    "drops": 3,
    "timeouts": 4,
    "cleanups": 1,
}
"""All features and faults at once."""

BIG_VERBATIM: Final[dict[str, Any]] = {
    **BIG,
    "kinds": "AWA",
    "writers": "AW",
    "attempts": 6,
    "replays": 4,
    "gaps": 1,
    "spoils": 1,
    "expiries": 1,
    "rebalances": 3,
    "repeats": 2,
}

QUIET: Final[dict[str, Any]] = {
    "kinds": "AAAA",
    "writers": "AA",
    "external": "",
    "deniable": "",
    "rule_changes": 0,
    "cleanups": 0,
    "gaps": 0,
    "spoils": 0,
    "drops": 0,
    "rebalances": 1,
}
"""Mostly refusals, so that a missing priority shows."""

PLAIN: Final[dict[str, Any]] = {"publishing": "plain", "is_fenced": False, "behind_max": 0}

SOUND: Final[dict[str, Model[Any]]] = {
    "transactions": committer(**BIG),
    "no transactions, no fencing": committer(**{**BIG, **PLAIN}),
    "nothing compared": committer(**{**BIG, "compares": False}),
    "verbatim": verbatim(**BIG_VERBATIM),
    "verbatim, no transactions, no fencing": verbatim(**{**BIG_VERBATIM, **PLAIN}),
    "verbatim, turns, impatient": verbatim(
        **{**BIG_VERBATIM, "writers": "AA", "begins": "turn", "impatient": 1, "guards": True}
    ),
}

MUTANTS: Final[dict[str, dict[str, Any]]] = {
    "no dedupe": {"dedupe": "none"},
    "dedupe in memory": {"dedupe": "memory", "behind_max": 0},
    "conflict before dedupe": {"looks_for_id_first": False},
    "a retry reads again": {"repeats_are_the_same": False},
    "refusals not in the log": {"refusals": "told"},
    "members unchecked": {"group_is_checked": False},
    "another engine overwrites": {"external_puts_if_absent": False},
    "no put-if-absent": {"puts_if_absent": False},
    "too old is rejected": {"too_old": "rejected"},
    "a PUT outlives the log": {"puts_expire": False},
    "a view outlives the log": {"views_expire": False},
    "published out of order": {"publishes_in_order": False},
    "pipelined PUTs": {"pipelines": True, "unchecked": ("NoGap",)},
}

MUTANTS_VERBATIM: Final[dict[str, dict[str, Any]]] = {
    "no replay rule": {"knows_replays": False},
    "rebased": {"at": "head"},
    "changed": {"keeps_bytes": False},
    "no refresh": {"refreshes": False},
    "cleaned is taken": {"cleaned": "taken"},
    "claimed by path": {"claims": "path"},
    "impatient": {"impatient": 2},
    "no right of way": {"hold": "none", **QUIET},
    "the offset overtakes": {"keeps_low_water": False},
}


@pytest.mark.parametrize("name", SOUND)
def test_no_walk_breaks_the_protocol(name: str, request: pytest.FixtureRequest) -> None:
    seeds = NIGHTLY_SEEDS if request.config.getoption("--full") else SOUND_SEEDS
    result = walk(SOUND[name], range(seeds))
    assert result.broken is None, f"{result.why}: {[label for label, _ in result.path]}"


@pytest.mark.parametrize("name", MUTANTS)
def test_walks_find_a_missing_rule(name: str) -> None:
    result = walk(committer(**{**BIG, **MUTANTS[name]}), range(SEEDS_MAX))
    assert result.broken is not None, f"{SEEDS_MAX} walks did not notice what is missing"


@pytest.mark.parametrize("name", MUTANTS_VERBATIM)
def test_walks_find_a_missing_rule_of_verbatim_proposals(name: str) -> None:
    result = walk(verbatim(**{**BIG_VERBATIM, **MUTANTS_VERBATIM[name]}), range(SEEDS_MAX))
    assert result.broken is not None, f"{SEEDS_MAX} walks did not notice what is missing"


def test_sound_settings_differ_from_the_mutants() -> None:
    base = committer(**BIG).setting
    for name, changed in MUTANTS.items():
        assert replace(base, **changed) != base, f"{name} is no mutant"

"""Foreign bytes give a value or one of our errors, nothing else, and in bounded time.

`tests/fuzz` defines the inputs and targets; `make fuzz` runs for longer.
"""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.mutations import ODD, mutate
from tests.fuzz.targets import TARGETS

CHEAP = {"commit", "hint", "checksum", "vector", "predicate", "record", "definition"}
"""Targets that open no table."""

MANY, FEW = settings(max_examples=150), settings(max_examples=20)
REPEATED_MAX = 20_000


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_right_is_taken(name: str) -> None:
    samples = TARGETS[name].samples()
    assert samples
    for sample in samples:
        TARGETS[name].feed(sample)


@pytest.mark.parametrize("name", TARGETS)
def test_what_was_right_and_is_damaged_gives_a_value_or_one_of_our_errors(name: str) -> None:
    target = TARGETS[name]
    samples = target.samples()

    @(MANY if name in CHEAP else FEW)
    @given(st.integers(0, 2**32))
    def damaged(seed: int) -> None:
        dice = Random(f"{name} {seed}")
        target.feed(mutate(dice, dice.choice(samples)))

    damaged()


@pytest.mark.parametrize("name", TARGETS)
def test_any_bytes_give_a_value_or_one_of_our_errors(name: str) -> None:
    target = TARGETS[name]

    @(MANY if name in CHEAP else FEW)
    @given(st.binary(max_size=200) | st.text(max_size=60).map(lambda text: text.encode()))
    def arbitrary(data: bytes) -> None:
        target.feed(data)

    arbitrary()


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("odd", ["[", '{"a":', "9", "\xff", "\x00", "%2e%2e/"])
def test_what_repeats_itself_for_long_gives_a_value_or_one_of_our_errors(
    name: str, odd: str
) -> None:
    TARGETS[name].feed((odd * REPEATED_MAX).encode("latin-1"))


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: odd[:24])
def test_odd_json_gives_a_value_or_one_of_our_errors(odd: str) -> None:
    for name in CHEAP | {"schema", "statistics", "vector in the log", "commit in a table"}:
        TARGETS[name].feed(odd.encode("utf-8", "surrogatepass"))

from dataclasses import dataclass, field

from tidegate_committer.cached_property import CachedProperty


@dataclass(frozen=True)
class Sum:
    numbers: tuple[int, ...]
    asked: list[int] = field(default_factory=list)

    @CachedProperty
    def total(self) -> int:
        """Return the sum."""
        self.asked.append(1)
        return sum(self.numbers)


def test_it_is_worked_out_at_the_first_question_and_never_again() -> None:
    one = Sum((1, 2))
    assert one.asked == []
    assert (one.total, one.total, one.asked) == (3, 3, [1])


def test_each_value_has_its_own() -> None:
    assert [Sum((1,)).total, Sum((5,)).total] == [1, 5]

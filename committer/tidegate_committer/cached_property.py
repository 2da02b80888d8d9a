"""A property that is worked out once: as `functools.cached_property`, without its lock.

Up to Python 3.11 that one takes a lock for every value, which costs more than most values do. What
is asked here is a function of a frozen value: worked out twice, it is the same.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

V = TypeVar("V", covariant=True)


class CachedProperty(Generic[V]):
    """Decorates a method without arguments of a class whose instances have a `__dict__`.

    Law: one.name is one.name
    """

    def __init__(self, work: Callable[[Any], V]) -> None:
        self._work = work
        self._name = work.__name__
        self.__doc__ = work.__doc__

    def __get__(self, one: Any, kind: type | None = None) -> V:
        value = one.__dict__[self._name] = self._work(one)
        return value

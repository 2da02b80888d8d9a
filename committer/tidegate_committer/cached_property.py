"""A property that is computed once: like `functools.cached_property`, but without its lock.

Up to Python 3.11, `functools.cached_property` takes a lock for every value, which costs more than
computing most of these values. They are functions of frozen objects, so computing one twice is
harmless.
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

    def __get__(self, instance: Any, kind: type | None = None) -> V:
        value = instance.__dict__[self._name] = self._work(instance)
        return value

"""Groups files whose rows go into one file. Pure.

Spec: "Add File and Remove File"
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

F = TypeVar("F")


def packed(
    files: Sequence[F], size_of: Callable[[F], int], bytes_max: int, files_max: int
) -> Iterator[list[F]]:
    """Yield files that follow each other, as many as a file of `bytes_max` holds, and
    `files_max` at most.

    Law: in their order they are all the files; only a file above `bytes_max` makes a group above it
    """
    group: list[F] = []
    size = 0
    for file in files:
        if group and (size + size_of(file) > bytes_max or len(group) == files_max):
            yield group
            group, size = [], 0
        group.append(file)
        size += size_of(file)
    if group:
        yield group

"""Mutants: each puts a fault back that a rule of ours has mended; the judge must find it.

A mutant is a context in which one rule is the old one. What a data source does runs in processes of
Spark, which a patch here does not reach: such a mutant is a data source, too, that patches itself
there. `python -m tests.judge.mutants NAME` says which seed finds it.
"""

import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from unittest import mock

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from tests.judge import comparison
from tests.judge.comparison import Judge
from tests.judge.running import judged
from tests.judge.surroundings import surroundings
from tidegate_delta.schema import partitions
from tidegate_producers.datasource import TidegateSource
from tidegate_producers.table import clause_names, merge, new_rows, update
from tidegate_producers.writing import partial_overwrite

SEQUENCES_MAX: Final = 500
CHUNK: Final = 25


class _Source(TidegateSource):
    """The data source, with a fault that it brings into Spark's processes."""

    def writer(self, *args: Any) -> Any:
        self.break_rule()
        return super().writer(*args)

    @staticmethod
    def break_rule() -> None:
        raise NotImplementedError


class LogicalPartitionNames(_Source):
    """Looks partition values up by the logical names of columns."""

    @staticmethod
    def break_rule() -> None:
        sound = partitions.partition_kinds

        def broken(metadata: Any) -> Mapping[str, Any]:
            return dict(zip(metadata.partition_columns, sound(metadata).values(), strict=True))

        setattr(partial_overwrite, "partition_kinds", broken)  # noqa: B010  (it is imported there)


class PartitionsAsText(_Source):
    """Compares the texts of partition values."""

    @staticmethod
    def break_rule() -> None:
        def broken(values: Mapping[str, str | None] | None, kinds: Mapping[str, Any]) -> Any:
            return tuple((values or {}).get(key) or None for key in kinds)

        setattr(partial_overwrite, "partition_of", broken)  # noqa: B010  (it is imported there)


@contextmanager
def _with_source(source: type[TidegateSource]) -> Iterator[None]:
    with mock.patch.object(comparison, "TidegateSource", source):
        yield


@contextmanager
def null_structs_stay_null() -> Iterator[None]:
    """A field that is assigned in a struct that is null changes nothing."""
    sound = new_rows._with_fields

    def broken(struct: Column, *rest: Any) -> Column:
        return F.when(struct.isNotNull(), sound(struct, *rest))

    with mock.patch.object(new_rows, "_with_fields", broken):
        yield


@contextmanager
def partial_structs_lose_fields() -> Iterator[None]:
    """A merge that evolves makes null what a source's struct lacks."""
    sound = new_rows.stored

    def broken(*args: Any, **named: Any) -> Any:
        named.pop("old", None)
        return sound(*args, **named)

    with (
        mock.patch.object(merge, "stored", broken),
        mock.patch.object(update, "stored", broken),
    ):
        yield


@contextmanager
def dotted_names_are_columns() -> Iterator[None]:
    """`a.b` is the column of that name, where there is one, and not a field of `a`."""
    sound = new_rows.assigned_path

    def broken(text: str, columns: Any, alias: str | None) -> tuple[str, ...]:
        bare = text.strip().replace("`", "")
        return (bare,) if bare in columns else sound(text, columns, alias)

    with mock.patch.object(new_rows, "assigned_path", broken):
        yield


@contextmanager
def words_of_sql_are_no_columns() -> Iterator[None]:
    """A merge's insert does not see `comment` or `desc` as names of columns."""
    with mock.patch.object(clause_names, "with_words_quoted", lambda text, _: text):
        yield


MUTANTS: Final[Mapping[str, Callable[[], Any]]] = {
    "logical partition names": lambda: _with_source(LogicalPartitionNames),
    "partitions as text": lambda: _with_source(PartitionsAsText),
    "null structs": null_structs_stay_null,
    "partial structs": partial_structs_lose_fields,
    "names with dots": dotted_names_are_columns,
    "words of SQL": words_of_sql_are_no_columns,
}


def main(names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder, surroundings(Path(folder)) as judge:
        for name in names or MUTANTS:
            print(f"{name}: {_finding(judge, name)}", flush=True)  # noqa: T201  (a program)


def _finding(judge: Judge, name: str) -> str:
    """Return the first seed that differs with a mutant and not without it, and how."""
    for first in range(0, SEQUENCES_MAX, CHUNK):
        with MUTANTS[name]():
            run = judged(judge, range(first, first + CHUNK), shrinks=False, report=lambda _: None)
        suspects = sorted(
            (seed, found.difference.signature)
            for found in run.found.values()
            if not found.difference.is_slight
            for seed in run.seeds_of[found.difference.signature]
        )
        for seed, signature in suspects:
            sound = judged(judge, [seed], shrinks=False, report=lambda _: None)
            if signature not in sound.found:
                return f"seed {seed}: {signature}"
    return f"not found by {SEQUENCES_MAX} sequences"


if __name__ == "__main__":
    main(sys.argv[1:])

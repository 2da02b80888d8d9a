"""Mutants: each puts a fault back that a rule of ours has mended; the judge must find it.

A mutant is a context in which one rule is the old one. What a data source does runs in processes of
Spark, which a patch here does not reach: such a mutant is a data source, too, that patches itself
there. `python -m tests.judge.mutants NAME` says which seed finds it.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final
from unittest import mock

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from tests.judge import comparison
from tests.judge.cases import Case, Merge, Overwrite, StreamRead, Update, Vacuum, Verb
from tests.judge.comparison import Judge
from tests.judge.generator import MAPPED, ODD_NAMES, case
from tests.judge.running import judged
from tests.judge.surroundings import surroundings
from tidegate_cdc_publisher.record_form import RecordForm
from tidegate_delta.features import supported_features
from tidegate_delta.schema import partition_values
from tidegate_delta.schema.types import parse_schema
from tidegate_producers.datasource import TidegateSource, stream_source
from tidegate_producers.table import clause_names, merge, new_rows, target_frame, update
from tidegate_producers.writing import partial_overwrite
from tidegate_runtime.conditions import sql_expression
from tidegate_runtime.table_io import table_files

SEQUENCES_MAX: Final = 500
SHOWN: Final = 2_000
CHUNK: Final = 6


class _Source(TidegateSource):
    """The data source, with a fault that it brings into Spark's processes."""

    def writer(self, *args: Any) -> Any:
        writer = super().writer(*args)
        writer.__class__ = _breaking(type(writer), self.broken)
        return writer

    def streamReader(self, *args: Any, **named: Any) -> Any:  # noqa: N802 (Spark's name)
        # The process is the query's own, and ends with it.
        self.broken().__enter__()
        return super().streamReader(*args, **named)

    @staticmethod
    def broken() -> AbstractContextManager[object]:
        raise NotImplementedError


def _breaking(sound: type[Any], broken: Callable[[], AbstractContextManager[object]]) -> type[Any]:
    """Return a writer's class with a fault as it commits, in a process that serves others after."""

    class Breaking(sound):  # type: ignore[misc]  # known at run time
        def commit(self, messages: Any) -> Any:
            with broken():
                return super().commit(messages)

    return Breaking


class LogicalPartitionNames(_Source):
    """Looks partition values up by the logical names of columns."""

    @staticmethod
    @contextmanager
    def broken() -> Iterator[None]:
        sound = partition_values.partition_kinds

        def by_name(metadata: Any) -> Mapping[str, Any]:
            return dict(zip(metadata.partition_columns, sound(metadata).values(), strict=True))

        with (
            mock.patch.object(partial_overwrite, "partition_kinds", by_name),
            PartitionsAsText.broken(),
        ):
            yield


class PartitionsAsText(_Source):
    """Compares the texts of partition values."""

    @staticmethod
    def broken() -> AbstractContextManager[object]:
        def texts(values: Mapping[str, str | None] | None, kinds: Mapping[str, Any]) -> Any:
            return tuple((values or {}).get(key) or None for key in kinds)

        return mock.patch.object(partial_overwrite, "partition_of", texts)


class StreamsByName(_Source):
    """Goes on with a stream though a column of its name is another one."""

    @staticmethod
    def broken() -> AbstractContextManager[object]:
        return mock.patch.object(stream_source, "_lacking", return_value=None)


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
    with (
        mock.patch.object(clause_names, "with_words_quoted", lambda text, _: text),
        mock.patch.object(sql_expression, "with_words_quoted", lambda text, _: text),
    ):
        yield


@contextmanager
def tables_below_are_orphans() -> Iterator[None]:
    """A vacuum takes the files of a table below for its own."""
    with mock.patch.object(table_files, "without_tables", lambda files, _: files):
        yield


@contextmanager
def partition_columns_in_another_case() -> Iterator[None]:
    """A partition column that the schema spells otherwise is no fault."""

    def broken(metadata: Any, _: str) -> Any:
        return parse_schema(metadata.schema_string)

    with mock.patch.object(supported_features, "_schema", broken):
        yield


@contextmanager
def values_may_vary() -> Iterator[None]:
    """A value that may be another one each time it is evaluated is assigned."""
    with mock.patch.object(update, "check_deterministic"):
        yield


@contextmanager
def names_of_envelopes_twice() -> Iterator[None]:
    """A column has the name of a field that an envelope adds."""
    with mock.patch.object(RecordForm, "check"):
        yield


@contextmanager
def joiners_are_escaped() -> Iterator[None]:
    """A URI has each character beyond ASCII that is not printable escaped, a joiner, too."""
    with mock.patch.object(target_frame, "_ESCAPED", {*target_frame._ESCAPED, "Cf"}):
        yield


@dataclass(frozen=True)
class Mutant:
    """A fault, and which cases can show it: of the others none is run."""

    broken: Callable[[], Any]
    may_show: Callable[[Case], bool]


def _does(*kinds: type[Verb]) -> Callable[[Case], bool]:
    return lambda case: any(isinstance(verb, kinds) for verb in case.verbs)


def _overwrites_partitions(case: Case) -> bool:
    return any(
        isinstance(verb, Overwrite) and "partitionOverwriteMode" in verb.options
        for verb in case.verbs
    )


def _has_field_and_column(case: Case) -> bool:
    return any("." in column.name for column in case.columns)


def _updates_by_other_structs(case: Case) -> bool:
    types = {column.name: column.type for column in case.columns}
    return any(
        kind.startswith("struct") and types.get(name, kind) != kind
        for verb in case.verbs
        if isinstance(verb, Merge) and verb.evolves and verb.rows is not None
        if any(clause.does == "update" and clause.assigned is None for clause in verb.clauses)
        for name, kind in zip(verb.rows.names, verb.rows.types, strict=True)
    )


def _inserts_words(case: Case) -> bool:
    inserted = [
        value
        for verb in case.verbs
        if isinstance(verb, Merge)
        for clause in verb.clauses
        if clause.does == "insert"
        for _, value in clause.assigned or ()
    ]
    return any(value.isidentifier() and value in ODD_NAMES for value in inserted)


MUTANTS: Final[Mapping[str, Mutant]] = {
    "logical partition names": Mutant(
        lambda: _with_source(LogicalPartitionNames),
        lambda case: MAPPED in case.properties and bool(case.by) and _overwrites_partitions(case),
    ),
    "partitions as text": Mutant(
        lambda: _with_source(PartitionsAsText),
        lambda case: case.origin == "delta-rs" and "timestamp" in _types_of_partitions(case),
    ),
    "null structs": Mutant(null_structs_stay_null, _does(Update, Merge)),
    "partial structs": Mutant(partial_structs_lose_fields, _updates_by_other_structs),
    "names with dots": Mutant(dotted_names_are_columns, _has_field_and_column),
    "words of SQL": Mutant(words_of_sql_are_no_columns, _inserts_words),
    "streams by name": Mutant(lambda: _with_source(StreamsByName), _does(StreamRead)),
    "tables below": Mutant(tables_below_are_orphans, _does(Vacuum)),
    "partition columns in another case": Mutant(
        partition_columns_in_another_case, lambda case: case.in_other_case
    ),
    "values that vary": Mutant(values_may_vary, lambda case: "rand()" in repr(case.verbs)),
    "names of envelopes": Mutant(
        names_of_envelopes_twice,
        lambda case: any(
            column.name in ("__op", "__deleted", "_change_type") for column in case.columns
        ),
    ),
    "text that is not plain": Mutant(
        joiners_are_escaped, lambda case: "string" in _types_of_partitions(case)
    ),
}


def _types_of_partitions(case: Case) -> set[str]:
    return {column.type for column in case.columns if column.name in case.by}


def main(names: list[str]) -> int:
    """Say which seed finds each mutant; return how many none finds."""
    missed = 0
    # Spark's Python processes import this module for the sources above.
    os.environ["PYTHONPATH"] = os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])
    with tempfile.TemporaryDirectory() as folder, surroundings(Path(folder)) as judge:
        for name in names or MUTANTS:
            began_s = time.monotonic()
            found = _finding(judge, MUTANTS[name])
            took_s = time.monotonic() - began_s
            missed += found is None
            shown = found or f"not found by the first {SEQUENCES_MAX} seeds"
            print(f"{name}: {shown} ({took_s:.0f} s)", flush=True)  # noqa: T201  (a program)
    return missed


def _finding(judge: Judge, mutant: Mutant) -> str | None:
    """Return the first seed that differs with a mutant and not without it, and how; or None."""
    seeds = [seed for seed in range(SEQUENCES_MAX) if mutant.may_show(case(seed))]
    for first in range(0, len(seeds), CHUNK):
        chunk = seeds[first : first + CHUNK]
        with mutant.broken():
            run = judged(judge, chunk, shrinks=False, report=lambda _: None)
        suspects = sorted(
            (seed, found.difference.signature)
            for found in run.found.values()
            if not found.difference.is_slight
            for seed in run.seeds_of[found.difference.signature]
        )
        for seed, signature in suspects:
            sound = judged(judge, [seed], shrinks=False, report=lambda _: None)
            if signature not in sound.found:
                return f"seed {seed}: {str(run.found[signature].difference)[:SHOWN]}"
    return None


if __name__ == "__main__":
    # By its name, and not as `__main__`, which only this process knows.
    sys.exit(import_module("tests.judge.mutants").main(sys.argv[1:]))

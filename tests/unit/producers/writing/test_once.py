"""A verb with a batch id, whose program dies at any step and runs again, is done once."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

from tests.fakes.memory_clients import MemoryProducer, MemoryReader
from tests.unit.producers.answering_bus import ManualClock
from tests.unit.producers.writing.test_table_write import FRAME, Line, rows
from tidegate_delta.errors import InvalidRequest
from tidegate_messages.outcome import Outcome
from tidegate_messages.topics import Topics
from tidegate_producers.options import WriteOptions, app_txn_of
from tidegate_producers.writing.once import VerbsOfBatch, once
from tidegate_producers.writing.partial_overwrite import ReplaceWhere
from tidegate_producers.writing.row_delete import delete
from tidegate_producers.writing.table_write import WriteRequest, commit, plan
from tidegate_runtime.client.client import Client
from tidegate_runtime.conditions.sql_condition import predicate_of
from tidegate_runtime.storage.local_store import LocalStore
from tidegate_runtime.table_io.open_table import head_version

IO = (
    *((LocalStore, name) for name in ("read", "open", "list_from", "put", "put_if_absent")),
    (MemoryProducer, "publish"),
    (MemoryProducer, "flush"),
    (MemoryReader, "bounds"),
    (MemoryReader, "read"),
)
STEPS_MAX = 200


class Killed(BaseException):
    """The program died."""


class Program:
    """A program that runs one verb, and may die before one of its steps of IO."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.steps = 0
        self.last: int | None = None
        self.is_committer = False
        self.answers = line.gate.answers
        line.gate.answers = self._decide
        self.client = Client(line.gate, Topics(), ManualClock())

    def _decide(self, *sent: Any) -> Any:
        # What the committer reads and writes are no steps of the program.
        self.is_committer = True
        try:
            return list(self.answers(*sent))
        finally:
            self.is_committer = False

    def step(self) -> None:
        if self.is_committer:
            return
        self.steps += 1
        if self.last is not None and self.steps > self.last:
            raise Killed

    @contextmanager
    def dying_after(self, last: int | None) -> Iterator[None]:
        self.steps, self.last = 0, last
        self.client = Client(self.line.gate, Topics(), ManualClock())
        patches = [self._counted(kind, name) for kind, name in IO]
        for patch in patches:
            patch.start()
        try:
            yield
        finally:
            for patch in patches:
                patch.stop()

    def _counted(self, kind: Any, name: str) -> Any:
        method = getattr(kind, name)

        def counted(one: Any, *given: Any, **named: Any) -> Any:
            self.step()
            return method(one, *given, **named)

        return mock.patch.object(kind, name, counted)


Verb = Callable[[Program], object]


def deletes(program: Program, condition: str = "k < 3") -> Outcome | None:
    line = program.line
    asked = line.options(txnappid="job")

    def verb(request: WriteRequest) -> Outcome | None:
        return delete(program.client, asked.place, condition, request, line.rewrite)

    return once(program.client, asked, 7, "DELETE", verb)


def deletes_nothing(program: Program) -> Outcome | None:
    return deletes(program, "k > 1000")


def appends(program: Program) -> Outcome | None:
    return _written(program, "append", program.line.options(txnappid="job", txnversion="7"))


def overwrites(program: Program) -> Outcome | None:
    given = {"txnappid": "job", "txnversion": "7", "replacewhere": "k < 3"}
    return _written(program, "overwrite", program.line.options(**given))


def _written(program: Program, mode: Any, options: WriteOptions) -> Outcome | None:
    line = program.line
    made = plan(program.client, FRAME, mode, options)
    if options.replace_where is not None:
        predicate = predicate_of(options.replace_where, made.layout.schema)
        made = replace(made, replace_where=ReplaceWhere(options.replace_where, predicate))
    adds = line.files(made, [rows(2)])
    return commit(program.client, made, adds, WriteRequest.of(options, app_txn_of(options)))


@pytest.mark.parametrize("verb", [deletes, deletes_nothing, appends, overwrites])
def test_a_verb_whose_program_dies_at_any_step_is_done_once(verb: Verb, tmp_path: Path) -> None:
    died_at = 0
    for last in range(STEPS_MAX):
        line = Line(tmp_path / str(last))
        line.root.parent.mkdir()
        line.write(rows(1, 2, 3, 4))
        program = Program(line)
        try:
            with program.dying_after(last):
                verb(program)
        except Killed:
            died_at = last
        line.write(pa.table({"k": pa.array([1]), "p": pa.array(["new"])}))
        with program.dying_after(None):
            verb(program)
        done = [item for item in range(1, 4) if _has_txn(line, item)]
        assert len(done) == 1, f"killed after step {last}: versions {done}"
        assert head_version(line.yes.store) == 2, "the verb's version, and the other writer's"
        if died_at < last:
            break
    else:
        pytest.fail(f"the verb has more than {STEPS_MAX} steps")
    assert died_at > 5


def _has_txn(line: Line, version: int) -> bool:
    return b'"txn"' in (line.yes.store.read(f"_delta_log/{version:020d}.json") or b"")


def test_the_verbs_of_a_batch_are_applications_of_their_own() -> None:
    verbs = VerbsOfBatch("orders", 3)
    assert [verbs.next_app_id() for _ in range(3)] == ["orders", "orders#2", "orders#3"]


def test_a_verb_that_shall_be_done_once_needs_its_batch(line: Line) -> None:
    with pytest.raises(InvalidRequest, match="batch_id"):
        once(line.client, line.options(txnappid="job"), None, "DELETE", lambda _: None)
    with pytest.raises(InvalidRequest, match="txnAppId"):
        once(line.client, line.options(), 3, "DELETE", lambda _: None)


FIRST, SECOND = "3b6c2f0e-8d51-4f0a-9c43-0123456789ab", "f1d2c3b4-0000-4000-8000-0123456789ab"


def deleted(line: Line, batch_id: int, query_id: str | None, where: str = "k = 2") -> object:
    """Delete rows, once for a batch of the application `job`."""
    options = line.options(txnappid="job")

    def verb(request: WriteRequest) -> Outcome | None:
        return delete(line.client, options.place, where, request, line.rewrite)

    return once(line.client, options, batch_id, "DELETE", verb, lambda: query_id)


def test_a_batch_that_may_be_of_another_stream_is_refused(line: Line) -> None:
    line.root.parent.mkdir(exist_ok=True)
    line.write(rows(1, 2, 3, 4))
    assert deleted(line, 0, FIRST) is not None
    assert deleted(line, 0, FIRST) is None, "the last batch again"
    with pytest.raises(InvalidRequest, match=r"batch 0 .* comes from query f1d2"):
        deleted(line, 0, SECOND)
    assert deleted(line, 7, FIRST, "k = 3") is not None
    with pytest.raises(InvalidRequest, match=r"batch 3 .* is older than batch 7"):
        deleted(line, 3, FIRST)
    with pytest.raises(InvalidRequest, match=r"batch 3 .* is older than batch 7"):
        deleted(line, 3, None)
    assert deleted(line, 7, None) is None
    assert [row["k"] for row in line.rows()] == [1, 4]


@pytest.fixture
def line(tmp_path: Path) -> Line:
    return Line(tmp_path)

"""The demo's steps: start, write from several sides, kill, race, show, check."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from tidegate_delta.errors import Unavailable
from tidegate_delta.log.file_names import LOG_FOLDER
from tidegate_demo import proof_checks
from tidegate_demo import screen as show
from tidegate_demo.flight_writes import (
    KEY,
    DemoPaths,
    Workload,
    expected,
    prepare_input,
    read_airlines,
    read_flights,
    together,
)
from tidegate_demo.spark_session import open_session
from tidegate_local.child_processes import Child, Command
from tidegate_local.local_stack import LocalStack
from tidegate_messages import commit_provenance
from tidegate_runtime.client.client import Client
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.storage.open_store import open_store
from tidegate_runtime.table_io.data_file_reader import read_table
from tidegate_runtime.table_io.open_table import head_version, open_snapshot

STREAM_TIMEOUT_S: Final = 180.0
FOLLOW_TIMEOUT_S: Final = 90.0
BATCHES_BEFORE_KILL: Final = 3
_POLL_S: Final = 0.1
_STREAMING: Final = "STREAMING UPDATE"


@dataclass
class Scenario:
    """One run of the demo, on a running stack."""

    stack: LocalStack
    places: DemoPaths
    screen: show.Screen

    def __post_init__(self) -> None:
        self._bus = KafkaBus(self.stack.kafka, "tidegate-demo")
        self._flights = open_store(self.places.flights)
        self._source = read_flights()

    def tell(self) -> bool:
        """Run the demo, and return whether all checks hold."""
        screen = self.screen
        with screen.step("Reading the flights of 2013, and starting Spark"):
            prepare_input(self._source, read_airlines(), self.places)
            options = {"kafka.bootstrap.servers": self.stack.kafka.bootstrap_servers}
            year = Workload(open_session("tidegate-demo"), self.places, options)
        stream = self._stream()
        with _ended(stream):
            with screen.step("Batch: creating flights and airlines, appending January to March"):
                year.begin()
            stream.start()
            with screen.step("Starting the stream, a process of its own"):
                self._until_batches(1, stream)
            with screen.step("A stream, a second writer, a delete, and a kill -9 of the stream"):
                writers = [year.append_piece_by_piece, year.delete_cancelled]
                together([*writers, lambda: self._kill_the_stream(stream)])
            # Start it in this thread: a child is killed when the thread that started it ends.
            stream.start()
            self._kill_the_committer(stream)
            with screen.step("The stream goes on to the last file"):
                self._until(lambda: not stream.is_alive(), "the stream's end", STREAM_TIMEOUT_S)
                if stream.exit_status() != 0:
                    raise Unavailable(f"the stream failed, see {stream.log}:\n{stream.tail()}")
        with screen.step("Two deletes race on the same files"):
            outcome, rejected = year.race()
        rejection = rejected.outcome.rejection
        assert rejection is not None, "a rejection says why"
        screen.say(f"[red]rejected[/] by rule {rejection.rule}: {rejection.reason}")
        screen.say(f"        winner: version {rejection.winner_version}; file: {rejection.path}")
        screen.say(f"[green]run again[/]: committed in version {outcome.version}")
        with screen.step("Waiting until the followers have caught up"):
            self._until(self._followers_are_there, "the followers", FOLLOW_TIMEOUT_S)
        self._show()
        with screen.step("Proving it"):
            checks = list(self._checks(year))
        screen.console.print(show.checks_table(checks))
        return all(check.holds for check in checks)

    def _stream(self) -> Child:
        argv = [sys.executable, "-m", "tidegate_demo.streaming_job"]
        argv += ["--source", str(self.places.stream_input), "--table", self.places.flights]
        argv += ["--checkpoint", str(self.places.stream_checkpoint)]
        argv += ["--bootstrap", self.stack.kafka.bootstrap_servers]
        return Child(Command("stream", argv), self.places.folder / "services" / "stream.log")

    def _kill_the_stream(self, stream: Child) -> None:
        self._until_batches(BATCHES_BEFORE_KILL, stream)
        _kill_all(stream)
        self.screen.say(f"the stream was killed after {self._batches()} micro-batches")

    def _kill_the_committer(self, stream: Child) -> None:
        with self.screen.step("The stream is back; kill -9 of the committer, and its new start"):
            self._until_batches(self._batches() + 1, stream)
            self.stack.kill_and_start("committer")

    def _until_batches(self, count: int, stream: Child) -> None:
        self._until(
            lambda: self._batches() >= count or not stream.is_alive(),
            f"micro-batch {count} of the stream",
            STREAM_TIMEOUT_S,
        )
        if not stream.is_alive():
            raise Unavailable(f"the stream ended early, see {stream.log}:\n{stream.tail()}")

    def _batches(self) -> int:
        count = 0
        for commit, _ in proof_checks.commits(self._flights):
            provenance = commit_provenance.of(commit)
            accepted = provenance.accepted if provenance else ()
            count += sum(proposal.operation == _STREAMING for proposal in accepted)
        return count

    def _followers_are_there(self) -> bool:
        return all(reached >= head for reached, head in self._lags().values())

    def _lags(self) -> Mapping[str, tuple[int, int]]:
        """Return the version that each follower of each table has reached, and the table's head."""
        with Client(self._bus, self.stack.kafka.topics) as client:
            tables = client.tables()
        published = proof_checks.positions(self._bus, self.stack.kafka.topics)
        lags: dict[str, tuple[int, int]] = {}
        for table, record in tables.items():
            store = open_store(record.table_root)
            head = head_version(store) or 0
            position = published.get(str(table), {})
            reached = position["version"] - (not position["complete"]) if position else -1
            lags[f"cdc-publisher of {record.name}"] = (reached, head)
            sums = [stat.path for stat in store.list_from(LOG_FOLDER, "") if _is_sum(stat.path)]
            lags[f"checkpointer of {record.name}"] = (len(sums) and _version(max(sums)), head)
        return lags

    def _show(self) -> None:
        console = self.screen.console
        topics = self.stack.kafka.topics
        console.print()
        console.print(show.proposals_table(proof_checks.answered(self._bus, topics)))
        history = [commit for commit, _ in proof_checks.commits(self._flights)]
        console.print(show.versions_table("flights", history))
        names = [Path(stat.path).name for stat in self._flights.list_from(LOG_FOLDER, "")]
        console.print(show.log_files_table(names))
        self._events = list(proof_checks.changes(self._bus, topics.changes("flights")))
        console.print(show.changes_table(self._events, KEY))
        console.print(show.lag_table(self._lags()))

    def _checks(self, year: Workload) -> Iterator[proof_checks.ProofCheck]:
        expected_rows = expected(self._source)
        tidegate_rows = read_table(self._flights, open_snapshot(self._flights))
        yield proof_checks.same_per_month(expected_rows, tidegate_rows)
        yield proof_checks.same_rows(
            "the table holds the source's rows", expected_rows, tidegate_rows, KEY
        )
        delta_rs_rows = _delta_rs(self.places.flights)
        yield proof_checks.same_rows(
            "delta-rs reads the same rows", expected_rows, delta_rs_rows, KEY
        )
        yield proof_checks.same_rows("Spark reads the same rows", expected_rows, year.rows(), KEY)
        yield self._replay_check(expected_rows)
        answered = proof_checks.answered(self._bus, self.stack.kafka.topics)
        outcomes = [outcome for proposal in answered for outcome in proposal.outcomes]
        yield proof_checks.outcomes_agree([proposal.proposal for proposal in answered], outcomes)

    def _replay_check(self, expected_rows: pa.Table) -> proof_checks.ProofCheck:
        statement = "replaying the change topic gives the table's rows"
        try:
            rows = proof_checks.replayed(self._events, KEY)
        except ValueError as error:
            return proof_checks.ProofCheck(statement, False, str(error))
        replayed = proof_checks.as_table(rows.values(), expected_rows.schema)
        return proof_checks.same_rows(statement, expected_rows, replayed, KEY)

    def _until(self, holds: Callable[[], bool], subject: str, timeout_s: float) -> None:
        until_s = time.monotonic() + timeout_s
        while not holds():
            if time.monotonic() > until_s:
                raise Unavailable(
                    f"{subject} did not come within {timeout_s:g} s; see the logs in "
                    f"{self.places.folder / 'services'}"
                )
            time.sleep(_POLL_S)


@contextmanager
def _ended(stream: Child) -> Iterator[None]:
    """Kill the stream and its JVM when the block ends, also by an exception."""
    try:
        yield
    finally:
        _kill_all(stream)


def _kill_all(child: Child) -> None:
    """Kill a process and its children: Spark's JVM is a child of the stream's Python process."""
    if child.is_alive():
        os.killpg(child.pid, signal.SIGKILL)
        child.wait(10.0)


def _delta_rs(root: str) -> pa.Table:
    table = DeltaTable(root)
    query = QueryBuilder().register("flights", table).execute("select * from flights")
    return pa.table(query.read_all())


def _is_sum(path: str) -> bool:
    return path.endswith(".crc")


def _version(path: str) -> int:
    return int(Path(path).name.partition(".")[0])

"""Runs a case on both sides, and says where they first differ."""

import re
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import write_deltalake
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.judge import change_topic, states
from tests.judge.cases import (
    Alter,
    Append,
    Case,
    Clone,
    Merge,
    Overwrite,
    Restore,
    StreamRead,
    Vacuum,
    Verb,
)
from tests.judge.sides import Ours, Side, Theirs
from tidegate_delta.errors import TidegateError
from tidegate_producers.cached_clients import client_for
from tidegate_producers.datasource import TidegateSource
from tidegate_producers.options import for_writing
from tidegate_producers.writing.table_requests import register

SHOWN: Final = 700
WRAPPED: Final = ("PYTHON_DATA_SOURCE_ERROR", "PYTHON_EXCEPTION", "STREAM_FAILED")
"""Errors of Spark in which ours are text, without their class."""
SLIGHT: Final = ("error class", "history")
REFUSALS: Final = (PySparkException, Py4JJavaError, TidegateError)
UNREADABLE_FEED: Final = (
    "DELTA_MISSING_CHANGE_DATA",
    "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_DATA_SCHEMA",
    "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_SCHEMA_CHANGE",
)


@dataclass(frozen=True)
class Refusal:
    """Why a verb was refused, or how it failed."""

    kind: str
    error_class: str
    text: str

    @property
    def is_crash(self) -> bool:
        """Whether it is no refusal but a fault of ours."""
        return self.kind.startswith("crash")


@dataclass(frozen=True)
class Difference:
    """Where the two engines differ: after which verb, in what part, and how."""

    verb: str
    part: str
    theirs: str
    ours: str
    error_class: str = ""

    @property
    def signature(self) -> str:
        """What two cases of one fault share, mostly."""
        return " | ".join((self.verb, self.part, self.error_class))

    @property
    def is_slight(self) -> bool:
        """Whether both tables are alike all the same, so that a case can go on."""
        return self.part in SLIGHT

    def __str__(self) -> str:
        return f"{self.signature}\n  theirs: {self.theirs}\n  ours:   {self.ours}"


@dataclass
class Judge:
    """A session, a folder for tables that a committer serves, and the options to reach it."""

    spark: SparkSession
    folder: Path
    options: Mapping[str, str]
    counted: int = 0
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """How long each kind of step took, by its side."""
    sessions: Iterator[int] = field(default_factory=count)

    def new_session(self, name: str) -> "Judge":
        """Return a judge with settings of its own, for a thread."""
        session = self.spark.newSession()
        # Spark looks for data sources in the session that is active in the thread.
        java: Any = session._jvm
        java.org.apache.spark.sql.SparkSession.setActiveSession(session._jsparkSession)
        session.dataSource.register(TidegateSource)
        # A folder of its own: a committer does not serve a place twice.
        own = Judge(session, self.folder / f"{name}-{next(self.sessions)}", self.options)
        own.seconds = self.seconds
        return own

    def check(self, case: Case) -> list[Difference]:
        """Run a case, and return where the engines differ: slightly, and in the end for good."""
        self.counted += 1
        place = self.folder / f"case{self.counted}"
        theirs = Theirs(self.spark, str(place / "theirs"), self.options)
        ours = Ours(self.spark, str(place / "ours"), self.options)
        try:
            run = _Run(case, theirs, ours, self.seconds)
            final = run.difference()
            return [*run.slight, *([final] if final is not None else [])]
        finally:
            shutil.rmtree(place, ignore_errors=True)


def attempt(act: Callable[[], object]) -> Refusal | None:
    """Do something, and return why it was refused, if so."""
    try:
        act()
    except REFUSALS as error:
        return refusal_of(error)
    except Exception as error:
        return Refusal(f"crash {type(error).__name__}", type(error).__name__, str(error))
    return None


def refusal_of(error: Exception) -> Refusal:
    text = str(error)
    if isinstance(error, TidegateError):
        return Refusal("refused", error.error_class, text)
    if isinstance(error, PySparkException):
        condition = error.getCondition() or ""
        found = _class_in(text)
        if condition in ("", "_LEGACY_ERROR_TEMP_2096") or "FAILED_EXECUTE" in condition:
            condition = found or condition
        kind = "refused"
        if isinstance(error, PySparkException) and "INTERNAL_ERROR" in condition:
            kind = "crash"
        return Refusal(kind, condition, text)
    java = getattr(error, "java_exception", None)
    name = java.getClass().getName() if java is not None else type(error).__name__
    return Refusal("refused", _class_in(text) or name.rpartition(".")[2], text)


def _class_in(text: str) -> str:
    # PySpark looks for a class's message among Spark's own, and fails at one of Delta's.
    unknown = re.search("Cannot find main error class '([A-Z0-9_]+)'", text)
    match = unknown or re.search(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)?)\]", text)
    return match[1] if match else ""


@dataclass
class _Run:
    case: Case
    theirs: Theirs
    ours: Ours
    seconds: defaultdict[str, float]
    at: str = "Create"
    slight: list[Difference] = field(default_factory=list)
    seen: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    """The rows of our table by its path and version."""
    has_idle_rewrite: bool = False
    """Whether a merge of theirs rewrote files and changed no row, where ours proposed nothing."""

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.theirs, self.ours

    def difference(self) -> Difference | None:
        made = self._made()
        if made is not None or not self._exists():
            return made
        if self.case.in_other_case:
            return self._in_other_case()
        for verb in self.case.verbs:
            self.at = verb.kind
            found = self._done(verb)
            if found is None:
                with self._timed("look at the state"):
                    found = self._state()
            if found is not None:
                return found
            self._note_versions()
        self.at = "At the end" if not self.case.verbs else f"After {self.at}"
        return self._last_look()

    def _in_other_case(self) -> Difference | None:
        """Read a log made by hand that spells its partition columns otherwise than its schema."""
        self.at = "Read in another case"
        by_hand = f"{self.ours.path}-by-hand"
        shutil.copytree(self.ours.path, by_hand)
        states.name_partitions_in_other_case(by_hand)
        spark = self.theirs.spark
        theirs = attempt(lambda: states.spark_rows(spark, by_hand))
        ours = attempt(
            lambda: states.frame_rows(Ours(spark, by_hand, self.ours.options).table().to_df())
        )
        return self._refusals(theirs, ours)

    def _exists(self) -> bool:
        return all(Path(side.path, "_delta_log").is_dir() for side in self.sides)

    def _note_versions(self) -> None:
        for side in self.sides:
            side.versions.append(side.head())

    def _made(self) -> Difference | None:
        case = self.case
        if case.origin == "each":
            found = self._both(lambda side: side.create(case))
            if found is not None or not self._exists():
                return found
            found = self._both(lambda side: side.do(Append(case.rows, by_table=True)))
        else:
            if not self._copied():
                return None  # delta-spark or delta-rs can't make it
            found = None
        if found is None:
            self._note_versions()
            self.at = "First rows"
            found = self._state()
        return found

    def _copied(self) -> bool:
        """Have another engine make the table, and give both a copy; return whether it could."""
        case = self.case
        if case.origin == "delta-spark":
            refused = attempt(lambda: self._by_delta_spark(case))
        else:
            refused = attempt(lambda: self._by_delta_rs(case))
        if refused is not None:
            return False
        shutil.copytree(self.theirs.path, self.ours.path)
        asked = for_writing({**self.ours.options, "path": self.ours.path})
        register(client_for(asked.kafka), asked.place, None, 60.0)
        return True

    def _by_delta_spark(self, case: Case) -> None:
        self.theirs.create(case)
        self.theirs.do(Append(case.rows))

    def _by_delta_rs(self, case: Case) -> None:
        # Values in SQL are never null for Spark, but few columns are NOT NULL.
        rows = self.theirs.spark.sql(case.rows.sql()).toArrow()
        required = {column.name for column in case.columns if not column.nullable}
        rows = rows.cast(pa.schema([_nullable(field, required) for field in rows.schema]))
        write_deltalake(
            self.theirs.path,
            rows,
            partition_by=list(case.by) or None,
            configuration=_properties_of_delta_rs(case),
        )

    def _both(self, act: Callable[[Any], object]) -> Difference | None:
        """Do the same on both sides; return whether only one was refused, or in another way."""
        refused = []
        for side in self.sides:
            with self._timed(f"{side.name} {self.at}"):
                refused.append(attempt(partial(act, side)))
        return self._refusals(*refused)

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        began_s = time.monotonic()
        yield
        self.seconds[what] += time.monotonic() - began_s
        self.seconds[f"count {what}"] += 1

    def _refusals(self, theirs: Refusal | None, ours: Refusal | None) -> Difference | None:
        if ours is not None and ours.is_crash:
            return self._differs("crash", _shown(theirs), _shown(ours), ours.error_class)
        if (theirs is None) != (ours is None):
            given = theirs or ours
            assert given is not None
            side = "we refuse" if theirs is None else "only they refuse"
            if self.has_idle_rewrite and self.at == StreamRead.__name__:
                side += ", after a merge of theirs that changed no row"
            return self._differs(side, _shown(theirs), _shown(ours), given.error_class)
        if theirs is None or ours is None or theirs.error_class in ("", ours.error_class):
            return None
        if ours.error_class in WRAPPED:
            return None
        pair = f"{theirs.error_class} / {ours.error_class}"
        self.slight.append(self._differs("error class", _shown(theirs), _shown(ours), pair))
        return None

    def _done(self, verb: Verb) -> Difference | None:
        if isinstance(verb, Vacuum):
            return self._vacuumed(verb)
        found = self._both(lambda side: side.do(verb))
        if (
            found is None
            and isinstance(verb, StreamRead)
            and Path(self.theirs.streamed, "_delta_log").is_dir()
        ):
            log = states.logged(self.ours.path, 0)
            rows = [self._rows(side.streamed, log) for side in self.sides]
            if rows[0] != rows[1]:
                return self._differs("rows of the stream", *_left(*rows))
        return found

    def _vacuumed(self, verb: Vacuum) -> Difference | None:
        """Vacuum, with a table below ours whose rows must stay: delta-spark would delete them."""
        below = Path(self.ours.path, "archive", "orders")
        shutil.copytree(self.ours.path, below)
        rows = attempt_rows(states.plain_rows, str(below))
        found = self._both(lambda side: side.do(verb))
        left = attempt_rows(states.plain_rows, str(below))
        shutil.rmtree(below.parent)
        if found is None and left != rows:
            return self._differs("rows of a table below", *_left(rows, left))
        return found

    def _differs(
        self, part: str, theirs: object, ours: object, error_class: str = ""
    ) -> Difference:
        return Difference(self.at, part, str(theirs)[:4000], str(ours)[:4000], error_class)

    def _state(self) -> Difference | None:
        """Compare what is cheap to see: the log, the rows and the changes by our plain reader."""
        logs = [
            states.logged(side.path, side.versions[-1] if side.versions else -1)
            for side in self.sides
        ]
        rows = [self._rows(side.path, log) for side, log in zip(self.sides, logs, strict=True)]
        seen = attempt_rows(states.plain_rows, self.ours.path) if logs[1].identities else rows[1]
        self.seen[self.ours.path, self.ours.head()] = seen
        if rows[0] != rows[1]:
            return self._differs("rows", *_left(*rows))
        for part in (
            "schema",
            "partition_columns",
            "clustering",
            "configuration",
            "protocol",
            "features",
        ):
            theirs, ours = (getattr(log, part) for log in logs)
            if theirs != ours:
                if part == "configuration" and _spaceless(theirs) == _spaceless(ours):
                    continue
                return self._differs(part, *_apart(theirs, ours))
        changes = self._changes(logs[0])
        if changes is not None:
            return changes
        theirs, ours = (log.history for log in logs)
        self.has_idle_rewrite |= not ours and "MERGE" in [name for name, _ in theirs]
        if theirs != ours and self.at != "First rows":
            self.slight.append(self._differs("history", theirs, ours))
        return None

    def _rows(self, path: str, log: states.Logged) -> list[str]:
        return attempt_rows(partial(states.plain_rows, without=log.identities), path)

    def _changes(self, log: states.Logged) -> Difference | None:
        if log.configuration.get("delta.enableChangeDataFeed") != "true":
            return None
        feeds: list[list[str]] = []
        changes = partial(states.plain_changes, without=log.identities)
        for side in self.sides:
            start = side.versions[-1] + 1 if side.versions else 0
            if start > side.head():
                feeds.append([])
            else:
                feeds.append(attempt_rows(changes, side.path, start, side.head()))
        if feeds[0] != feeds[1]:
            return self._differs("changes", *_left(*feeds))
        return None

    def _last_look(self) -> Difference | None:
        """Compare what each engine's Spark reads of the other's table, then the table's past."""
        spark = self.theirs.spark

        def by_ours(path: str) -> list[str]:
            return states.frame_rows(Ours(spark, path, self.ours.options).table().to_df())

        # Identity columns may have other values in each table.
        wanted = attempt_rows(states.plain_rows, self.theirs.path)
        with self._timed("Table.to_df"):
            rows = attempt_rows(by_ours, self.theirs.path)
        if rows != wanted:
            return self._differs("rows: Table.to_df reads theirs", *_left(wanted, rows))
        wanted = self.seen[self.ours.path, self.ours.versions[-1]]
        with self._timed("delta-spark reads"):
            rows = attempt_rows(states.spark_rows, spark, self.ours.path)
        if rows != wanted:
            return self._differs("rows: delta-spark reads ours", *_left(wanted, rows))
        return self._past()

    def _past(self) -> Difference | None:
        """Compare the versions before, and the changes from the first one on, with what was seen.

        A vacuum has removed their files.
        """
        if any(isinstance(verb, Vacuum) for verb in self.case.verbs):
            return None
        for (path, version), rows in self.seen.items():
            again = attempt_rows(states.plain_rows, path, version)
            if again != rows:
                return self._differs("rows of an earlier version", *_left(rows, again))
        path, version = list(self.seen)[len(self.seen) // 2]
        with self._timed("delta-spark reads an earlier version"):
            again = attempt_rows(states.spark_rows, self.theirs.spark, path, version)
        if again != self.seen[path, version]:
            return self._differs(
                "delta-spark reads an earlier version", *_left(self.seen[path, version], again)
            )
        if any(map(_changes_old_rows, self.case.verbs)):
            return None
        for side in self.sides:
            with self._timed("change topic"):
                rows = attempt_rows(change_topic.snapshot, side.path, side.head())
                again = attempt_rows(change_topic.replayed, side.path, side.head())
            if again != rows:
                return self._differs(f"change topic of {side.name}", *_left(rows, again))
        return self._envelopes()

    def _envelopes(self) -> Difference | None:
        """Look for records with a name twice, of which readers keep one."""
        for envelope in ("flat", "delta"):
            with self._timed("change topic"):
                refusal = attempt(partial(change_topic.read, self.ours.path, envelope))
            if refusal is not None and refusal.is_crash:
                return self._differs(f"change topic, {envelope}", "done", _shown(refusal))
        return None


def _properties_of_delta_rs(case: Case) -> dict[str, str]:
    """Return the properties that delta-rs gets: no change feed beside a column of its name.

    delta-spark refuses to make such a table, and loses rows of one that delta-rs has made.
    """
    taken = {column.name for column in case.columns}
    allowed = {"mine"} if "_change_type" in taken else {"mine", "delta.enableChangeDataFeed"}
    return {name: value for name, value in case.properties.items() if name in allowed}


def _nullable(field: pa.Field, required: Collection[str] = ()) -> pa.Field:
    """Return a field that may be null, inside, too, unless it is one of the required."""
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_nullable(kind.field(at)) for at in range(kind.num_fields)])
    elif pa.types.is_map(kind):
        kind = pa.map_(kind.key_field, _nullable(kind.item_field))
    elif pa.types.is_list(kind):
        kind = pa.list_(_nullable(kind.value_field))
    return pa.field(field.name, kind, field.name not in required)


def _changes_old_rows(verb: Verb) -> bool:
    """Whether a verb gives rows that stay another form: then old changes can't be applied to it."""
    match verb:
        case Alter(method=method):
            return method in ("drop_column", "rename_column", "change_type")
        case Overwrite(options=options):
            return "overwriteSchema" in options or "mergeSchema" in options
        case Append(options=options):
            return "mergeSchema" in options
        case Merge(evolves=evolves):
            return evolves
    return isinstance(verb, Clone | Restore)


def _left(theirs: list[str], ours: list[str]) -> tuple[list[str], list[str]]:
    """Return the rows that only one side has."""
    one, other = Counter(theirs), Counter(ours)
    return sorted((one - other).elements()), sorted((other - one).elements())


def _spaceless(configuration: Mapping[str, str]) -> dict[str, str]:
    """Return properties without the spaces in which engines differ where they print SQL."""
    return {name: value.replace(" ", "") for name, value in configuration.items()}


def attempt_rows(read: Callable[..., list[str]], *args: Any) -> list[str]:
    """Return rows, or one line that says why they can't be read."""
    rows: list[str] = []
    refusal = attempt(lambda: rows.extend(read(*args)))
    return rows if refusal is None else [f"{refusal.kind}: {_shown(refusal)}"]


def _shown(refusal: Refusal | None) -> str:
    if refusal is None:
        return "done"
    causes = re.findall(r"^Caused by: .*", refusal.text[SHOWN:], re.MULTILINE)
    return "\n".join((f"{refusal.error_class}: {refusal.text[:SHOWN]}", *causes))


def _apart(theirs: Any, ours: Any) -> tuple[Any, Any]:
    """Return the parts of two values that differ."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        names = [name for name in {**theirs, **ours} if theirs.get(name) != ours.get(name)]
        if set(names) == {"fields"} or len(names) == 1:
            [name] = names
            inner = _apart(theirs.get(name), ours.get(name))
            return {name: inner[0]}, {name: inner[1]}
        return {n: theirs.get(n) for n in names}, {n: ours.get(n) for n in names}
    if isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        pairs = [(a, b) for a, b in zip(theirs, ours, strict=True) if a != b]
        return [a for a, _ in pairs], [b for _, b in pairs]
    return theirs, ours

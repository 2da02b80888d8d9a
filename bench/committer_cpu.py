"""CPU time of the committer for one proposal: decode, check everything, encode.

It uses no broker and no store: it loops over what a partition worker and a table committer do with
each group, beside the one cost that can't be avoided, the parse of the records' JSON.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice
from uuid import UUID

import orjson

from bench.figures import Figure, at_most, median
from tests.fakes.memory_store import MemoryStore
from tidegate_committer.decision.machine import BatchPlanner, DecisionTerms, VersionLanded, evolve
from tidegate_committer.group_commit.entry_encoding import (
    Attempt,
    EncodedEntry,
    EntryWriter,
    encode,
)
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.proposal_reader import read_record
from tidegate_committer.policy import Policy
from tidegate_committer.state.fetched_inputs import FetchedInputs
from tidegate_committer.state.table_state import TableState
from tidegate_committer.store_reads import recovery
from tidegate_delta.log.actions import Add, Metadata, Protocol
from tidegate_delta.log.file_names import commit_name, in_log
from tidegate_delta.schema.types import DATE, LONG, STRING, StructField, StructType, format_schema
from tidegate_runtime.gc_control import GarbageSweeper

SWEEPER = GarbageSweeper(time.monotonic())
GROUP = 64
"""Proposals in an entry, as with 64 writers that each wait for their outcome."""

ENTRIES = 60
REMOVES = 10
APPEND_US = 25.0
CHANGE_US = 100.0
NOW_MS = 1_767_225_600_000
TABLE = UUID(int=7)
ROOT = "memory://bench/table"
POLICY = Policy()
ORIGIN = EntryWriter(UUID(int=1), "cluster/topic/0", "tidegate/topic/0", "Tidegate/1.0")
_SCHEMA = StructType(
    (
        StructField("id", LONG),
        StructField("name", STRING),
        StructField("day", DATE),
        StructField("part", LONG),
    )
)

Make = Callable[[int, int], bytes]
"""Returns the record of a proposal: its number, and the version that it read."""


@dataclass(frozen=True)
class Cost:
    """The cost of a proposal, and of its JSON parse alone. Units: microseconds of CPU time."""

    proposal_us: float
    parse_us: float


def figures(rounds: int) -> list[Figure]:
    """Return C11: a blind append, and a change that removes ten files and reads by predicates."""
    logging.disable(logging.INFO)
    SWEEPER.begin()
    state = table()
    kinds = (
        ("a blind append", append, 0, APPEND_US, 46, "one file, statistics of three columns"),
        ("a blind append, ten versions behind", append, 10, APPEND_US, 47, "the same"),
        (
            "ten removes, two predicates",
            change,
            0,
            CHANGE_US,
            44,
            "ten files out, one in; every one compared with 63 others of its group",
        ),
        (
            "ten removes, two predicates, behind a version",
            change,
            1,
            CHANGE_US,
            49,
            f"behind an entry of {GROUP} such changes, too",
        ),
    )
    runs: dict[str, list[Cost]] = {name: [] for name, *_ in kinds}
    for _ in range(rounds):
        for name, make, behind, *_ in kinds:
            runs[name].append(cost(state, make, behind))
    cpu_figures = []
    for name, _, _, goal, recorded, note in kinds:
        us = median([run_cost.proposal_us for run_cost in runs[name]])
        parse_us = median([run_cost.parse_us for run_cost in runs[name]])
        cpu_figures.append(
            Figure(
                f"CPU of {name}",
                f"{us:.1f} us",
                f"parse of its JSON {parse_us:.1f} us",
                # Both depend on the machine and its load, so the ratio compares.
                us / parse_us,
                f"C11: <= {goal:.0f} us",
                note,
                is_met=us <= goal,
                recorded=at_most(recorded),
            )
        )
    return cpu_figures


def table() -> TableState:
    """Return a table with as many live files as the changes will remove."""
    metadata = Metadata(
        id=str(TABLE),
        schema_string=format_schema(_SCHEMA),
        partition_columns=("part",),
        created_time=NOW_MS,
    )
    files = 2 * ENTRIES * GROUP * REMOVES
    rows = [
        {"commitInfo": {"timestamp": NOW_MS, "operation": "CREATE TABLE"}},
        Protocol(min_reader_version=1, min_writer_version=2).to_row(),
        metadata.to_row(),
        *({"add": _old(number)} for number in range(files)),
    ]
    content = b"".join(orjson.dumps(row) + b"\n" for row in rows)
    store = MemoryStore(ROOT)
    store.put(in_log(commit_name(0)), content)
    return recovery.load(store, TABLE, POLICY.window)


def cost(state: TableState, make: Make, behind: int) -> Cost:
    """Return the cost of a proposal that read a version so far behind the head."""
    numbers = count()
    assert "" not in state.files, "asked here, so that what earlier runs changed is undone now"
    adds: dict[int, Sequence[Add]] = {}
    for _ in range(behind):
        records = [make(next(numbers), state.version) for _ in range(GROUP)]
        state, encoded = _settle(state, records, adds)
        adds[state.version] = encoded.adds
    spent_s: list[float] = []
    parsed_s: list[float] = []
    for _ in range(ENTRIES):
        read = state.version - behind
        records = [make(next(numbers), read) for _ in range(GROUP)]
        began_s = time.process_time()
        state, encoded = _settle(state, records, adds)
        SWEEPER.sweep(time.monotonic(), at_leisure=True, is_idle=False)
        spent_s.append(time.process_time() - began_s)
        assert len(encoded.entry.added) == GROUP, "each proposal is in the entry"
        adds[state.version] = encoded.adds
        began_s = time.process_time()
        for record in records:
            orjson.loads(record)
        parsed_s.append(time.process_time() - began_s)
    return Cost(1e6 * median(spent_s) / GROUP, 1e6 * median(parsed_s) / GROUP)


def _settle(
    state: TableState, records: Sequence[bytes], adds: Mapping[int, Sequence[Add]]
) -> tuple[TableState, EncodedEntry]:
    """Decide a group, and return the state after its entry.

    `adds` are the files of late versions: a table committer keeps those that it wrote, once they
    were needed.
    """
    batch = _candidates(records)
    planning = BatchPlanner(state, POLICY)
    planning.extend(batch, DecisionTerms(NOW_MS, 100), FetchedInputs(adds=adds))
    encoded = encode(state, planning.plan().group, ORIGIN, Attempt(UUID(int=9), NOW_MS))
    return evolve(state, VersionLanded(encoded.entry)), encoded


def _candidates(records: Sequence[bytes]) -> Iterator[Candidate]:
    for offset, record in enumerate(records):
        read = read_record(record, offset, POLICY, HEADERS)
        assert isinstance(read, Candidate), "the record is a proposal"
        yield read


HEADERS = (("format", b"proposal/1"), ("table", str(TABLE).encode()), ("producer", b"bench"))


def append(number: int, read_version: int) -> bytes:
    """Return a blind append of one file."""
    operation = {"name": "WRITE", "parameters": {"mode": "Append", "partitionBy": '["part"]'}}
    metrics = {"numFiles": "1", "numOutputRows": "1000", "numOutputBytes": "52133"}
    reads: dict[str, object] = {}
    return _record(number, read_version, {**operation, "metrics": metrics}, [_new(number)], reads)


def change(number: int, read_version: int) -> bytes:
    """Return a change that removes ten files of a partition and adds one."""
    first = number * REMOVES
    places = list(islice(count(first), REMOVES))
    removed = [_gone(place) for place in places]
    middle, last = first + REMOVES // 2, first + REMOVES
    part = {"op": "=", "column": "part", "value": number % 10, "type": "long"}
    spans = [_ids(first, middle), _ids(middle, last)]
    reads = {
        "files": [_old(place)["path"] for place in places],
        "predicates": [{"op": "and", "args": [part, *span]} for span in spans],
    }
    operation = {"name": "DELETE", "parameters": {"predicate": f"id < {last}"}}
    return _record(number, read_version, operation, [*removed, _new(number)], reads)


def _record(
    number: int, read_version: int, operation: object, rows: object, reads: object
) -> bytes:
    return orjson.dumps(
        {
            "proposal_id": str(UUID(int=(7 << 76) + number)),
            "kind": "commit",
            "table": str(TABLE),
            "table_root": ROOT,
            "table_id": str(TABLE),
            "read_version": read_version,
            "operation": operation,
            "actions": rows,
            "reads": reads,
            "isolation": "default",
            "created_ms": NOW_MS,
            "files_since_ms": NOW_MS,
            "engine_info": "bench/1.0",
        }
    )


def _ids(start: int, end: int) -> list[dict[str, object]]:
    span = {"column": "id", "type": "long"}
    return [{"op": ">=", "value": start, **span}, {"op": "<", "value": end, **span}]


def _new(number: int) -> dict[str, object]:
    """Return the add of a file with the rows of ten others."""
    return {"add": _file(f"new-{number:012d}", number % 10, number * REMOVES, REMOVES)}


def _old(place: int) -> dict[str, object]:
    """Return the add of one of ten files with neighbouring rows."""
    return _file(f"old-{place:012d}", place // REMOVES % 10, place, 1)


def _gone(place: int) -> dict[str, object]:
    old = _old(place)
    fields = {name: old[name] for name in ("path", "partitionValues", "size")}
    return {"remove": {**fields, "dataChange": True, "extendedFileMetadata": True}}


def _file(name: str, part: int, first: int, rows: int) -> dict[str, object]:
    day = "2026-01-01"
    low = {"id": first, "name": f"customer {first}", "day": day}
    high = {"id": first + rows - 1, "name": f"customer {first + rows}", "day": day}
    nulls = {"id": 0, "name": 3, "day": 0}
    stats = {"numRecords": rows, "minValues": low, "maxValues": high, "nullCount": nulls}
    return {
        "path": f"part={part}/part-00000-{name}-c4ca4238a0b923820dcc.snappy.parquet",
        "partitionValues": {"part": str(part)},
        "size": 52_133,
        "modificationTime": NOW_MS,
        "dataChange": True,
        "stats": orjson.dumps(stats).decode(),
    }

"""Propose delta-spark's commits again as verbatim entries: each version is accepted unchanged."""

from pathlib import Path

import orjson
import pytest

from tests import builders
from tests.builders import NOW_MS, Gate, StillClock, proposal
from tests.fakes.memory_store import MemoryStore
from tests.verbatim_proposals import stage
from tidegate_delta.errors import BrokenLog, UnsupportedFeature
from tidegate_delta.log.file_names import commit_name, in_log

UNSERVED = (BrokenLog.__name__, UnsupportedFeature.__name__)
TABLES_MIN = 40
VERSIONS_MIN = 300


def versions_of(table: Path) -> list[bytes]:
    """Return a table's commits that are contiguous from version 0."""
    result: list[bytes] = []
    while (file := table / in_log(commit_name(len(result)))).exists():
        result.append(file.read_bytes())
    return result


def table_id(content: bytes) -> str | None:
    for line in content.splitlines():
        result = orjson.loads(line).get("metaData") if line.strip() else None
        if result:
            return str(result["id"])
    return None


def clock_of(versions: list[bytes]) -> StillClock:
    """Return a clock at the latest time in the versions, so that none is in the future."""
    rows = (orjson.loads(line) for content in versions for line in content.splitlines() if line)
    infos = [row["commitInfo"] for row in rows if "commitInfo" in row]
    times = [info.get(name) or 0 for info in infos for name in ("timestamp", "inCommitTimestamp")]
    return StillClock(boot=(max(times, default=NOW_MS) - NOW_MS) / 1000)


def refused(versions: list[bytes]) -> dict[int, str]:
    """Return the refusals of a table's versions; -1 stands for the whole table."""
    gate, store = Gate(clock=clock_of(versions)), MemoryStore(builders.ROOT)
    gate.stores[builders.ROOT] = store
    store.files[in_log(commit_name(0))] = versions[0]
    [opened] = gate.ask(proposal(kind="register", read_version=-1))
    if opened.rejection is not None:
        return {-1: opened.rejection.rule}
    result: dict[int, str] = {}
    known = table_id(versions[0])
    for version, content in enumerate(versions[1:], 1):
        ready = {"kind": "verbatim", "exact_version": version, "table_id": known}
        claim = stage(store, version, content)
        one = proposal(read_version=version - 1, claim_check=claim, **ready)
        outcome = gate.ask(one)[-1]
        if outcome.rejection is not None:
            result[version] = outcome.rejection.reason
            break
        known = table_id(content) or known
    return result


@pytest.mark.timeout(900)
def test_each_version_that_delta_spark_wrote_is_taken(own_corpus: Path) -> None:
    wrong: dict[str, dict[int, str]] = {}
    tables = count = 0
    for table in sorted((own_corpus / "tables" / "spark44").iterdir()):
        versions = versions_of(table)
        if len(versions) < 2:
            continue
        result = refused(versions)
        if result.get(-1) in UNSERVED:
            continue
        tables, count = tables + 1, count + len(versions)
        if result:
            wrong[table.name] = result
    assert wrong == {}
    assert (tables >= TABLES_MIN, count >= VERSIONS_MIN) == (True, True), (tables, count)

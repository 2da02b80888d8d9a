"""Cases that delta-spark has decided through the oracle, and their comparison with ours.

`python -m tests.conformance.oracle_decided SEED COUNT` asks it about new cases and adds them to the
archive.
"""

import copy
import json
import lzma
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final

from tests.conformance import runner_entry_points
from tests.conformance.delta_spark_program import NO_JAR
from tests.conformance.oracle_allowed_differences import excuse
from tests.conformance.oracle_cases import made_cases
from tests.conformance.oracle_histories import histories
from tests.conformance.oracle_transaction_pairs import meetings
from tests.conformance.scoring import conflict_cases, conflict_judges
from tests.corpora import ROOT, own_corpus
from tidegate_delta.errors import BrokenLog, UnsupportedFeature

ARCHIVE: Final = Path(__file__).with_name("oracle_decided.json.xz")
MARK: Final = "delta.rowTracking"

Case = dict[str, Any]


class NoJar(Exception):
    """delta-spark's jar is not available."""


def decided() -> list[Case]:
    """Return the archived cases."""
    result: list[Case] = json.loads(lzma.decompress(ARCHIVE.read_bytes()))
    return result


def write(cases: Iterable[Mapping[str, Any]]) -> None:
    """Write the archive: equal cases give equal bytes."""
    text = "[\n" + ",\n".join(json.dumps(case, sort_keys=True) for case in cases) + "\n]\n"
    ARCHIVE.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


def decided_cases(cases: Iterable[Mapping[str, Any]]) -> Iterator[Case]:
    """Yield cases with delta-spark's decision on each.

    Raises: NoJar.
    """
    program = [sys.executable, "-m", "tests.conformance.oracle_program"]
    with subprocess.Popen(
        program,
        cwd=ROOT,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as oracle:
        assert oracle.stdin is not None, "the oracle is asked through a pipe"
        assert oracle.stdout is not None, "the oracle answers through a pipe"
        for case in cases:
            with suppress(BrokenPipeError):
                oracle.stdin.write(json.dumps(case) + "\n")
                oracle.stdin.flush()
            line = oracle.stdout.readline()
            if not line:
                if oracle.wait() == NO_JAR:
                    raise NoJar
                raise AssertionError(f"the oracle died over {case['name']}")
            yield with_answer(case, json.loads(line))


def new_cases(seed: int) -> Iterator[Case]:
    """Yield an endless sequence of new cases.

    Every fourth is a history, and every fourth is on a table of another kind than the vectors'.
    """
    made, result = made_cases(conflict_cases(own_corpus()), seed), histories(seed)
    met = meetings(seed)
    while True:
        yield from (next(made), next(result), next(made), next(met))


def with_answer(case: Mapping[str, Any], answer: Mapping[str, Any]) -> Case:
    """Return a case in the vectors' form: with all files read, and the expected result."""
    expected = {**answer["expected"], "optional": []}
    for row in expected.get("committed", ()):
        if _mark_of(row) is not None and _mark_of(row) == _mark_in_force(case):
            expected["optional"].append(row)
    reads = {**case["reads"], "files": answer["files"]}
    return {**case, "reads": reads, "expected": expected}


def difference(case: Case) -> str | None:
    """Return how our decision differs from delta-spark's without an excuse, or None."""
    judges, theirs = conflict_judges(own_corpus()), case["expected"]
    question = {key: value for key, value in case.items() if key not in judges.HIDDEN}
    try:
        ours = runner_entry_points.judge(copy.deepcopy(question))
    except UnsupportedFeature:
        ours = {"verdict": "invalid", "error_class": "declined"}
    except BrokenLog:
        ours = {"verdict": "invalid", "error_class": "BrokenLog"}
    passed, word = judges.check(case, ours)
    if passed or (ours["verdict"] == theirs["verdict"] == "committed" and _same_rows(case, ours)):
        return None
    both = ours["verdict"] == theirs["verdict"] == "committed"
    if not both and excuse(case, theirs, ours) is not None:
        return None
    return f"{case['name']} ({case.get('why')}): {word}"


def _same_rows(case: Case, ours: Mapping[str, Any]) -> bool:
    """Return whether only row ids differ, of files that a winner's backfill had numbered.

    Ours keep them, while delta-spark assigns new ones to a file with another deletion vector; then
    those of later files differ too.
    """
    numbered = {
        row["add"]["path"]
        for rows in case["winners"]
        if any(
            row.get("commitInfo", {}).get("operation") == "ROW TRACKING BACKFILL" for row in rows
        )
        for row in rows
        if "add" in row
    }
    own = {row["add"]["path"] for row in case["actions"] if "add" in row}
    numbered = own if own & numbered else set()
    theirs = _without_ids(case["expected"]["committed"], numbered)
    judges = conflict_judges(own_corpus())
    word = judges.compare_actions(theirs, _without_ids(ours["committed"], numbered))
    return bool(numbered) and word is None


def _without_ids(rows: Iterable[Mapping[str, Any]], paths: set[str]) -> list[Mapping[str, Any]]:
    result: list[Mapping[str, Any]] = []
    for row in rows:
        if "add" in row and row["add"]["path"] in paths:
            ids = ("baseRowId", "defaultRowCommitVersion")
            result.append({"add": {key: one for key, one in row["add"].items() if key not in ids}})
        elif _mark_of(row) is None:
            result.append(row)
    return result


def _mark_of(row: Mapping[str, Any]) -> int | None:
    domain = row.get("domainMetadata", {})
    if domain.get("domain") != MARK:
        return None
    mark: int | None = json.loads(domain["configuration"] or "{}").get("rowIdHighWaterMark")
    return mark


def _mark_in_force(case: Mapping[str, Any]) -> int:
    rows = (row for actions in (*case["table"]["base"], *case["winners"]) for row in actions)
    return next(reversed([one for row in rows if (one := _mark_of(row)) is not None]), -1)


if __name__ == "__main__":
    seed, count = map(int, sys.argv[1:])
    fresh = decided_cases(islice(new_cases(seed), count))
    write([*(decided() if ARCHIVE.exists() else ()), *fresh])

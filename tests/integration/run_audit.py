"""An independent check of a run: compares the table's log with the records on the topics.

It shares no code with the committer, and reads files and records as anyone can.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any


def entries(table: Path) -> list[list[dict[str, Any]]]:
    """Return the rows of every commit file, asserting that versions are dense from 0."""
    files = sorted(
        path
        for path in (table / "_delta_log").glob("*.json")
        if path.name[:-5].isdigit() and len(path.name) == 25
    )
    versions = [int(path.name[:-5]) for path in files]
    assert versions == list(range(len(versions))), f"a gap in the log: {versions}"
    return [[json.loads(line) for line in path.read_text().splitlines()] for path in files]


def provenance(rows: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return commitInfo.tidegate of an entry, or {} for another writer's version."""
    infos = [row["commitInfo"] for row in rows if "commitInfo" in row]
    return dict(infos[0].get("tidegate") or {}) if infos else {}


def accepted(log: Sequence[list[dict[str, Any]]]) -> dict[str, int]:
    """Return proposal id -> version, asserting that no id was accepted twice."""
    result: dict[str, int] = {}
    for version, rows in enumerate(log):
        for item in provenance(rows).get("accepted", []):
            assert item["id"] not in result, (
                f"{item['id']} is in {result[item['id']]} and {version}"
            )
            result[item["id"]] = version
    return result


def refused(log: Sequence[list[dict[str, Any]]]) -> set[str]:
    """Return the ids of the proposals that the log records as refused."""
    return {item["id"] for rows in log for item in provenance(rows).get("refused", [])}


def live_paths(log: Sequence[list[dict[str, Any]]]) -> set[str]:
    """Return the live files, asserting that no live file was added again."""
    live: set[str] = set()
    for version, rows in enumerate(log):
        live -= {row["remove"]["path"] for row in rows if "remove" in row}
        for row in rows:
            if "add" in row:
                path = row["add"]["path"]
                assert path not in live, f"{path} was added again in {version}"
                live.add(path)
    return live


def check_outcomes(log: Sequence[list[dict[str, Any]]], outcomes: Iterable[dict[str, Any]]) -> None:
    """Assert that outcomes agree with each other and with the log."""
    into, never = accepted(log), refused(log)
    assert not into.keys() & never, "accepted and refused"
    result: dict[str, set[str]] = defaultdict(set)
    for outcome in outcomes:
        one, status = outcome["proposal_id"], outcome["status"]
        if status == "committed":
            assert into.get(one) == outcome["version"], f"{one} was told {outcome['version']}"
        if status == "rejected":
            assert one not in into, f"{one} was told rejected and is in version {into[one]}"
        if status in ("committed", "rejected"):
            result[one].add(status)
    torn = {one: answers for one, answers in result.items() if len(answers) > 1}
    assert not torn, f"outcomes disagree: {torn}"
    assert into.keys() <= result.keys(), "committed and never told"


def check_commit_records(table: Path, records: Iterable[dict[str, Any]]) -> list[int]:
    """Assert that `commits` has first records of all versions in order, with the files' hashes."""
    first: list[int] = []
    for record in records:
        version = record["version"]
        content = (table / "_delta_log" / f"{version:020d}.json").read_bytes()
        assert record["sha256"] == hashlib.sha256(content).hexdigest(), f"another {version}"
        assert record["size"] == len(content)
        if not first or version > first[-1]:
            first.append(version)
    assert first == list(range(first[0], first[0] + len(first))), f"not dense: {first}"
    return first

"""What a log weighs after a simulated day, cleaned as the service does: no files are written."""

import pytest

from tidegate_checkpointer.log_cleanup_plan import (
    DAY_MS,
    GRACE_MS,
    HOUR_MS,
    Circumstances,
    ListedFile,
    LogListing,
    cutoff_ms,
    is_due,
    plan,
)
from tidegate_checkpointer.machine import RECENT_MAX
from tidegate_delta.log.file_names import (
    checkpoint_name,
    checksum_name,
    commit_name,
    in_log,
    in_sidecars,
    v2_checkpoint_name,
)

EVERY_S = 10
"""Seconds between two versions: a tenth of K8's rate, with commits ten times as heavy."""
COMMIT, CHECKSUM, TOP = 13_000, 15_000, 6_000
SIDECARS, SIDECAR = 20, 3_350_000
"""A table of 10^6 files: 67 MB of sidecars of 50,000 files each."""
START_MS = 1_000 * DAY_MS
RETENTION_MS = HOUR_MS


@pytest.mark.parametrize("rewritten", [0, 1])
def test_a_log_weighs_at_most_three_times_its_commits_and_two_checkpoints(rewritten: int) -> None:
    """`rewritten` is how many sidecars each checkpoint writes anew, besides a small one."""
    files: dict[str, ListedFile] = {}
    sidecars_of: dict[str, frozenset[str]] = {}
    newest = [put(files, f"old-{number}", SIDECAR, START_MS) for number in range(SIDECARS)]
    cleaned_ms, written, rest = START_MS, 0, 0
    checked = 0
    for version in range(24 * 3600 // EVERY_S):
        now_ms = START_MS + version * EVERY_S * 1000
        for name, size in ((commit_name(version), COMMIT), (checksum_name(version), CHECKSUM)):
            files[name] = ListedFile(in_log(name), size, now_ms)
        if version % 10 == 0 and version > 0:
            small = put(files, f"new-{version}", 20_000, now_ms)
            fresh = [put(files, f"{version}-{n}", SIDECAR, now_ms) for n in range(rewritten)]
            newest = newest[: SIDECARS - rewritten] + fresh
            name = v2_checkpoint_name(version, f"00000000-0000-0000-0000-{version:012d}", "json")
            files[name] = ListedFile(in_log(name), TOP, now_ms)
            sidecars_of[name] = frozenset([*newest, small])
            written += TOP + 20_000 + rewritten * SIDECAR
        if not is_due(now_ms - cleaned_ms, written, rest):
            continue
        listing = LogListing(
            [file for file in files.values() if "_sidecars" not in file.path],
            [file for file in files.values() if "_sidecars" in file.path],
        )
        cutoff = cutoff_ms(now_ms, RETENTION_MS)
        newest_old = (cutoff - START_MS) // (EVERY_S * 1000) if cutoff >= START_MS else -1
        due = plan(listing, Circumstances(now_ms, newest_old, sidecars_of=sidecars_of))
        for item in due.goes:
            del files[item.file.name]
            sidecars_of.pop(item.file.name, None)
        cleaned_ms, written, rest = now_ms, 0, due.rest_bytes
        weight = sum(file.size_bytes for file in files.values())
        if version > 360:
            commits = COMMIT * (version + 1)
            bound = 3 * (commits + 2 * (SIDECARS * SIDECAR + TOP))
            assert weight <= bound, f"{weight / bound * 3:.2f} at version {version}"
            checked += 1
    assert checked >= 20


def test_checksums_of_old_versions_go_long_before_their_commits() -> None:
    newest, every = 400, 100
    files = [
        ListedFile(in_log(name), 1, START_MS)
        for version in range(newest + 1)
        for name in (commit_name(version), checksum_name(version))
    ]
    files += [
        ListedFile(in_log(checkpoint_name(version)), 1, START_MS)
        for version in range(0, newest + 1, every)
    ]
    second_newest = newest - every
    young = START_MS + GRACE_MS - 1
    assert plan(LogListing(files), Circumstances(young, -1)).goes == ()
    due = plan(LogListing(files), Circumstances(START_MS + GRACE_MS, -1))
    gone = {verdict.file.name for verdict in due.goes}
    kept_checkpoints = {
        version for version in range(0, newest + 1, every) if checkpoint_name(version) not in gone
    }
    assert {version for version in range(newest + 1) if checksum_name(version) in gone} == {
        *range(second_newest - RECENT_MAX + 1)
    } - kept_checkpoints
    assert not [name for name in gone if name.endswith(".json")]


def put(files: dict[str, ListedFile], name: str, size: int, now_ms: int) -> str:
    """Add a sidecar, and return its name."""
    files[f"{name}.parquet"] = ListedFile(in_sidecars(f"{name}.parquet"), size, now_ms)
    return f"{name}.parquet"

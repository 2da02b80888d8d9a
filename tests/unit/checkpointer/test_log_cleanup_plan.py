"""Which files of a log go, rule by rule; nothing is written or deleted."""

from typing import Any
from uuid import UUID

import pytest

from tidegate_checkpointer.log_cleanup_plan import (
    DAY_MS,
    GRACE_MS,
    HOUR_MS,
    Circumstances,
    CleanupPlan,
    ListedFile,
    LogListing,
    cutoff_ms,
    is_due,
    plan,
)
from tidegate_checkpointer.machine import RECENT_MAX
from tidegate_delta.log.file_names import (
    LAST_CHECKPOINT,
    STAGED_FOLDER,
    checkpoint_name,
    checksum_name,
    commit_name,
    compacted_name,
    in_log,
    in_sidecars,
    staged_name,
    v2_checkpoint_name,
)
from tidegate_messages.published_records import Gate

WRITTEN_MS = 1_000 * DAY_MS + HOUR_MS
NOW_MS = WRITTEN_MS + DAY_MS
HEAD = 45
CHECKPOINTS = (10, 20, 30, 40)
OTHER = v2_checkpoint_name(30, str(UUID(int=3)), "json")


def listed(name: str, size: int = 1, modified_ms: int = WRITTEN_MS) -> ListedFile:
    return ListedFile(in_log(name), size, modified_ms)


def sidecar(name: str, modified_ms: int = WRITTEN_MS) -> ListedFile:
    return ListedFile(in_sidecars(name), 1, modified_ms)


def log(*more: ListedFile, without: tuple[str, ...] = ()) -> list[ListedFile]:
    """Return a log of 46 commits with four checkpoints, which weigh less than what they spare."""
    names = [*map(commit_name, range(HEAD + 1)), *map(checkpoint_name, CHECKPOINTS)]
    return [*(listed(name) for name in names if name not in without), *more]


def cleanup(
    files: list[ListedFile], cutoff_version: int, sidecars: tuple[ListedFile, ...] = (), **more: Any
) -> CleanupPlan:
    now_ms = more.pop("now_ms", NOW_MS)
    staged = more.pop("staged", ())
    return plan(LogListing(files, sidecars, staged), Circumstances(now_ms, cutoff_version, **more))


def going(due: CleanupPlan) -> set[str]:
    return {verdict.file.name for verdict in due.goes}


def staying(due: CleanupPlan) -> dict[str, str]:
    return {verdict.file.name: verdict.why for verdict in due.stays}


@pytest.mark.parametrize("since_midnight_ms", [0, 1, DAY_MS - 1])
def test_the_retention_ends_at_midnight(since_midnight_ms: int) -> None:
    assert cutoff_ms(100 * DAY_MS + since_midnight_ms, 5 * DAY_MS) == 95 * DAY_MS


def test_what_lies_below_the_newest_checkpoint_that_is_old_enough_goes() -> None:
    due = cleanup(log(listed(checksum_name(3))), 29)
    assert due.floor == 20
    below = {*map(commit_name, range(20)), checkpoint_name(10), checksum_name(3)}
    assert going(due) == below
    assert [verdict.file.name for verdict in due.goes][:20] == [*map(commit_name, range(20))]
    assert due.to_verify == (20, 40)


@pytest.mark.parametrize("cutoff_version", [-1, 9])
def test_without_a_checkpoint_that_is_old_enough_no_commit_goes(cutoff_version: int) -> None:
    due = cleanup(log(), cutoff_version)
    assert due.floor == -1
    assert not {name for name in going(due) if name.endswith(".json")}


def test_the_two_newest_checkpoints_stay_however_old() -> None:
    due = cleanup(log(), HEAD)
    assert due.floor == 30
    assert {checkpoint_name(30), checkpoint_name(40)} <= staying(due).keys()


def test_who_needs_older_versions_holds_the_floor() -> None:
    gates = (Gate(15, "reports"), Gate(33, "publisher"))
    due = cleanup(log(), 35, gates=gates)
    assert due.floor == 10
    assert [(blocked.cause, blocked.why) for blocked in due.blocked] == [
        ("held", "reports needs the versions from 15 on")
    ]


def test_where_cleanup_is_off_everything_stays() -> None:
    due = cleanup(log(), 35, is_enabled=False)
    assert going(due) == set()
    assert [blocked.cause for blocked in due.blocked] == ["disabled"]


def test_a_gap_above_the_floor_stops_it_and_one_below_does_not() -> None:
    due = cleanup(log(without=(commit_name(35),)), 29)
    assert going(due) == set()
    assert [blocked.cause for blocked in due.blocked] == ["gap"]
    assert "version 35 is missing" in due.blocked[0].why
    assert cleanup(log(without=(commit_name(5),)), 29).floor == 20


def test_protected_checkpoints_go_at_once_or_not_at_all() -> None:
    due = cleanup(log(), 29, protected_before=25)
    assert due.floor == -1
    assert [blocked.cause for blocked in due.blocked] == ["protected"]
    assert going(due) == set()
    assert cleanup(log(), 35, protected_before=25).floor == 30


def test_a_torn_checkpoint_counts_as_none_and_goes_after_a_day() -> None:
    torn = listed(checkpoint_name(25), size=0)
    due = cleanup(log(torn), 29)
    assert due.floor == 20
    assert checkpoint_name(25) in going(due)
    early = cleanup(log(torn), 29, now_ms=NOW_MS - 1)
    assert "may be being written" in staying(early)[checkpoint_name(25)]
    newest = listed(checkpoint_name(45), size=0)
    assert "may be being written" in staying(cleanup(log(newest), 29))[checkpoint_name(45)]


def test_a_checkpoint_in_parts_counts_once_all_are_there() -> None:
    parts = [f"{25:020d}.checkpoint.{number:010d}.{2:010d}.parquet" for number in (1, 2)]
    assert cleanup(log(listed(parts[0])), 29).floor == 20
    assert cleanup(log(*map(listed, parts)), 29).floor == 25


def test_of_two_checkpoints_of_a_version_the_one_that_readers_take_stays() -> None:
    older = v2_checkpoint_name(20, str(UUID(int=1)), "json")
    newer = v2_checkpoint_name(20, str(UUID(int=2)), "json")
    due = cleanup(log(listed(older), listed(newer)), 29)
    assert older in going(due)
    assert {newer, checkpoint_name(20)} <= staying(due).keys()
    young = cleanup(log(listed(older), listed(newer, modified_ms=NOW_MS - GRACE_MS + 1)), 29)
    assert "kept for its readers" in staying(young)[older]


def test_inside_the_retention_one_checkpoint_an_hour_stays() -> None:
    checkpoints = {10: 0, 15: 10, 20: 50, 25: 70, 30: 80, 35: 130, 40: 140}
    files = [listed(name) for name in map(commit_name, range(HEAD + 1))]
    files += [
        listed(checkpoint_name(version), modified_ms=1_000 * DAY_MS + minutes * 60_000)
        for version, minutes in checkpoints.items()
    ]
    due = cleanup(files, -1)
    assert going(due) == {checkpoint_name(version) for version in (15, 20, 30)}
    heavy = [
        file if file.name != checkpoint_name(25) else listed(file.name, 10**6, file.modified_ms)
        for file in files
    ]
    # It weighs more than the commits that it spares: the next one of its hour stays.
    assert checkpoint_name(25) in going(cleanup(heavy, -1))
    assert checkpoint_name(30) in staying(cleanup(heavy, -1))


def test_a_replaced_checkpoint_stays_for_those_that_have_listed_it() -> None:
    files = [listed(name) for name in map(commit_name, range(HEAD + 1))]
    files += [listed(checkpoint_name(version)) for version in (10, 20, 40)]
    files.append(listed(checkpoint_name(30), modified_ms=NOW_MS - GRACE_MS + 1))
    due = cleanup(files, -1)
    assert "kept for readers" in staying(due)[checkpoint_name(20)]
    assert checkpoint_name(20) in going(cleanup(files, -1, now_ms=NOW_MS + 1))


def test_log_compactions_go_once_nobody_begins_with_them() -> None:
    spans = ((11, 15), (21, 25), (31, 35), (41, 43), (41, 44))
    files = log(*(listed(compacted_name(*span)) for span in spans))
    assert going(cleanup(files, -1)) >= {compacted_name(*span) for span in spans[:2]}
    # Readers of the newest versions need those above the last checkpoint but one.
    stays = staying(cleanup(files, -1))
    assert compacted_name(31, 35) in stays
    assert compacted_name(41, 44) in stays
    # A longer one covers it.
    assert compacted_name(41, 43) in going(cleanup(files, -1))
    # Who reads version 15 begins at the checkpoint of 10.
    held = staying(cleanup(files, -1, gates=(Gate(15, "reports"),)))
    assert held[compacted_name(11, 15)] == "a reader holds a version that it is part of"
    # Nobody can read it beside the checkpoint of the floor, which has its first commit.
    across = listed(compacted_name(30, 35))
    assert compacted_name(30, 35) in going(cleanup(log(across), HEAD))


def test_staged_commits_go_with_the_versions_they_became() -> None:
    names = [staged_name(version, UUID(int=version)) for version in (20, 21, 99)]
    staged = tuple(
        ListedFile(f"{in_log(STAGED_FOLDER)}/{name}", 1, WRITTEN_MS) for name in (*names, "x")
    )
    due = cleanup(log(), 29, staged=staged)
    assert going(due) & {*names, "x"} == {names[0]}


def test_a_sidecar_goes_with_the_last_checkpoint_that_refers_to_it() -> None:
    old = v2_checkpoint_name(10, str(UUID(int=1)), "json")
    named = {old: frozenset({"freed", "shared"}), OTHER: frozenset({"shared"})}
    midnight_ms = cutoff_ms(NOW_MS, DAY_MS)
    sidecars = (
        *(sidecar(name) for name in ("freed", "shared")),
        sidecar("orphan", midnight_ms - 1),
        sidecar("young", midnight_ms),
    )
    files = log(listed(old), listed(OTHER))
    due = cleanup(files, 29, sidecars, sidecars_of=named)
    assert going(due) & {"freed", "shared", "orphan", "young"} == {"freed", "orphan"}
    unread = cleanup(files, 29, sidecars, sidecars_of=named, unread=frozenset({OTHER}))
    assert going(unread) & {"freed", "shared", "orphan", "young"} == set()
    assert [blocked.cause for blocked in unread.blocked] == ["unreadable"]


def test_the_hint_and_what_is_not_known_stay() -> None:
    unknown = ("notes.txt", LAST_CHECKPOINT, "00000000000000000001.json.bak")
    due = cleanup(log(*map(listed, unknown)), HEAD)
    assert set(unknown) <= staying(due).keys()


def test_two_verified_checkpoints_stay_and_are_enough() -> None:
    due = cleanup(log(), 29, verified=frozenset({20, 30}))
    assert due.to_verify == ()
    inside = cleanup(log(), -1, verified=frozenset({10, 20}))
    assert staying(inside)[checkpoint_name(20)] == "one of two that are verified"
    assert checkpoint_name(20) in going(cleanup(log(), -1, verified=frozenset({30, 40})))
    assert cleanup(log(), 29, verified=frozenset({30})).to_verify == (20,)


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

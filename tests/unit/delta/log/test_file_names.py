from uuid import UUID

import pytest

from tidegate_delta.log.file_names import (
    LogFileKind,
    checkpoint_name,
    checksum_name,
    commit_name,
    compacted_name,
    in_log,
    parse,
    staged_name,
    staged_version,
)


@pytest.mark.parametrize(
    ("name", "kind", "start", "version"),
    [
        (commit_name(7), LogFileKind.COMMIT, 7, 7),
        (checksum_name(7), LogFileKind.CHECKSUM, 7, 7),
        (checkpoint_name(7), LogFileKind.CHECKPOINT_CLASSIC, 7, 7),
        (compacted_name(3, 7), LogFileKind.COMPACTED, 3, 7),
        (
            "00000000000000000007.checkpoint.0000000002.0000000003.parquet",
            LogFileKind.CHECKPOINT_PART,
            7,
            7,
        ),
        (
            "00000000000000000007.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json",
            LogFileKind.CHECKPOINT_V2,
            7,
            7,
        ),
    ],
)
def test_a_name_says_what_the_file_is(
    name: str, kind: LogFileKind, start: int, version: int
) -> None:
    file = parse(name)
    assert file is not None
    assert (file.kind, file.start, file.version, file.name) == (kind, start, version, name)


@pytest.mark.parametrize(
    "name",
    [
        "_last_checkpoint",
        "7.json",
        ".00000000000000000007.json.crc",
        "00000000000000000007.json.tmp",
        "00000000000000000007.checkpoint.0000000004.0000000003.parquet",
        "00000000000000000007.checkpoint.0000000000.0000000003.parquet",
        "00000000000000000007.00000000000000000007.compacted.json",
        "00000000000000000007.80a083e8-7026-4e79-81be-64bd76c43a11.json",
        "00000000000000000007.99999999999999999999.compacted.json",
        "00000000000000000007.json\n",
        "00000000000000000007.checkpoint.parquet\n",
        "0000000000000000000\N{ARABIC-INDIC DIGIT SEVEN}.json",
    ],
)
def test_other_names_mean_nothing(name: str) -> None:
    assert parse(name) is None


def test_the_order_of_names_is_the_order_of_versions() -> None:
    versions = [0, 9, 10, 11, 99, 100, 10**15]
    assert sorted(commit_name(v) for v in reversed(versions)) == [commit_name(v) for v in versions]


def test_a_name_in_the_log_is_below_the_table() -> None:
    assert in_log(commit_name(0)) == "_delta_log/00000000000000000000.json"


def test_a_staged_name_contains_its_version() -> None:
    unique = UUID("80a083e8-7026-4e79-81be-64bd76c43a11")
    assert staged_name(7, unique) == f"{7:020d}.{unique}.json"
    assert staged_version(staged_name(7, unique)) == 7


@pytest.mark.parametrize("name", [f"{7:020d}.json", "7.x.json", f"{7:020d}.{UUID(int=1)}.json\n"])
def test_no_other_name_is_that_of_a_staged_commit(name: str) -> None:
    assert staged_version(name) is None

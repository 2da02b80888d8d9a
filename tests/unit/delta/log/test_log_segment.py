from collections.abc import Iterable
from uuid import UUID

import pytest

from tidegate_delta.errors import BrokenLog, InvalidRequest
from tidegate_delta.log.file_names import (
    LogFile,
    checkpoint_name,
    checksum_name,
    commit_name,
    compacted_name,
    parse,
    v2_checkpoint_name,
)
from tidegate_delta.log.log_segment import choose, complete_checkpoints


def listing(names: Iterable[str]) -> list[LogFile]:
    files = [parse(name) for name in names]
    return [file for file in files if file is not None]


def commits(first: int, last: int) -> list[str]:
    return [commit_name(version) for version in range(first, last + 1)]


def part(version: int, number: int, count: int) -> str:
    return f"{version:020d}.checkpoint.{number:010d}.{count:010d}.parquet"


IDS = [UUID(int=1), UUID(int=2)]


def test_without_a_checkpoint_every_commit_is_read() -> None:
    segment = choose(listing(commits(0, 3)))
    assert (segment.version, segment.checkpoint, segment.checkpoint_version) == (3, (), -1)
    assert [file.name for file in segment.deltas] == commits(0, 3)


def test_the_newest_checkpoint_and_what_follows_it_is_read() -> None:
    names = [*commits(0, 12), checkpoint_name(5), checkpoint_name(10), checksum_name(12)]
    segment = choose(listing(names))
    assert [file.name for file in segment.checkpoint] == [checkpoint_name(10)]
    assert [file.name for file in segment.deltas] == commits(11, 12)


def test_the_checksum_of_the_version_is_known_where_it_was_listed() -> None:
    names = [*commits(0, 2), checksum_name(1), checksum_name(3)]
    result = [choose(listing(names), version).checksum for version in (0, 1, 2)]
    assert result == [None, *listing([checksum_name(1)]), None]


def test_an_older_version_is_read_from_an_older_checkpoint() -> None:
    names = [*commits(0, 12), checkpoint_name(5), checkpoint_name(10)]
    segment = choose(listing(names), 7)
    assert segment.checkpoint_version == 5
    assert [file.name for file in segment.deltas] == commits(6, 7)


def test_a_checkpoint_newer_than_the_last_commit_is_the_head() -> None:
    assert choose(listing([checkpoint_name(10)])).version == 10


def test_an_incomplete_checkpoint_counts_as_none() -> None:
    names = [*commits(0, 4), part(3, 1, 2)]
    assert choose(listing(names)).checkpoint == ()
    whole = choose(listing([*names, part(3, 2, 2)]))
    assert [file.part for file in whole.checkpoint] == [1, 2]


def test_a_checkpoint_in_one_file_is_preferred_to_one_in_parts() -> None:
    names = [part(3, 1, 2), part(3, 2, 2), checkpoint_name(3)]
    assert complete_checkpoints(listing(names))[3] == tuple(listing([checkpoint_name(3)]))


def test_a_gap_is_refused() -> None:
    with pytest.raises(BrokenLog) as caught:
        choose(listing([*commits(0, 2), *commits(4, 5)]))
    assert caught.value.error_class == "LogGap"


def test_a_version_before_a_gap_can_be_read() -> None:
    assert choose(listing([*commits(0, 2), *commits(4, 5)]), 2).version == 2


def test_a_first_commit_gone_without_a_checkpoint_is_a_gap() -> None:
    with pytest.raises(BrokenLog) as caught:
        choose(listing([*commits(1, 3), checksum_name(0)]))
    assert caught.value.error_class == "LogGap"


@pytest.mark.parametrize("version", [-1, 0, 9, 13])
def test_a_version_that_was_cleaned_up_or_never_was_is_not_found(version: int) -> None:
    with pytest.raises(InvalidRequest) as caught:
        choose(listing([*commits(8, 12), checkpoint_name(10)]), version)
    assert caught.value.error_class == "VersionNotFound"


def test_an_empty_log_is_no_table() -> None:
    with pytest.raises(InvalidRequest) as caught:
        choose(listing([checksum_name(0)]))
    assert caught.value.error_class == "NotADeltaTable"


def test_a_log_compaction_stands_for_its_commits() -> None:
    names = [*commits(0, 9), compacted_name(2, 4), compacted_name(2, 6), compacted_name(8, 12)]
    segment = choose(listing(names))
    chosen = [file.name for file in segment.deltas]
    assert chosen == [*commits(0, 1), compacted_name(2, 6), *commits(7, 9)]


def test_a_log_compaction_across_the_version_or_the_checkpoint_is_not_used() -> None:
    names = [*commits(0, 9), checkpoint_name(3), compacted_name(2, 6), compacted_name(5, 8)]
    assert [file.name for file in choose(listing(names), 7).deltas] == commits(4, 7)


@pytest.mark.parametrize("suffix", ["json", "parquet"])
def test_a_v2_checkpoint_leads_to_a_version(suffix: str) -> None:
    name = v2_checkpoint_name(4, str(UUID(int=4)), suffix)
    segment = choose(listing([*commits(4, 5), name]))
    assert [file.name for file in segment.checkpoint] == [name]
    assert [file.name for file in segment.deltas] == commits(5, 5)


def test_of_several_checkpoints_of_a_version_one_with_a_unique_name_is_read() -> None:
    names = [checkpoint_name(4), part(4, 1, 1), *(v2_checkpoint_name(4, str(item)) for item in IDS)]
    assert complete_checkpoints(listing(names))[4] == tuple(listing(names[-1:]))


def test_a_log_that_begins_at_a_v2_checkpoint_does_not_hold_older_versions() -> None:
    with pytest.raises(InvalidRequest) as caught:
        choose(listing([*commits(3, 5), v2_checkpoint_name(4, str(IDS[0]))]), 3)
    assert caught.value.error_class == "VersionNotFound"


def test_a_commit_that_is_gone_is_a_gap_even_if_a_compaction_covers_it() -> None:
    names = [*commits(0, 1), *commits(3, 5), compacted_name(1, 4)]
    with pytest.raises(BrokenLog, match=commit_name(2)) as caught:
        choose(listing(names))
    assert caught.value.error_class == "LogGap"
    assert [file.name for file in choose(listing([*names, commit_name(2)])).deltas] == [
        commit_name(0),
        compacted_name(1, 4),
        commit_name(5),
    ]

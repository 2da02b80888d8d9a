"""In-commit timestamps: the next one, and the record of their enablement."""

from tidegate_delta.features import in_commit_timestamps
from tidegate_delta.features.in_commit_timestamps import ENABLEMENT, next_timestamp, with_enablement
from tidegate_delta.log.actions import Metadata

ON = {"delta.enableInCommitTimestamps": "true"}
RECORD = dict(zip(ENABLEMENT, ("3", "50"), strict=True))


def about(*configurations: dict[str, str]) -> Metadata:
    merged = {
        key: value for configuration in configurations for key, value in configuration.items()
    }
    return Metadata(id="m", schema_string="{}", configuration=merged)


def test_time_goes_on_though_the_clock_does_not() -> None:
    assert next_timestamp(10, 5) == 10
    assert next_timestamp(10, 10) == 11
    assert next_timestamp(10, 99) == 100


def test_who_turns_timestamps_on_records_it() -> None:
    assert in_commit_timestamps.begins(about(), about(ON))
    assert with_enablement(about(), about(ON), 3, 50) == about(ON, RECORD)
    stale = {key: "1" for key in ENABLEMENT}
    assert with_enablement(about(), about(ON, stale), 3, 50) == about(ON, RECORD)


def test_version_0_needs_no_record() -> None:
    assert with_enablement(None, about(ON), 0, 50) == about(ON)


def test_who_leaves_them_on_keeps_the_record() -> None:
    assert with_enablement(about(ON, RECORD), about(ON), 9, 99) == about(ON, RECORD)
    assert with_enablement(about(ON, RECORD), about(ON, RECORD), 9, 99) == about(ON, RECORD)
    assert with_enablement(about(ON), about(ON), 9, 99) == about(ON)


def test_who_turns_them_off_is_left_alone() -> None:
    assert with_enablement(about(ON, RECORD), about(), 9, 99) == about()
    assert with_enablement(about(), about(), 9, 99) == about()

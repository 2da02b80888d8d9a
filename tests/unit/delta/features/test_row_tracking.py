"""Row ids: which files get them, from which value, and how the high-water mark is kept."""

import pytest

from tidegate_delta.errors import BrokenLog
from tidegate_delta.features import row_tracking
from tidegate_delta.features.row_tracking import DOMAIN, NO_HIGH_WATER_MARK, mark_domain, mark_in
from tidegate_delta.log.actions import DomainMetadata, Metadata, Protocol


def about(**properties: str) -> Metadata:
    configuration = {f"delta.{key.replace('_', '.')}": value for key, value in properties.items()}
    return Metadata(id="m", schema_string="{}", configuration=configuration)


def test_ids_are_given_where_the_protocol_lists_the_feature() -> None:
    listed = Protocol(min_reader_version=1, min_writer_version=7, writer_features=("rowTracking",))
    assert row_tracking.supports(listed)
    assert not row_tracking.supports(Protocol(min_reader_version=1, min_writer_version=6))


def test_properties_say_whether_rows_can_be_asked_for_and_whether_ids_are_given() -> None:
    assert row_tracking.is_enabled(about(enableRowTracking="TRUE"))
    assert not row_tracking.is_enabled(about(enableRowTracking="no"))
    assert row_tracking.is_suspended(about(rowTrackingSuspended="true"))
    assert not row_tracking.is_suspended(about())


@pytest.mark.parametrize("mark", [NO_HIGH_WATER_MARK, 0, 2**63 - 1])
def test_a_mark_survives_its_domain(mark: int) -> None:
    domain = mark_domain(mark)
    assert domain.domain == DOMAIN
    assert mark_in(domain) == mark
    assert row_tracking.high_water_mark({DOMAIN: domain}) == mark


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"rowIdHighWaterMark":"1"}', "no json"])
def test_a_domain_that_spells_no_mark_is_never_taken_for_no_ids_at_all(text: str) -> None:
    domain = DomainMetadata(domain=DOMAIN, configuration=text)
    assert mark_in(domain) == NO_HIGH_WATER_MARK
    with pytest.raises(BrokenLog, match="rowIdHighWaterMark"):
        row_tracking.high_water_mark({DOMAIN: domain})


def test_a_domain_that_is_gone_has_no_mark() -> None:
    assert mark_in(mark_domain(7).with_(removed=True)) == NO_HIGH_WATER_MARK
    assert row_tracking.high_water_mark({}) == NO_HIGH_WATER_MARK


@pytest.mark.parametrize(
    ("stats", "count"),
    [
        ('{"numRecords":3}', 3),
        ('{"numRecords":-1}', None),
        ('{"numRecords":1.5}', None),
        ("{}", None),
        ("[]", None),
        ("no json", None),
        (None, None),
    ],
)
def test_rows_are_those_that_somebody_counted(stats: str | None, count: int | None) -> None:
    assert row_tracking.physical_records(stats) == count

"""In whatever order the registry is read, and whatever compaction left, the same record counts."""

from collections.abc import Sequence
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from tidegate_messages.published_records import Ruling, TableRecord, TableStatus
from tidegate_messages.table_home import counting, later, recorded_home
from tidegate_runtime.table_registry import Registrations

TABLE = UUID(int=1)
Kept = tuple[str, TableRecord]
"""A record and its key; Kafka retains the last record of each key."""


def record(partition: int, status: TableStatus, rulings: int, version: int = 0) -> TableRecord:
    return TableRecord(
        table=TABLE,
        table_root="file:///t",
        name="t",
        proposals_topic="p",
        topic_partition=partition,
        status=status,
        published_through=version,
        ruling=Ruling(number=rulings, stream="s", offset=rulings) if rulings else None,
    )


@st.composite
def partitions(draw: st.DrawFn, number: int) -> list[Kept]:
    """Draw the records of a topic partition.

    It has an owner and a zombie; the zombie lost the table before an operator's last request and
    writes an outdated state.
    """
    written: list[Kept] = [("t", record(number, "staged", 0))]
    rulings = 0
    statuses: list[TableStatus] = ["open"]
    for version in range(draw(st.integers(0, 6))):
        if statuses[-1] != "dropped" and draw(st.booleans()):
            rulings += 1
            statuses.append(draw(st.sampled_from(["halted", "open", "dropped"])))
            ruled = record(number, statuses[-1], rulings, version)
            written += [(f"t/{ruled.status}", ruled), ("t", ruled)]
        else:
            late = rulings > 0 and draw(st.booleans())
            place = rulings - 1 if late else rulings
            status = statuses[place]
            if late or status != "dropped":
                written.append(("t", record(number, status, place, version)))
    return written[draw(st.integers(0, 1)) :]


@st.composite
def compacted(draw: st.DrawFn, written: Sequence[Kept]) -> list[Kept]:
    """Draw what compaction leaves: the last record of each key, and any earlier ones."""
    last = {key: place for place, (key, _) in enumerate(written)}
    return [
        one for place, one in enumerate(written) if last[one[0]] == place or draw(st.booleans())
    ]


@st.composite
def reading(draw: st.DrawFn, parts: Sequence[Sequence[Kept]]) -> list[TableRecord]:
    """Draw an order of reading partitions: each in its own order, interleaved arbitrarily."""
    turns = [number for number, part in enumerate(parts) for _ in part]
    rest = [iter(part) for part in parts]
    return [next(rest[number])[1] for number in draw(st.permutations(turns))]


def counting_record(records: Sequence[TableRecord]) -> TableRecord | None:
    result = Registrations()
    for record in records:
        result.take(record)
    return result.counting.get(TABLE)


def rebase_state(one: TableRecord | None) -> object:
    """Return what all readers must agree on; the published version is only a hint."""
    return one and (recorded_home(one), one.status, one.rulings)


@given(st.data())
def test_everybody_agrees_on_home_halt_and_drop_after_any_compaction(data: st.DataObject) -> None:
    parts = [data.draw(partitions(number)) for number in range(3)]
    left = [data.draw(compacted(part)) for part in parts]
    first, second = data.draw(reading(parts)), data.draw(reading(parts))
    third = data.draw(reading(left))
    assert counting_record(first) == counting_record(second)
    assert rebase_state(counting_record(first)) == rebase_state(counting_record(third))


@given(st.data())
def test_reading_again_changes_nothing(data: st.DataObject) -> None:
    parts = [data.draw(partitions(number)) for number in range(2)]
    once = data.draw(reading(parts))
    assert rebase_state(counting_record([*once, *once])) == rebase_state(counting_record(once))


@given(
    st.lists(
        st.builds(
            record,
            st.integers(0, 3),
            st.sampled_from(["staged", "open", "halted", "dropped"]),
            st.integers(0, 3),
        ),
        min_size=1,
        unique_by=recorded_home,
    ),
    st.data(),
)
def test_which_of_several_counts_is_commutative_associative_and_idempotent(
    records: list[TableRecord], data: st.DataObject
) -> None:
    chosen = counting(records)
    assert counting(data.draw(st.permutations(records))) == chosen
    cut = data.draw(st.integers(1, len(records)))
    parts = [part for part in (records[:cut], records[cut:]) if part]
    assert counting([counting(part) for part in parts]) == chosen
    assert counting([chosen, *records]) == chosen
    if any(item.status == "dropped" for item in records):
        assert chosen.status == "dropped"


STATUSES: tuple[TableStatus, ...] = ("staged", "open", "halted", "dropped")
RECORDS = st.builds(record, st.just(0), st.sampled_from(STATUSES), st.integers(0, 3))


@given(RECORDS, RECORDS)
def test_no_later_record_undoes_a_drop_or_an_operators_request(
    known: TableRecord, record: TableRecord
) -> None:
    counts = later(known, record)
    assert counts in (known, record)
    if known.status == "dropped":
        assert counts.status == "dropped"
    if record.status != "dropped":
        assert counts.rulings >= known.rulings
    if (known.status, known.rulings) == (record.status, record.rulings):
        assert counts is record

"""Laws of merged deletion vectors over generated deletes and updates of rows."""

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import ROOT, Gate, add, metadata, proposal, protocol, row_delete, rows_of
from tidegate_committer.settings import CommitterSection
from tidegate_delta.deletion_vectors.descriptors import inline_rows
from tidegate_delta.log.actions import DeletionVector
from tidegate_messages.outcome import Outcome
from tidegate_messages.proposal import Operation, Proposal, ReadSet
from tidegate_runtime.table_io.deletion_vector_reader import read_vector

NAMES = ["deletionVectors"]
FEATURE = protocol(3, 7, readerFeatures=NAMES, writerFeatures=NAMES)
SIZES = {"a": 12, "b": 200_000}
STATS = {path: f'{{"numRecords":{size}}}' for path, size in SIZES.items()}
SOME_ROWS = {
    "a": st.sets(st.integers(0, 11), min_size=1, max_size=4),
    "b": st.sampled_from([range(2_000), range(65_000, 66_000, 3), range(0, 200_000, 199)]).map(set)
    | st.sets(st.integers(0, 199_999), min_size=1, max_size=3),
}


@dataclass(frozen=True)
class Wish:
    """Rows of a file that a writer deletes, or updates by new rows."""

    path: str
    rows: frozenset[int]
    is_update: bool = False

    def proposed(self, number: int) -> Proposal:
        """Return the proposal of a writer that read version 1."""
        op = "update" if self.is_update else "delete"
        size = SIZES[self.path]
        intent = rows_of(self.path, self.rows, op=op, num_records=size)
        if not self.is_update:
            return row_delete(intent, read_version=1)
        reads = ReadSet(files=(self.path,), delete_insensitive=True)
        return proposal(
            add(f"image-{number}"),
            read_version=1,
            reads=reads,
            dv_intents=(intent,),
            operation=Operation(name="UPDATE"),
        )


@st.composite
def wishes(draw: st.DrawFn) -> Wish:
    """Draw a wish for one of the files."""
    path = draw(st.sampled_from(sorted(SIZES)))
    return Wish(path, frozenset(draw(SOME_ROWS[path])), draw(st.booleans()))


@st.composite
def apart(draw: st.DrawFn) -> list[Wish]:
    """Draw wishes that have no row in common."""
    taken: dict[str, set[int]] = {path: set() for path in SIZES}
    result = []
    for wish in draw(st.lists(wishes(), min_size=1, max_size=6)):
        rows = wish.rows - taken[wish.path]
        if rows:
            taken[wish.path] |= rows
            result.append(Wish(wish.path, rows, wish.is_update))
    return result


CUTS = st.lists(st.integers(1, 4), max_size=6)


def begun(members: int) -> Gate:
    gate = Gate(CommitterSection(roots=("memory://tables",), group_members_max=members))
    create = Operation(name="CREATE TABLE")
    result = gate.ask(
        proposal(
            FEATURE, metadata(enableDeletionVectors="true"), read_version=-1, operation=create
        ),
        proposal(*(add(path, stats=stats) for path, stats in STATS.items())),
    )
    assert [outcome.status for outcome in result] == ["committed", "committed"]
    return gate


def settled(gate: Gate, proposals: Sequence[Proposal], cuts: Sequence[int]) -> list[Outcome]:
    """Let the gate decide proposals in batches; it dies between two batches now and then."""
    before = len(gate.outcomes())
    left = list(proposals)
    for cut in (*cuts, len(left)):
        gate.send(*left[:cut])
        gate.settle(8)
        left = left[cut:]
        if cut == 3:
            gate.restart()
    gate.settle(len(proposals))
    result = [outcome for outcome in gate.outcomes()[before:] if not outcome.repeat]
    return sorted(result, key=lambda one: one.offset or 0)


def gone(gate: Gate) -> dict[str, set[int]]:
    """Return each file's deleted rows by the log: all if the file is removed."""
    found: dict[str, set[int]] = {path: set() for path in SIZES}
    for rows in gate.entries():
        for row in rows:
            path = row.get("remove", {}).get("path")
            if path in SIZES:
                found[path] = set(range(SIZES[path]))
        for row in rows:
            path = row.get("add", {}).get("path")
            if path in SIZES:
                result = row["add"].get("deletionVector")
                vector = DeletionVector.model_validate(result) if result else None
                found[path] = set(read_vector(gate.stores[ROOT], vector)) if vector else set()
    return found


def images(gate: Gate) -> set[int]:
    """Return the numbers of the proposals whose updated rows are in the table."""
    paths = [row["add"]["path"] for rows in gate.entries() for row in rows if "add" in row]
    return {int(path.split("-")[1]) for path in paths if path.startswith("image-")}


@given(apart(), st.randoms(), CUTS, st.integers(1, 6))
@settings(max_examples=30, deadline=None)
def test_deletes_of_different_rows_all_commit_in_any_order(
    wanted: list[Wish], dice: object, cuts: list[int], members: int
) -> None:
    # Updated rows are appends, with which an earlier member may conflict; deletes cannot.
    wanted = [Wish(item.path, item.rows) for item in wanted]
    dice.shuffle(wanted)  # type: ignore[attr-defined]  # hypothesis hands over a Random
    gate = begun(members)
    result = settled(gate, [one.proposed(number) for number, one in enumerate(wanted)], cuts)
    assert [outcome.status for outcome in result] == ["committed"] * len(wanted)
    union = {path: set().union(*(one.rows for one in wanted if one.path == path)) for path in SIZES}
    assert gone(gate) == union
    assert sum(int(str(one.assigned["rows_deleted"])) for one in result) == sum(
        map(len, union.values())
    )


@given(st.lists(wishes(), min_size=1, max_size=8), CUTS, st.integers(1, 6))
@settings(max_examples=50, deadline=None)
def test_no_delete_is_lost_and_no_row_is_updated_twice(
    wanted: list[Wish], cuts: list[int], members: int
) -> None:
    gate = begun(members)
    result = settled(gate, [one.proposed(number) for number, one in enumerate(wanted)], cuts)
    committed = [
        (number, one)
        for number, (one, outcome) in enumerate(zip(wanted, result, strict=True))
        if outcome.status == "committed"
    ]
    union = {
        path: set().union(*(one.rows for _, one in committed if one.path == path)) for path in SIZES
    }
    assert gone(gate) == union
    assert images(gate) == {number for number, one in committed if one.is_update}
    gone_before: dict[str, set[int]] = {path: set() for path in SIZES}
    for _, one in committed:
        assert not (one.is_update and gone_before[one.path] & one.rows), "a row was updated again"
        gone_before[one.path] |= one.rows
    rules = {outcome.rejection.rule for outcome in result if outcome.rejection}
    assert rules <= {"concurrent_row_delete", "concurrent_delete_read"}


@given(st.lists(wishes(), min_size=2, max_size=6), st.integers(2, 6))
@settings(max_examples=20, deadline=None)
def test_how_deletes_are_grouped_changes_nothing(wanted: list[Wish], members: int) -> None:
    proposals = [one.proposed(number) for number, one in enumerate(wanted)]
    together, alone = begun(members), begun(1)
    first = [outcome.status for outcome in settled(together, proposals, [])]
    second = [outcome.status for outcome in settled(alone, proposals, [])]
    assert first == second
    assert gone(together) == gone(alone)


@given(apart())
@settings(max_examples=20, deadline=None)
def test_an_outcome_has_the_vector_that_the_log_holds(wanted: list[Wish]) -> None:
    gate = begun(6)
    result = settled(gate, [one.proposed(number) for number, one in enumerate(wanted)], [])
    after = gone(gate)
    for one, outcome in zip(wanted, result, strict=True):
        vectors = outcome.assigned["deletion_vectors"]
        assert isinstance(vectors, dict)
        stated = vectors[one.path]
        if stated is None:
            assert after[one.path] == set(range(SIZES[one.path]))
            continue
        vector = DeletionVector.model_validate(stated)
        inside = vector.storage_type == "i"
        rows = inline_rows(vector) if inside else read_vector(gate.stores[ROOT], vector)
        assert one.rows <= set(rows) <= after[one.path]

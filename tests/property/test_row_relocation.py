"""Laws of relocated rows: after deletes and compactions each undeleted row exists once."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import (
    ROOT,
    Gate,
    add,
    compact,
    metadata,
    proposal,
    protocol,
    row_delete,
    rows_of,
)
from tidegate_committer.intake.row_intents import Relocation, moved_rows
from tidegate_committer.settings import CommitterSection
from tidegate_delta.deletion_vectors.descriptors import inline
from tidegate_delta.deletion_vectors.roaring_bitmap import of_rows
from tidegate_delta.log.actions import DeletionVector
from tidegate_messages.proposal import Operation, Proposal
from tidegate_runtime.table_io.deletion_vector_reader import read_vector

NAMES = ["deletionVectors"]
FEATURE = protocol(3, 7, readerFeatures=NAMES, writerFeatures=NAMES)
BEGUN = ("a", "b", "c")
Row = tuple[str, int]


@dataclass
class Ledger:
    """A gate, and for each file ever written which of the first rows it holds, in order."""

    gate: Gate
    holds: dict[str, list[Row]] = field(default_factory=dict)
    wanted: dict[str, set[Row]] = field(default_factory=dict)

    def seen(self, version: int) -> dict[str, set[int]]:
        """Return the live files of a version, with their deleted rows."""
        live: dict[str, set[int]] = {}
        for rows in self.gate.entries()[: version + 1]:
            for row in rows:
                live.pop(row.get("remove", {}).get("path", ""), None)
            for row in rows:
                if "add" in row:
                    told = row["add"].get("deletionVector")
                    vector = DeletionVector.model_validate(told) if told else None
                    store = self.gate.stores[ROOT]
                    live[row["add"]["path"]] = set(read_vector(store, vector)) if vector else set()
        return live

    @property
    def head(self) -> int:
        """The last version."""
        return len(self.gate.entries()) - 1

    def left(self) -> list[Row]:
        """Return the rows that the table holds, duplicates included."""
        return sorted(
            row
            for path, gone in self.seen(self.head).items()
            for place, row in enumerate(self.holds[path])
            if place not in gone
        )

    def deletes(self, version: int, dice: st.DataObject) -> Proposal | None:
        """Return a proposal to delete rows of files as of a version."""
        found = []
        rows_wanted: set[Row] = set()
        for path, gone in sorted(self.seen(version).items()):
            count = len(self.holds[path])
            there = sorted(set(range(count)) - gone)
            rows = dice.draw(st.sets(st.sampled_from(there), max_size=3)) if there else set()
            if rows:
                base = inline(of_rows(sorted(gone))).unique_id if gone else None
                found.append(rows_of(path, sorted(rows), base=base, num_records=count))
                rows_wanted |= {self.holds[path][row] for row in rows}
        if not found:
            return None
        made = row_delete(*found, read_version=version)
        self.wanted[str(made.proposal_id)] = rows_wanted
        return made

    def compacts(self, version: int, dice: st.DataObject) -> Proposal | None:
        """Return a proposal to compact files as of a version."""
        live = self.seen(version)
        paths = dice.draw(st.permutations(sorted(live)))[: dice.draw(st.integers(1, 3))]
        target = f"g{len(self.holds)}"
        kept = {
            path: [row for place, row in enumerate(self.holds[path]) if place not in live[path]]
            for path in paths
        }
        if not paths or not any(kept.values()):
            return None
        self.holds[target] = [row for path in paths for row in kept[path]]
        vectors = {
            path: inline(of_rows(sorted(live[path]))).model_dump(by_alias=True, exclude_none=True)
            for path in paths
            if live[path]
        }
        sources = {path: len(rows) for path, rows in kept.items()}
        return compact(sources, target, read_version=version, vectors=vectors)

    def names_empty(self, made: Proposal, gone: set[Row]) -> bool:
        """Return whether a proposal deletes rows of, or compacts, a file whose rows are all gone.

        Such a file was removed from the table, so the proposal is to be run again (ADR 22).
        """
        paths = {intent.path for intent in made.dv_intents}
        paths |= {source.path for mapping in made.row_mapping or () for source in mapping.sources}
        return any(gone.issuperset(self.holds[path]) for path in paths)


def begun(members: int) -> Ledger:
    gate = Gate(
        CommitterSection(
            roots=("memory://tables",), group_members_max=members, inline_vector_bytes_max=1_024
        )
    )
    create = Operation(name="CREATE TABLE")
    gate.ask(
        proposal(
            FEATURE, metadata(enableDeletionVectors="true"), read_version=-1, operation=create
        ),
        proposal(*map(add, BEGUN)),
    )
    return Ledger(gate, {path: [(path, row) for row in range(10)] for path in BEGUN})


@settings(max_examples=50, deadline=None)
@given(st.data(), st.integers(1, 5))
def test_what_is_left_is_what_nobody_deleted(dice: st.DataObject, members: int) -> None:
    ledger = begun(members)
    gone: set[Row] = set()
    for _ in range(dice.draw(st.integers(1, 4))):
        batch = []
        for _ in range(dice.draw(st.integers(1, 4))):
            version = dice.draw(st.integers(max(1, ledger.head - 3), ledger.head))
            kind = dice.draw(st.sampled_from([ledger.deletes, ledger.deletes, ledger.compacts]))
            made = kind(version, dice)
            batch += [made] if made else []
        if dice.draw(st.booleans()):
            ledger.gate.restart()
        made_by_id = {made.proposal_id: made for made in batch}
        for outcome in ledger.gate.ask(*batch):
            made = made_by_id[outcome.proposal_id]
            if outcome.rejection is None:
                gone |= ledger.wanted.get(str(made.proposal_id), set())
            elif outcome.rejection.rule == "concurrent_delete_delete":
                assert not made.dv_intents, "only compactions may be in each other's way"
            else:
                assert outcome.rejection.rule == "concurrent_delete_read"
                assert ledger.names_empty(made, gone), outcome.rejection
        first = {(path, row) for path in BEGUN for row in range(10)}
        assert ledger.left() == sorted(first - gone)


@given(st.sets(st.integers(0, 300)), st.sets(st.integers(0, 300)), st.integers(0, 10**6))
def test_rows_move_as_the_row_mapping_says(rows: set[int], base: set[int], offset: int) -> None:
    move = Relocation("g", offset, 301 - len(base), 10**7, None, None)
    kept = sorted(set(range(301)) - base)
    told = list(moved_rows(of_rows(sorted(rows)), move, of_rows(sorted(base))))
    assert told == [offset + kept.index(row) for row in sorted(rows - base)]

"""A committed proposal has exactly the effect that it has alone, in the order of the log.

The rows of each file are kept beside the log. Proposals are made as an engine makes them, of a
snapshot that may be old; when one is committed, its meaning is applied to the rows. The rows in the
log's files then, and those that readers of the change feed see, must be the same: a committed
proposal had its exact effect, all others had none.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from random import Random
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import (
    ROOT,
    Gate,
    Row,
    add,
    compact,
    info,
    metadata,
    proposal,
    protocol,
    remove,
    rows_of,
    to_bytes,
)
from tests.fakes.memory_store import MemoryStore
from tidegate_committer.settings import CommitterSection
from tidegate_delta.deletion_vectors.descriptors import inline
from tidegate_delta.deletion_vectors.roaring_bitmap import of_rows
from tidegate_delta.log.actions import DeletionVector
from tidegate_delta.log.file_names import commit_name, in_log
from tidegate_messages.outcome import Outcome
from tidegate_messages.proposal import Operation, Proposal, ReadSet
from tidegate_runtime.table_io.deletion_vector_reader import read_vector

READING = ["deletionVectors"]
FEATURES = protocol(3, 7, readerFeatures=READING, writerFeatures=[*READING, "changeDataFeed"])
TYPES = {"p": "integer", "x": "long"}
ROUNDS = 6


class Fact(NamedTuple):
    """A row of the table: `p` is its partition; `s`, which no predicate uses, is its name."""

    p: int | None
    x: int | None
    s: str


class Change(NamedTuple):
    """The effect on rows: some are deleted, inserted or updated."""

    lost: Sequence[Fact] = ()
    came: Sequence[Fact] = ()
    became: Sequence[tuple[Fact, Fact]] = ()

    @property
    def feed(self) -> list[tuple[str, Fact]]:
        """Return the change as a change feed states it."""
        return [
            *(("delete", fact) for fact in self.lost),
            *(("insert", fact) for fact in self.came),
            *(("update_preimage", old) for old, _ in self.became),
            *(("update_postimage", new) for _, new in self.became),
        ]


Meaning = Callable[[Iterable[Fact]], Change]
"""A proposal's effect on the rows that exist when it is committed."""


class File(NamedTuple):
    """A live file: the log's add, and its deleted rows."""

    row: Row
    gone: frozenset[int]


Live = Mapping[str, File]


def holds(node: Mapping[str, Any], fact: Fact) -> bool | None:
    """Return whether a predicate is true of a row; None if unknown."""
    match node["op"]:
        case "and":
            parts = [holds(item, fact) for item in node["args"]]
            return False if False in parts else None if None in parts else True
        case "not":
            inner = holds(node["arg"], fact)
            return None if inner is None else not inner
    value = getattr(fact, node["column"])
    if node["op"] == "is_null":
        return value is None
    if value is None:
        return None
    if node["op"] == "in":
        return value in node["values"]
    return bool({"=": value == node["value"], "<": value < node["value"]}[node["op"]])


@dataclass
class Table:
    """A gate with a table of two columns, and the rows of its files."""

    gate: Gate
    dice: Random
    facts: dict[str, list[Fact]] = field(default_factory=dict)
    changes: dict[str, list[tuple[str, Fact]]] = field(default_factory=dict)
    meant: dict[str, Meaning] = field(default_factory=dict)
    foreign: dict[int, Change] = field(default_factory=dict)
    live: list[Live] = field(default_factory=lambda: [{}])
    now: Counter[Fact] = field(default_factory=Counter)
    numbers: Iterator[int] = field(default_factory=count)
    takes_vectors: bool = True

    def name(self, kind: str) -> str:
        """Return a unique name."""
        return f"{kind}{next(self.numbers)}"

    def fact(self) -> Fact:
        """Return a new row."""
        p, x = self.dice.choice((1, 2, None)), self.dice.choice((None, *range(30)))
        return Fact(p, x, f"row {next(self.numbers)}")

    def files(self, facts: Iterable[Fact]) -> list[Row]:
        """Return adds of files with some rows, one for each partition."""
        result = []
        for p, some in _by_partition((fact.p, fact) for fact in facts):
            path = self.name("f")
            self.facts[path] = some
            result.append(add(path, partitionValues=_values(p), stats=self.stats(some)))
        return result

    def stats(self, facts: Sequence[Fact]) -> str:
        """Return statistics: exact, wide, or hardly any."""
        known = [fact.x for fact in facts if fact.x is not None]
        result: Row = {"numRecords": len(facts)}
        if known and self.dice.random() < 0.9:
            wide = self.dice.choice((0, 0, 2))
            result |= {"minValues": {"x": min(known) - wide}, "maxValues": {"x": max(known) + wide}}
            result["nullCount"] = {"x": len(facts) - len(known)}
        return json.dumps(result)

    def change_files(self, change: Change) -> list[Row]:
        """Return the change files of a change."""
        result = []
        for p, some in _by_partition((fact.p, (kind, fact)) for kind, fact in change.feed):
            path = f"_change_data/{self.name('c')}"
            self.changes[path] = some
            body = {"path": path, "partitionValues": _values(p), "size": 1, "dataChange": False}
            result.append({"cdc": body})
        return result

    def predicate(self) -> Row:
        """Return a random predicate."""
        low, some = self.dice.randrange(30), [self.dice.randrange(30) for _ in range(3)]
        leaves: list[Row] = [
            {"op": "in", "column": "x", "values": some},
            {"op": "=", "column": "x", "value": low},
            {"op": "<", "column": "x", "value": low // 5},
            {"op": "is_null", "column": "x"},
            {"op": "=", "column": "p", "value": 1},
        ]
        made = self.dice.choice(leaves[:4])
        if self.dice.random() < 0.4:
            other = self.dice.choice(leaves)
            negated: Row = {"op": "not", "arg": other}
            made = {"op": "and", "args": [made, self.dice.choice((other, negated))]}
        return _typed(made)

    def hit(self, live: Live, asked: Mapping[str, Any]) -> dict[str, list[int]]:
        """Return the rows of each file that a predicate matches."""
        result = {
            path: [
                place
                for place, fact in enumerate(self.facts[path])
                if place not in file.gone and holds(asked, fact)
            ]
            for path, file in live.items()
        }
        return {path: places for path, places in result.items() if places}

    def append(self, live: Live, version: int) -> tuple[Proposal, Meaning]:
        """Return a blind append."""
        came = [self.fact() for _ in range(self.dice.randint(1, 3))]
        return proposal(*self.files(came), read_version=version), lambda _: Change(came=came)

    def counted(self, live: Live, version: int) -> tuple[Proposal, Meaning]:
        """Return an append of the number of rows that a predicate matches."""
        asked, name = self.predicate(), self.fact().s
        hit = self.hit(live, asked)
        own = Fact(1, sum(map(len, hit.values())), name)
        reads = ReadSet(predicates=(asked,), files=tuple(hit))

        def meaning(there: Iterable[Fact]) -> Change:
            return Change(came=[Fact(1, sum(holds(asked, item) is True for item in there), name)])

        return proposal(*self.files([own]), read_version=version, reads=reads), meaning

    def delete(self, live: Live, version: int) -> tuple[Proposal, Meaning] | None:
        """Return a delete: by intents, by new deletion vectors, or by removing the file."""
        asked, is_told = self.predicate(), self.dice.random() < 0.3
        hit = self.hit(live, asked)
        whole = [p for p, places in hit.items() if len(places) == self.left(live, p)]
        lost = [self.facts[path][place] for path, places in hit.items() for place in places]
        rows = [_removal(live[path]) for path in whole if self.dice.random() < 0.8]
        for path in sorted(hit.keys() - set(whole)):
            if self.dice.random() < 0.2:
                rows += _exchange(live[path], live[path].gone.union(hit[path]))
        acted_on = {row["remove"]["path"] for row in rows if "remove" in row}
        rows += self.change_files(Change(lost=lost)) if is_told else []
        made = self.by_vectors(live, version, asked, hit, without=acted_on, rows=rows)
        return _meaning(made, lambda there: Change(lost=[f for f in there if holds(asked, f)]))

    def update(self, live: Live, version: int) -> tuple[Proposal, Meaning] | None:
        """Return an update by deletion vectors, with added rows and change files."""
        asked, x = self.predicate(), self.dice.randrange(30)

        def meaning(there: Iterable[Fact]) -> Change:
            return Change(became=[(f, f._replace(x=x)) for f in there if holds(asked, f)])

        hit = self.hit(live, asked)
        change = meaning([self.facts[path][place] for path in hit for place in hit[path]])
        rows = [*self.files(new for _, new in change.became), *self.change_files(change)]
        made = self.by_vectors(live, version, asked, hit, rows=rows, op="update")
        return _meaning(made, meaning)

    def rewrite(self, live: Live, version: int) -> tuple[Proposal, Meaning] | None:
        """Return an update that replaces each file with a matching row, with change files."""
        asked, x = self.predicate(), self.dice.randrange(30)

        def meaning(there: Iterable[Fact]) -> Change:
            return Change(became=[(f, f._replace(x=x)) for f in there if holds(asked, f)])

        hit = self.hit(live, asked)
        if not hit:
            return None
        rows, all_changes = list[Row](), list[tuple[Fact, Fact]]()
        for path in hit:
            before = self.rows({path: live[path]})
            change = meaning(before)
            new = dict(change.became)
            rows += [_removal(live[path]), *self.files([new.get(fact, fact) for fact in before])]
            all_changes += change.became
        rows += self.change_files(Change(became=all_changes))
        reads, operation = ReadSet(predicates=(asked,), files=tuple(hit)), Operation(name="UPDATE")
        return proposal(*rows, read_version=version, reads=reads, operation=operation), meaning

    def overwrite(self, live: Live, version: int) -> tuple[Proposal, Meaning] | None:
        """Return an overwrite of a partition, or of the whole table, without change files."""
        p = self.dice.choice((1, 2))
        asked: Row = {"op": "=", "column": "p", "value": p}
        is_whole = self.dice.random() < 0.3
        gone = [path for path, file in live.items() if is_whole or _partition(file.row) == p]
        came = [self.fact()._replace(p=p)] if self.dice.random() < 0.7 else []
        if not gone:
            return None
        reads = ReadSet(files=tuple(gone), predicates=(_typed(asked),))
        reads = ReadSet(whole_table=True) if is_whole else reads
        rows = [*(_removal(live[path]) for path in gone), *self.files(came)]
        made = proposal(*rows, read_version=version, reads=reads, cdc_mode="implicit")

        def meaning(there: Iterable[Fact]) -> Change:
            return Change(lost=[f for f in there if is_whole or f.p == p], came=came)

        return made, meaning

    def by_vectors(
        self,
        live: Live,
        version: int,
        asked: Row,
        hit: Mapping[str, list[int]],
        rows: Sequence[Row] = (),
        without: Iterable[str] = (),
        op: str = "delete",
    ) -> Proposal | None:
        """Return a proposal that deletes some rows by vectors, with further actions."""
        intents = [
            rows_of(
                path,
                hit[path],
                op=op,
                num_records=len(self.facts[path]),
                base=_base(live[path]),
            )
            for path in sorted(hit.keys() - set(without))
        ]
        reads = ReadSet(
            predicates=(asked,), files=tuple(hit), delete_insensitive=self.dice.random() < 0.9
        )
        if not hit:
            return None
        operation, result = Operation(name=op.upper()), tuple(intents)
        return proposal(
            *rows, read_version=version, operation=operation, reads=reads, dv_intents=result
        )

    def compact(self, live: Live, version: int) -> tuple[Proposal, Meaning] | None:
        """Return a compaction of a partition's files that states where rows went."""
        p = self.dice.choice((1, 2, None))
        paths = [path for path, file in live.items() if _partition(file.row) == p]
        paths = [path for path in paths if self.left(live, path) and self.dice.random() < 0.7]
        if not paths:
            return None
        there = {path: self.rows({path: live[path]}) for path in paths}
        target, moved = self.name("g"), [fact for some in there.values() for fact in some]
        self.facts[target] = moved
        vectors = {path: live[path].row.get("deletionVector") for path in paths}
        made = compact({path: len(there[path]) for path in paths}, target, version, vectors)
        rows = [_in_partition(dict(row), p) for row in made.actions]
        return made.model_copy(update={"actions": tuple(rows)}), lambda _: Change()

    def left(self, live: Live, path: str) -> int:
        """Return a file's number of rows that are not deleted."""
        return len(self.facts[path]) - len(live[path].gone)

    def rows(self, live: Live) -> list[Fact]:
        """Return the rows of some live files."""
        return [
            fact
            for path, file in live.items()
            for place, fact in enumerate(self.facts[path])
            if place not in file.gone
        ]

    def meddle(self) -> None:
        """Write the next version as another engine does: delete or restore rows of a file."""
        live, version = self.live[-1], len(self.live)
        if not live:
            return
        path = self.dice.choice(sorted(live))
        file, places = live[path], range(len(self.facts[path]))
        gone = frozenset(place for place in places if self.dice.random() < 0.4)
        if gone == file.gone:
            return
        store = self.gate.stores[ROOT]
        assert isinstance(store, MemoryStore)
        rows = [info("RESTORE"), *_exchange(file, gone)]
        store.files[in_log(commit_name(version))] = to_bytes(rows)
        facts = self.facts[path]
        self.foreign[version] = Change(
            lost=[facts[place] for place in gone - file.gone],
            came=[facts[place] for place in file.gone - gone],
        )

    def propose(self) -> Proposal | None:
        """Return a proposal of a writer that read one of the last versions."""
        version = max(1, len(self.live) - 1 - self.dice.choice((0, 0, 0, 1, 2, 4)))
        kinds = [
            *(self.append, self.counted, self.rewrite, self.rewrite, self.overwrite),
            *(self.compact, self.compact),
        ]
        if self.takes_vectors:
            kinds += [self.delete, self.delete, self.update]
        made = self.dice.choice(kinds)(self.live[version], version)
        if made is None:
            return None
        self.meant[str(made[0].proposal_id)] = made[1]
        return made[0]

    def look(self) -> None:
        """Compare new versions of the log with the meaning of their proposals."""
        for version, rows in enumerate(self.gate.entries()):
            if version < len(self.live):
                continue
            before, expected = self.live[-1], Counter[tuple[str, Fact]]()
            accepted = rows[0]["commitInfo"].get("tidegate", {}).get("accepted", ())
            meanings: list[Meaning] = [self.meant[item["id"]] for item in accepted]
            if version in self.foreign:
                meanings = [partial(_done, self.foreign[version])]
            for meaning in meanings:
                change = meaning(list(self.now.elements()))
                expected.update(change.feed)
                self.now.subtract([*change.lost, *(old for old, _ in change.became)])
                self.now.update([*change.came, *(new for _, new in change.became)])
            self.live.append(self.after(before, rows))
            assert +Counter(self.rows(self.live[-1])) == +self.now, f"version {version}"
            assert Counter(self.feed(before, rows)) == expected, f"the feed of version {version}"

    def lost_to_a_rewrite(self, one: Proposal, outcome: Outcome) -> bool:
        """Return whether a proposal that changes data was refused for a compaction's sake."""
        rejection = outcome.rejection
        if one.row_mapping or rejection is None:
            return False
        if rejection.winner_version is None:
            return True
        winner = self.gate.entries()[rejection.winner_version][0]["commitInfo"].get("tidegate", {})
        members = winner.get("accepted", ())
        return bool(members) and all("row_mapping" in member for member in members)

    @property
    def accepted(self) -> set[str]:
        """The ids of the proposals in the log."""
        infos = [rows[0]["commitInfo"].get("tidegate", {}) for rows in self.gate.entries()]
        return {item["id"] for result in infos for item in result.get("accepted", ())}

    def after(self, before: Live, rows: Iterable[Row]) -> Live:
        """Return the live files after a version."""
        gone = {row["remove"]["path"] for row in rows if "remove" in row}
        came = {row["add"]["path"]: row["add"] for row in rows if "add" in row}
        kept = {path: file for path, file in before.items() if path not in gone}
        return {**kept, **{path: File(row, self.deleted(row)) for path, row in came.items()}}

    def deleted(self, row: Row) -> frozenset[int]:
        """Return the deleted rows of a file that is added."""
        result = row.get("deletionVector")
        vector = DeletionVector.model_validate(result) if result else None
        return frozenset(read_vector(self.gate.stores[ROOT], vector) if vector else ())

    def feed(self, before: Live, rows: Sequence[Row]) -> list[tuple[str, Fact]]:
        """Return what readers of the change feed see of a version."""
        named = [row["cdc"]["path"] for row in rows if "cdc" in row]
        if named:
            return [change for path in named for change in self.changes[path]]
        paths = {
            row[kind]["path"]
            for row in rows
            for kind in ("add", "remove")
            if kind in row and row[kind]["dataChange"]
        }
        after = self.after(before, rows)
        old = Counter(self.rows({path: before[path] for path in paths & before.keys()}))
        new = Counter(self.rows({path: after[path] for path in paths & after.keys()}))
        return Change(lost=[*(old - new).elements()], came=[*(new - old).elements()]).feed


def begun(dice: Random) -> Table:
    """Return a table with a change feed and thirty rows at version 1. Some take no new deletion
    vectors.
    """
    takes_vectors = dice.random() < 0.6
    members = dice.choice((1, 3, 12))
    gate = Gate(CommitterSection(roots=("memory://tables",), group_members_max=members))
    with_vectors = str(takes_vectors).lower()
    on = metadata(["p"], enableDeletionVectors=with_vectors, enableChangeDataFeed="true")
    gate.ask(proposal(FEATURES, on, read_version=-1, operation=Operation(name="CREATE TABLE")))
    table = Table(gate, dice, takes_vectors=takes_vectors)
    facts = [table.fact() for _ in range(30)]
    rows = [row for at in range(0, 30, 10) for row in table.files(facts[at : at + 10])]
    first = proposal(*rows)
    table.meant[str(first.proposal_id)] = lambda _: Change(came=facts)
    gate.ask(first)
    table.look()
    return table


def _done(change: Change, there: Iterable[Fact]) -> Change:
    return change


def _meaning(made: Proposal | None, meaning: Meaning) -> tuple[Proposal, Meaning] | None:
    return None if made is None else (made, meaning)


def _by_partition(pairs: Iterable[tuple[int | None, Any]]) -> list[tuple[int | None, list[Any]]]:
    result: dict[int | None, list[Any]] = {}
    for p, one in pairs:
        result.setdefault(p, []).append(one)
    return list(result.items())


def _values(p: int | None) -> dict[str, str | None]:
    return {"p": None if p is None else str(p)}


def _partition(row: Row) -> int | None:
    text = row["partitionValues"]["p"]
    return None if text is None else int(text)


def _in_partition(row: Row, p: int | None) -> Row:
    return {kind: {**body, "partitionValues": _values(p)} for kind, body in row.items()}


def _typed(node: Row) -> Row:
    if node["op"] == "and":
        return {**node, "args": [_typed(item) for item in node["args"]]}
    if node["op"] == "not":
        return {**node, "arg": _typed(node["arg"])}
    return node if node["op"] == "is_null" else {**node, "type": TYPES[node["column"]]}


def _vector(gone: Iterable[int]) -> DeletionVector:
    return inline(of_rows(sorted(gone)))


def _base(file: File) -> str | None:
    vector = file.row.get("deletionVector")
    return DeletionVector.model_validate(vector).unique_id if vector else None


def _exchange(file: File, gone: frozenset[int]) -> list[Row]:
    """Return the actions that replace a file's deletion vector."""
    result = {key: one for key, one in file.row.items() if key != "deletionVector"}
    vector = {"deletionVector": _vector(gone).model_dump(by_alias=True, exclude_none=True)}
    stats = json.dumps({**json.loads(result["stats"]), "tightBounds": False})
    again = {**result, "dataChange": True, "stats": stats, **(vector if gone else {})}
    return [_removal(file), {"add": again}]


def _removal(file: File) -> Row:
    result = {
        key: file.row[key] for key in ("partitionValues", "deletionVector") if key in file.row
    }
    return remove(file.row["path"], **result)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32))
def test_exactly_the_proposals_in_the_log_took_effect(seed: int) -> None:
    dice = Random(seed)
    table = begun(dice)
    for _ in range(ROUNDS):
        batch = [made for _ in range(dice.randint(1, 10)) if (made := table.propose())]
        if table.takes_vectors and dice.random() < 0.3:
            table.meddle()
        if dice.random() < 0.2:
            table.gate.restart()
        before = len(table.gate.outcomes())
        table.gate.send(*batch)
        table.gate.settle(2 * len(batch) + 4)
        result = table.gate.outcomes()[before:]
        table.look()
        committed = {
            str(outcome.proposal_id) for outcome in result if outcome.status == "committed"
        }
        assert len(result) == len(batch)
        made_by_id = {made.proposal_id: made for made in batch}
        for outcome in result:
            made = made_by_id[outcome.proposal_id]
            assert not table.lost_to_a_rewrite(made, outcome), outcome.rejection
        assert committed == table.accepted & {str(outcome.proposal_id) for outcome in batch}

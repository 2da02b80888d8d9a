"""What writers propose. A kind of proposal is a function of what its writer sees; KINDS lists them.

A proposer that finds nothing to do returns None, and the writer appends instead.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests import builders
from tests.simulation.row_writers import added, exchange, intent, live_file, removal, with_rows
from tests.simulation.run_state import Stage, respelt
from tests.simulation.tables import TABLES, Table
from tidegate_messages.proposal import Operation, Proposal, ReadSet

Row = dict[str, Any]


@dataclass(frozen=True)
class Sight:
    """What a writer sees of a table: its version and live files. `past` are all proposals sent."""

    stage: Stage
    table: Table
    version: int
    live: Mapping[str, Row]
    past: Sequence[tuple[Table, Proposal]] = field(repr=False)

    @property
    def dice(self) -> Random:
        """The world's source of randomness."""
        return self.stage.dice

    def new_file(self, prefix: str = "f") -> str:
        """Write a file with a unique name and return its path."""
        return self.stage.data_file(self.table, f"{prefix}{self.stage.next()}")

    def some(self, most: int) -> list[str]:
        """Return some live files."""
        live = list(self.live)
        return self.dice.sample(live, self.dice.randint(1, min(most, len(live)))) if live else []

    def propose(self, *rows: Row, **fields: Any) -> Proposal:
        """Return a proposal for the table at the version that the writer saw."""
        known: Row = {
            "proposal_id": self.stage.new_id(),
            "table": self.table.id,
            "table_root": self.table.root,
            "read_version": max(self.version, 0),
            "files_since_ms": self.stage.clock.now_ms(),
        }
        return builders.proposal(*rows, **{**known, **fields})


Proposer = Callable[[Sight], Proposal | None]
"""A function that makes one kind of proposal."""


def append(sight: Sight) -> Proposal:
    """Add rows without reading anything."""
    return sight.propose(added(sight.dice, sight.new_file()))


def change_rows(sight: Sight) -> Proposal | None:
    """Delete rows of files that stay, or replace each by an updated row."""
    there = with_rows(sight.live)
    chosen = sight.dice.sample(there, min(len(there), sight.dice.choice((1, 1, 1, 2))))
    if not chosen:
        return None
    store, number = sight.stage.stores[sight.table.root], sight.stage.next()
    op = "update" if sight.dice.random() < 0.4 else "delete"
    intents = tuple(
        intent(sight.dice, path, live_file(store, sight.live[path]), op, number) for path in chosen
    )
    reads = ReadSet(files=tuple(chosen), delete_insensitive=sight.dice.random() < 0.8)
    image = [added(sight.dice, sight.new_file("image")), *_changes(sight)]
    rows = image if op == "update" else []
    operation = Operation(name=op.upper())
    return sight.propose(*rows, reads=reads, operation=operation, dv_intents=intents)


def rewrite(sight: Sight) -> Proposal | None:
    """Read some files and replace all but one of them by a new file."""
    read = sight.some(3)
    if not read:
        return None
    rows = [
        *(removal(sight.live, path) for path in read[:2]),
        *_changes(sight),
        builders.add(sight.new_file()),
    ]
    operation = Operation(name="DELETE")
    return sight.propose(*rows, reads=ReadSet(files=tuple(read)), operation=operation)


def crossing(sight: Sight) -> Proposal | None:
    """Read two files and replace one; it conflicts with a writer that replaces the other."""
    read = sorted(sight.live)[:2]
    if not read:
        return None
    rows = [removal(sight.live, sight.dice.choice(read)), *_changes(sight)]
    reads = ReadSet(files=tuple(read))
    return sight.propose(*rows, builders.add(sight.new_file()), reads=reads)


def overwrite(sight: Sight) -> Proposal | None:
    """Read and replace the whole table."""
    if not sight.live:
        return None
    rows = [
        *(removal(sight.live, path) for path in sight.live),
        *_changes(sight),
        builders.add(sight.new_file()),
    ]
    return sight.propose(*rows, reads=ReadSet(whole_table=True))


def rewrite_partition(sight: Sight) -> Proposal | None:
    """Read one partition by its predicate and replace it."""
    if not sight.table.partition_columns:
        return None
    value = str(sight.dice.randint(1, 2))
    read = [path for path, file in sight.live.items() if file["partitionValues"]["p"] == value]
    asked: Row = {"op": "=", "column": ["p"], "value": int(value), "type": "integer"}
    reads = ReadSet(files=tuple(read), predicates=(asked,))
    path = f"p={value}/n{sight.stage.next()}"
    sight.stage.write_file(sight.table, path)
    rows = [
        *(removal(sight.live, path) for path in read),
        *(_changes(sight) if read else ()),
        builders.add(path),
    ]
    return sight.propose(*rows, reads=reads, operation=Operation(name="UPDATE"))


def compact(sight: Sight) -> Proposal | None:
    """Compact files; no row changes."""
    return _compaction(sight, sight.some(2), is_mapped=None)


def pack(sight: Sight) -> Proposal | None:
    """Pack the files of a partition into one, as a maintainer does."""
    folder = sight.dice.choice(list(sight.live) or [""]).rpartition("/")[0]
    files = [path for path in sight.live if path.rpartition("/")[0] == folder]
    return _compaction(sight, files[: sight.dice.choice((2, 3, 4))], is_mapped=True)


def replace_one(sight: Sight) -> Proposal | None:
    """Read one file and replace it."""
    read = sight.some(1)
    rows = [*(removal(sight.live, path) for path in read), *_changes(sight)]
    reads, operation = ReadSet(files=tuple(read)), Operation(name="UPDATE")
    new = builders.add(sight.new_file())
    return sight.propose(*rows, new, reads=reads, operation=operation) if read else None


def maintain(sight: Sight) -> Proposal | None:
    """Pack files, or change some that others pack at the same time."""
    kinds = (pack, pack, replace_one, replace_one, rewrite, change_rows, replace_vector, crossing)
    return sight.dice.choice(kinds)(sight)


def _compaction(sight: Sight, read: list[str], is_mapped: bool | None) -> Proposal | None:
    if not read:
        return None
    rows = [removal(sight.live, path, dataChange=False) for path in read]
    folder = read[0].rpartition("/")[0]
    if any(path.rpartition("/")[0] != folder for path in read):
        return None
    path = f"{folder}/c{sight.stage.next()}".lstrip("/")
    sight.stage.write_file(sight.table, path)
    reads, operation = ReadSet(files=tuple(read)), Operation(name="OPTIMIZE")
    store, sources, count = sight.stage.stores[sight.table.root], [], 0
    for item in read:
        left = live_file(store, sight.live[item]).left
        sources.append({"path": item, "offset": count, "rows": left})
        count += left
    is_stated = sight.dice.random() < 0.7 if is_mapped is None else is_mapped
    mapping = ({"path": path, "sources": sources},) if is_stated else ()
    new = builders.add(path, dataChange=False, stats=json.dumps({"numRecords": count}))
    return sight.propose(*rows, new, reads=reads, operation=operation, row_mapping=mapping)


def batch(sight: Sight) -> Proposal:
    """Append a stream's micro-batch with its txn version."""
    own = {"app_id": "stream", "version": sight.dice.randint(0, 12)}
    return sight.propose(builders.add(sight.new_file()), app_txn=own)


def advance(sight: Sight) -> Proposal:
    """Append the next pieces of a source with two partitions, from positions right or wrong."""
    dice, log = sight.dice, sight.stage.log(sight.table)
    positions = log.positions[-1] if log.positions else {}
    steps = []
    for partition in dice.sample(("source/0", "source/1"), dice.choice((1, 2))):
        wrong = 0 if dice.random() < 0.7 else dice.choice((-2, -1, 1, 2))
        expected = max(-1, positions.get(partition, -1) + wrong)
        version = expected + dice.choice((1, 1, 2))
        steps.append({"app_id": partition, "version": version, "expected": expected})
    return sight.propose(builders.add(sight.new_file()), app_txns=steps)


def ask_positions(sight: Sight) -> Proposal:
    """Ask for the positions of the source."""
    return sight.propose(kind="app_versions", app_ids=("source/0", "source/1"))


def comment(sight: Sight) -> Proposal | None:
    """Change a property of the table with a whole metaData."""
    if sight.version < 0:
        return None
    body = json.loads(json.dumps(sight.stage.log(sight.table).metadata))
    body["configuration"]["note"] = str(sight.stage.next())
    operation = Operation(name="SET TBLPROPERTIES")
    return sight.propose({"metaData": body}, operation=operation, reads=ReadSet())


def patch(sight: Sight) -> Proposal | None:
    """Patch a property or a comment, or add a column, whatever else changes in the table."""
    if sight.version < 0:
        return None
    number = sight.stage.next()
    column = {"name": f"c{number}", "type": "long", "nullable": True, "metadata": {}}
    change = sight.dice.choice(
        (
            {"op": "set_property", "key": f"p{number % 3}", "value": str(number)},
            {"op": "comment_on", "path": ["x"], "comment": str(number)},
            {"op": "add_column", "column": column},
        )
    )
    operation = Operation(name="ALTER TABLE")
    result = {"changes": [change]}
    return sight.propose(metadata_patch=result, operation=operation, reads=ReadSet())


def claimed(sight: Sight) -> Proposal:
    """Propose with the actions in a staged file."""
    proposal_id = sight.stage.new_id()
    path = f"_tidegate/proposals/{proposal_id}.ndjson"
    content = builders.to_bytes([builders.add(sight.new_file())])
    sight.stage.stores[sight.table.root].put(path, content)
    claim = {"path": path, "size": len(content), "sha256": builders.digest_of(content)}
    return sight.propose(proposal_id=proposal_id, claim_check=claim)


def cancel(sight: Sight) -> Proposal:
    """Cancel a proposal."""
    table, other = sight.dice.choice(sight.past)
    return sight.propose(
        kind="cancel",
        cancels=other.proposal_id,
        table=table.id,
        table_root=table.root,
        read_version=other.read_version,
    )


def replace_vector(sight: Sight) -> Proposal | None:
    """Delete or restore rows by a deletion vector that the writer made itself."""
    rows = exchange(sight.dice, sight.stage.stores[sight.table.root], sight.live)
    if not rows:
        return None
    reads = ReadSet(files=(rows[0]["remove"]["path"],))
    rows = [*rows, *_changes(sight)]
    return sight.propose(*rows, reads=reads, operation=Operation(name="DELETE"))


def misspell(sight: Sight) -> Proposal | None:
    """Remove a file that was read, or add it again, with its path in another form."""
    if not sight.live:
        return None
    path = sight.dice.choice(list(sight.live))
    row = removal(sight.live, path) if sight.dice.random() < 0.7 else builders.add(path)
    [body] = row.values()
    body["path"] = respelt(path)
    return sight.propose(row, *_changes(sight), reads=ReadSet(files=(path,)))


def ghost(sight: Sight) -> Proposal:
    """Remove a file that does not exist, without listing it in the read set."""
    return sight.propose(builders.remove(f"ghost{sight.stage.next()}"))


def bad(sight: Sight) -> Proposal:
    """Add a file outside the table; every table refuses it."""
    return sight.propose(builders.add("../outside"))


KINDS: dict[Proposer, int] = {
    append: 4,
    change_rows: 6,
    rewrite: 4,
    crossing: 2,
    overwrite: 1,
    rewrite_partition: 2,
    replace_vector: 2,
    misspell: 1,
    compact: 3,
    batch: 2,
    advance: 2,
    ask_positions: 1,
    comment: 1,
    patch: 2,
    claimed: 1,
    cancel: 2,
    ghost: 1,
    bad: 2,
}
"""The kinds of proposers and their weights."""

MAINTAINED: dict[Proposer, int] = {append: 6, maintain: 40, overwrite: 1, rewrite_partition: 4}
"""The same in a world with a maintainer, which packs files while others change them."""


def write(stage: Stage) -> None:
    """Send one proposal, or several of one kind at once, so that groups form."""
    table = stage.dice.choice(TABLES)
    [kind] = stage.dice.choices(list(KINDS), list(KINDS.values()))
    for _ in range(stage.dice.choice((1, 1, 2, 4))):
        log = stage.log(table)
        sight = Sight(stage, table, log.head, log.live, stage.past)
        one = kind(sight) or append(sight)
        if one.kind == "commit" and stage.dice.random() < 0.15:
            spare_ms = stage.dice.choice((-1_000, 500, 5_000))
            one = one.model_copy(update={"deadline_ms": stage.clock.now_ms() + spare_ms})
        to = next(other for other in TABLES if other.id == one.table)
        if stage.dice.random() < 0.15:
            stage.drafts.append((to, one))
        else:
            stage.send(to, one)


def flood(stage: Stage) -> None:
    """Send more proposals at once than a committer may hold."""
    table = stage.dice.choice(TABLES)
    log = stage.log(table)
    for _ in range(stage.dice.randint(6, 14)):
        sight = Sight(stage, table, log.head, log.live, stage.past)
        kind = stage.dice.choice((append, append, change_rows, bad))
        stage.send(table, kind(sight) or append(sight))


def write_late(stage: Stage) -> None:
    """A slow writer sends a proposal based on an old version."""
    if stage.drafts:
        stage.send(*stage.drafts.pop(stage.dice.randrange(len(stage.drafts))))


def write_again(stage: Stage) -> None:
    """A writer without an outcome sends the same bytes again, however late."""
    table, one = stage.dice.choice(stage.past)
    if one.kind == "commit" and stage.dice.random() < 0.1:
        one = one.model_copy(update={"user_metadata": "the same id, other bytes"})
    stage.send(table, one)


def write_poison(stage: Stage) -> None:
    """Send a proposal that kills each process that reads it."""
    table = stage.dice.choice(TABLES)
    log = stage.log(table)
    one = append(Sight(stage, table, log.head, log.live, stage.past))
    stage.deadly.add(str(one.proposal_id))
    stage.send(table, one)


def write_nonsense(stage: Stage) -> None:
    """Send a record that is not a proposal, or one without an action."""
    table = stage.dice.choice(TABLES)
    body = {"proposal_id": str(stage.new_id()), "table": str(table.id), "read_version": 0}
    values = (b"", b"\xff", b"[]", b'{"proposal_id":', json.dumps(body).encode())
    stage.produce(table.id, stage.dice.choice(values))


def _changes(sight: Sight) -> list[Row]:
    """Return the change files that a rewrite on a table with a change feed needs.

    Now and then a writer omits them.
    """
    if "delta.enableChangeDataFeed" not in sight.table.properties or sight.dice.random() < 0.15:
        return []
    path = f"_change_data/{sight.new_file('c')}"
    values = dict(part.split("=", 1) for part in path.split("/")[1:-1])
    body = {"path": path, "partitionValues": values, "size": 10, "dataChange": False}
    return [{"cdc": body}]

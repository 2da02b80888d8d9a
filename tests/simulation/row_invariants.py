"""Invariants of rows deleted by vectors: none is lost, comes back or is updated twice.

Named predicates, as in `invariants`, over one version at a time; each version is checked once.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from tests.fakes.memory_store import MemoryStore
from tests.simulation.history import History, Rows
from tests.simulation.row_writers import LiveFile, live_file, rows_of
from tidegate_delta.deletion_vectors.roaring_bitmap import Bitmap, of_rows
from tidegate_delta.errors import BrokenLog


@dataclass(frozen=True)
class Moved:
    """Where the rows of a file went, without those already deleted when the compaction read it."""

    target: str
    offset: int
    base: Bitmap
    total: int

    @property
    def whole(self) -> Bitmap:
        """All rows of the file, deleted ones included."""
        return of_rows(range(self.total))

    def follow(self, rows: Bitmap) -> Bitmap:
        """Return rows of the file as rows of the file that holds them at present."""
        gone = list(self.base)
        there = rows - self.base
        return of_rows(self.offset + row - bisect_left(gone, row) for row in there)


@dataclass(frozen=True)
class Step:
    """A version of a table, the files before it, and the bodies of its proposals."""

    name: str
    store: MemoryStore
    rows: Rows
    before: dict[str, LiveFile]
    members: list[dict[str, Any]]
    moved: dict[str, Moved]
    returned: frozenset[str] = frozenset()

    def now(self, path: str, rows: Bitmap) -> tuple[str, Bitmap]:
        """Return the file in which rows of a file are at present, and their positions there."""
        while path in self.moved:
            path, rows = self.moved[path].target, self.moved[path].follow(rows)
        return path, rows

    def leaving(self, body: dict[str, Any]) -> Iterator[tuple[str, Bitmap]]:
        """Yield file and rows of each file that a member removes and whose rows had been moved."""
        added = {row["add"]["path"]: row["add"] for row in body["actions"] if "add" in row}
        for row in body["actions"]:
            path = row.get("remove", {}).get("path", "")
            path = path if path in self.moved else unquote(path)
            if path not in self.moved:
                continue
            rows = self.moved[path].whole
            if path in added:
                rows &= rows_of(self.store, added[path].get("deletionVector"))
            yield path, rows - rows_of(self.store, row["remove"].get("deletionVector"))

    def intended(self, body: dict[str, Any]) -> Iterator[tuple[str, Bitmap, str]]:
        """Yield file, rows and purpose of each intent of a member, at the present positions."""
        for item in body.get("dv_intents", ()):
            path, rows = self.now(item["path"], rows_of(self.store, item["rows"]))
            if rows:
                yield path, rows, item.get("op", "delete")
        for left, which in self.leaving(body):
            path, rows = self.now(left, which)
            if rows:
                yield path, rows, "delete"

    def moves(self, body: dict[str, Any]) -> Iterator[tuple[str, Moved]]:
        """Yield each file whose rows a member relocates, and where to."""
        removed = [row["remove"] for row in body["actions"] if "remove" in row]
        table_definitions = {item["path"]: item.get("deletionVector") for item in removed}
        for one in body.get("row_mapping", ()):
            for source in one["sources"]:
                base = rows_of(self.store, table_definitions[source["path"]])
                total = source["rows"] + len(base)
                yield source["path"], Moved(one["path"], source["offset"], base, total)


@dataclass
class Steps:
    """The versions checked so far: each table's files after its last checked version."""

    seen: dict[str, int] = field(default_factory=dict)
    files: dict[str, dict[str, LiveFile]] = field(default_factory=dict)
    moved: dict[str, dict[str, Moved]] = field(default_factory=dict)

    def look(self, history: History) -> Iterator[Step]:
        """Yield every new version, table by table."""
        bodies = {key: one.body for key, one in history.sent.items()}
        for root, log in history.logs.items():
            files, moved = self.files.setdefault(root, {}), self.moved.setdefault(root, {})
            for version in range(self.seen.get(root, 0), len(log.entries)):
                rows, accepted = log.entries[version], log.provenance(version).get("accepted", ())
                members = [bodies[f"{item['id']}/{item['sha256']}"] for item in accepted]
                name = f"version {version} of {root}"
                back = frozenset(path for item in accepted for path in item.get("returned", ()))
                step = Step(name, log.store, rows, dict(files), members, dict(moved), back)
                yield step
                moved |= {path: one for body in members for path, one in step.moves(body)}
                for path in back:
                    del moved[path]
                for row in rows:
                    files.pop(row.get("remove", {}).get("path", ""), None)
                for row in rows:
                    if "add" in row:
                        files[row["add"]["path"]] = live_file(log.store, row["add"])
                self.seen[root] = version + 1


def every_vector_is_there(step: Step) -> str | None:
    """A deletion vector is readable from the moment that the log names it."""
    for row in step.rows:
        vector = row.get("add", {}).get("deletionVector")
        if not vector:
            continue
        try:
            rows_of(step.store, vector)
        except BrokenLog as error:
            return f"{step.name}: {error}"
    return None


def vectors_are_unions(step: Step) -> str | None:
    """Our vector holds exactly the rows of the previous one and those that members delete."""
    after = {row["add"]["path"]: row["add"] for row in step.rows if "add" in row}
    removed = {row["remove"]["path"]: row["remove"] for row in step.rows if "remove" in row}
    wanted: dict[str, Bitmap] = {}
    for body in step.members:
        for path, rows, _ in step.intended(body):
            wanted[path] = wanted.get(path, Bitmap()) | rows
    for path, rows in wanted.items():
        file = step.before.get(path)
        if file is None:
            # `consistent_read` reports a file that does not exist.
            continue
        union = file.gone | rows
        if union == file.gone and path not in removed:
            continue
        if path not in removed or removed[path].get("deletionVector") != file.vector:
            return f"{step.name}: {path} did not leave with the vector that it had"
        if path not in after:
            for there, rows in (step.now(item, step.moved[item].whole) for item in step.returned):
                union |= rows if there == path else Bitmap()
            if len(union) < file.rows:
                return f"{step.name}: {path} is gone with {file.rows - len(union)} rows"
            continue
        result = rows_of(step.store, after[path].get("deletionVector"))
        if result != union:
            return f"{step.name}: {path} has {len(result)} deleted rows, not {len(union)}"
    return None


def moved_rows_stay(step: Step) -> str | None:
    """A compacted file holds exactly the rows that its sources still had."""
    after = {row["add"]["path"]: row["add"] for row in step.rows if "add" in row}
    removed = {row["remove"]["path"]: row["remove"] for row in step.rows if "remove" in row}
    wanted: dict[str, Bitmap] = {}
    for body in step.members:
        for path, moved in step.moves(body):
            file = step.before[path]
            if removed[path].get("deletionVector") != file.vector:
                return f"{step.name}: {path} did not leave with the vector that it had"
            left = moved.follow(of_rows(range(file.rows)) - file.gone)
            wanted[moved.target] = wanted.get(moved.target, Bitmap()) | left
    for path, rows in wanted.items():
        file = live_file(step.store, after[path])
        if rows != of_rows(range(file.rows)) - file.gone:
            return f"{step.name}: {path} has {file.left} rows, not {len(rows)}"
    return None


def moved_files_leave_whole(step: Step) -> str | None:
    """A member that removes a file, whose rows had been moved, removes all rows that it had read:
    nobody had deleted one of them meanwhile.
    """
    for body in step.members:
        for left, which in step.leaving(body):
            path, rows = step.now(left, which)
            if path in step.before and not rows.isdisjoint(step.before[path].gone):
                return f"{step.name} removes {left}, of which rows in {path} had been deleted"
    return None


def rows_are_updated_once(step: Step) -> str | None:
    """An updated row existed: no earlier version had deleted or updated it."""
    gone: dict[str, Bitmap] = {}
    for body in step.members:
        for path, rows, op in step.intended(body):
            if path not in step.before:
                continue
            before = gone.get(path, step.before[path].gone)
            if op == "update" and not rows.isdisjoint(before):
                return f"{step.name} updates {list(rows & before)[:5]} of {path} again"
            gone[path] = before | rows
    return None


def lost_rows_conflict(step: Step) -> str | None:
    """A member whose read set minds lost rows follows no member that deletes rows it read."""
    touched: set[str] = set()
    for body in step.members:
        reads = body.get("reads", {})
        seen = set() if reads.get("delete_insensitive") else set(reads.get("files", ()))
        if seen & touched:
            return f"{step.name}: {body['proposal_id']} read {min(seen & touched)}, which lost rows"
        touched.update(path for path, _, _ in step.intended(body))
    return None


ROW_INVARIANTS = (
    every_vector_is_there,
    vectors_are_unions,
    moved_rows_stay,
    moved_files_leave_whole,
    rows_are_updated_once,
    lost_rows_conflict,
)

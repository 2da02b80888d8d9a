"""What must hold of rows that vectors delete: none is lost, comes back or is updated twice.

Named predicates, as in `invariants`, over one version at a time: each is looked at once.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.history import History, Rows
from tests.simulation.row_writers import LiveFile, live_file, rows_of
from tidegate.delta.errors import BrokenLog
from tidegate.delta.files.bitmap import Bitmap
from tidegate.runtime.memory import MemoryStore


@dataclass(frozen=True)
class Step:
    """A version of a table, the files before it, and the bodies of the proposals in it."""

    name: str
    store: MemoryStore
    rows: Rows
    before: dict[str, LiveFile]
    members: list[dict[str, Any]]

    def intended(self, body: dict[str, Any]) -> Iterator[tuple[str, Bitmap, str]]:
        """Yield the file, the rows and the purpose of each intent of a member."""
        for one in body.get("dv_intents", ()):
            yield one["path"], rows_of(self.store, one["rows"]), one.get("op", "delete")


@dataclass
class Steps:
    """What was looked at: the files of each table after so many versions."""

    seen: dict[str, int] = field(default_factory=dict)
    files: dict[str, dict[str, LiveFile]] = field(default_factory=dict)

    def look(self, history: History) -> Iterator[Step]:
        """Yield every version that is new, table by table."""
        bodies = {key: one.body for key, one in history.sent.items()}
        for root, log in history.logs.items():
            files = self.files.setdefault(root, {})
            for version in range(self.seen.get(root, 0), len(log.entries)):
                rows, accepted = log.entries[version], log.provenance(version).get("accepted", ())
                members = [bodies[f"{one['id']}/{one['sha256']}"] for one in accepted]
                name = f"version {version} of {root}"
                yield Step(name, log.store, rows, dict(files), members)
                for row in rows:
                    files.pop(row.get("remove", {}).get("path", ""), None)
                for row in rows:
                    if "add" in row:
                        files[row["add"]["path"]] = live_file(log.store, row["add"])
                self.seen[root] = version + 1


def every_vector_is_there(step: Step) -> str | None:
    """The rows of a vector can be read from the moment that the log names it."""
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
    """A vector of ours holds the rows of the one before and those that members delete: no other."""
    after = {row["add"]["path"]: row["add"] for row in step.rows if "add" in row}
    removed = {row["remove"]["path"]: row["remove"] for row in step.rows if "remove" in row}
    wanted: dict[str, Bitmap] = {}
    for body in step.members:
        for path, rows, _ in step.intended(body):
            wanted[path] = wanted.get(path, Bitmap()) | rows
    for path, rows in wanted.items():
        if path not in step.before:
            return f"{step.name}: {path} loses rows and is no file of the table"
        file = step.before[path]
        union = file.gone | rows
        if union == file.gone and path not in removed:
            continue
        if path not in removed or removed[path].get("deletionVector") != file.vector:
            return f"{step.name}: {path} did not leave with the vector that it had"
        if path not in after:
            if len(union) < file.rows:
                return f"{step.name}: {path} is gone with {file.rows - len(union)} rows"
            continue
        found = rows_of(step.store, after[path].get("deletionVector"))
        if found != union:
            return f"{step.name}: {path} has {len(found)} deleted rows, not {len(union)}"
    return None


def rows_are_updated_once(step: Step) -> str | None:
    """A row that is updated was there: nobody had deleted or updated it."""
    gone: dict[str, Bitmap] = {}
    for body in step.members:
        for path, rows, op in step.intended(body):
            before = gone.get(path, step.before[path].gone)
            if op == "update" and not rows.is_apart_from(before):
                return f"{step.name} updates {list(rows & before)[:5]} of {path} again"
            gone[path] = before | rows
    return None


def lost_rows_are_minded(step: Step) -> str | None:
    """Whose read set minds lost rows follows no member that deletes rows of what it read."""
    touched: set[str] = set()
    for body in step.members:
        reads = body.get("reads", {})
        seen = set() if reads.get("delete_insensitive") else set(reads.get("files", ()))
        if seen & touched:
            return f"{step.name}: {body['proposal_id']} read {min(seen & touched)}, which lost rows"
        touched.update(one["path"] for one in body.get("dv_intents", ()))
    return None


ROW_INVARIANTS = (
    every_vector_is_there,
    vectors_are_unions,
    rows_are_updated_once,
    lost_rows_are_minded,
)

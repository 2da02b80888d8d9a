"""Generated tables that enter by Kafka alone: other readers find the rows that were proposed.

Files are written and proposals made without any of our producers: the records are JSON by the
contract of docs/wire-contract.md, in any way in which JSON may be written.
"""

import json
import tempfile
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.builders import TABLE, Gate, an_id
from tests.builders import rows_of as row_intent
from tests.conformance.other_readers import kernel_rows
from tests.property.generated_tables import (
    ODD_NAMES,
    PARTITIONS,
    PLAIN_NAMES,
    GeneratedTable,
    kinds,
    partition_text,
    physical_name,
    rows_of,
    structs,
)
from tests.unit.cdc_publisher.written_table import Rows
from tidegate_committer.settings import CommitterSection
from tidegate_runtime.storage.local_store import LocalStore
from tidegate_runtime.table_io.data_file_reader import read_table
from tidegate_runtime.table_io.open_table import open_snapshot

KEY: Final = {"name": "k", "type": "long", "nullable": False, "metadata": {}}
TABLE_ID: Final = "00000000-0000-0000-0000-00000000f11e"
EXAMPLES: Final = settings(
    deadline=None,
    max_examples=settings().max_examples // 3,
    suppress_health_check=[HealthCheck.too_slow],
)


@dataclass
class ProposedTable(GeneratedTable):
    """A table whose versions are proposed to a committer, which writes its log."""

    gate: Gate = field(default_factory=Gate)
    writing: Mapping[str, Any] = field(default_factory=dict)
    """How JSON is written: options of `json.dumps`."""

    def commit(self, operation: str, *actions: Mapping[str, Any]) -> None:
        """Propose a version, and check that it is committed as it was proposed."""
        removed = [action["remove"]["path"] for action in actions if "remove" in action]
        self.propose(operation, actions=actions, reads={"predicates": [], "files": removed})
        check_entry(self, actions)

    def propose(self, operation: str, **fields: Any) -> None:
        """Send a proposal, which is committed."""
        body = {
            "proposal_id": str(an_id()),
            "table": str(TABLE),
            "table_root": self.root,
            "table_id": None if self.version < 0 else TABLE_ID,
            "read_version": self.version,
            "operation": {"name": operation, "parameters": {}},
            **fields,
        }
        [outcome] = self.gate.ask(json.dumps(body, **self.writing).encode())
        self.version += 1
        assert (outcome.status, outcome.version) == ("committed", self.version), outcome

    def delete_rows(self, path: str, gone: Set[int]) -> None:
        """Delete rows of a file by their positions, by a deletion vector."""
        content = self.files[path]
        intent = row_intent(path, gone, num_records=len(content)).model_dump(
            mode="json", by_alias=True, exclude_none=True
        )
        reads = {"predicates": [], "files": [path], "delete_insensitive": True}
        self.propose("DELETE", actions=[], dv_intents=[intent], reads=reads)
        self.files[path] = [row for number, row in enumerate(content) if number not in gone]

    def _add(self, content: Rows, *, data_change: bool = True) -> dict[str, Any]:
        """Write a file, with statistics of its columns of numbers, texts and days."""
        action = super()._add(content, data_change=data_change)
        stats: dict[str, Any] = {"numRecords": len(content), "tightBounds": True}
        for item in self.struct["fields"]:
            if item["type"] not in ("integer", "long", "string", "date", "double"):
                continue
            values = [row[item["name"]] for row in content]
            known = [value for value in values if value is not None and value == value]
            name = physical_name(item)
            stats.setdefault("nullCount", {})[name] = values.count(None)
            if known and len(known) == len(values) - values.count(None):
                for bound, of in (("minValues", min), ("maxValues", max)):
                    stats.setdefault(bound, {})[name] = stated(of(known))
        action["add"]["stats"] = json.dumps(stats)
        return action

    def check_rows(self) -> None:
        """Check that our reader and the Rust kernel read the rows that the table has."""
        rows = sorted(self.content, key=lambda row: int(row["k"]))
        expected = [repr(row) for row in pa.Table.from_pylist(rows, self.schema).to_pylist()]
        store = LocalStore(self.root)
        ours = read_table(store, open_snapshot(store)).sort_by("k")
        theirs = kernel_rows(self.folder, self.version)
        assert [repr(row) for row in ours.to_pylist()] == expected
        assert [repr(row) for row in theirs.to_pylist()] == expected


def stated(value: Any) -> Any:
    """Return a value as statistics have it: what JSON lacks as a text."""
    is_number = isinstance(value, int) or (isinstance(value, float) and isfinite(value))
    return value if is_number else str(value)


def check_entry(table: ProposedTable, actions: tuple[Mapping[str, Any], ...]) -> None:
    """Check that the newest entry has the actions that were proposed, with their statistics."""
    entry = table.folder / "_delta_log" / f"{table.version:020d}.json"
    lines = [json.loads(line) for line in entry.read_text("utf-8").splitlines()]
    for name in ("metaData", "protocol", "add", "remove"):
        written = [line[name] for line in lines if name in line]
        proposed = [action[name] for action in actions if name in action]
        assert [essence(body) for body in written] == [essence(body) for body in proposed]


def essence(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of an action is the writer's alone."""
    own = ("path", "partitionValues", "size", "stats", "schemaString", "partitionColumns")
    return {name: body[name] for name in own if name in body}


@st.composite
def tables(draw: st.DrawFn) -> tuple[Any, str | None, bool, list[Rows]]:
    """Return a schema, the partition column, whether columns are mapped, and contents."""
    mapped = draw(st.booleans())
    names = (*PLAIN_NAMES, *ODD_NAMES) if mapped else PLAIN_NAMES
    struct = draw(structs(names, kinds(names, 2)))
    struct["fields"].insert(0, dict(KEY))
    partition = draw(st.sampled_from([None, "part", "ü.b c" if mapped else "p"]))
    if partition:
        kind = draw(st.sampled_from(PARTITIONS))
        column = {"name": partition, "type": kind, "nullable": True, "metadata": {}}
        struct["fields"].insert(draw(st.integers(0, len(struct["fields"]))), column)
    contents = [draw(st.lists(rows_of(struct), min_size=1, max_size=4)) for _ in range(2)]
    for content in contents:
        for number, row in enumerate(content):
            row["k"] = number
            if partition and partition_text(row[partition]) is None:
                row[partition] = None
    return struct, partition, mapped, contents


@EXAMPLES
@given(
    drawn=tables(),
    gone=st.sets(st.integers(0, 3)),
    writing=st.fixed_dictionaries(
        {"indent": st.sampled_from([None, 1]), "ensure_ascii": st.booleans()}
    ),
)
def test_other_readers_find_the_rows_that_were_proposed(
    drawn: tuple[Any, str | None, bool, list[Rows]], gone: set[int], writing: Mapping[str, Any]
) -> None:
    struct, partition, mapped, contents = drawn
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "t"
        gate = Gate(CommitterSection(roots=(Path(folder).as_uri(),), audit_s=1e9))
        gate.stores[root.as_uri()] = LocalStore(root.as_uri())
        properties = {"delta.enableDeletionVectors": "true"}
        more = {"gate": gate, "writing": writing, "configuration": properties}
        table = ProposedTable.at(root, struct, partition, mapped=mapped, **more)
        for content in contents:
            table.replace_rows(content)
            table.check_rows()
        together = [{**row, "k": row["k"] + 10} for row in contents[0]]
        if partition:
            together = [{**row, partition: together[0][partition]} for row in together]
        table.append(together)
        table.delete_rows([*table.files][-1], gone & {*range(len(together))} or {0})
        table.check_rows()

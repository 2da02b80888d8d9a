"""The conflict vectors, grouped by table, with their commits."""

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final

from tests.conformance.oracle_predicates import SPELLINGS

Case = dict[str, Any]


Row = dict[str, Any]


KEPT: Final = frozenset(
    {"name", "table", "read_version", "reads", "isolation", "operation", "actions", "winners",
     "winner_mtimes_ms"}
)  # fmt: skip


class Pool:
    """The vectors, grouped by their tables."""

    def __init__(self, cases: Sequence[Mapping[str, Any]]) -> None:
        """Group the vectors."""
        self._alike: dict[str, list[Case]] = {}
        self._keys: dict[str, str] = {}
        self.cases = [_question(case) for case in cases]
        for case in self.cases:
            self._keys[case["name"]] = _key(case)
            self._alike.setdefault(_key(case), []).append(case)

    def alike(self, random: Random, case: Mapping[str, Any]) -> Case:
        """Return another case on the original table of a case."""
        return copy.deepcopy(random.choice(self._alike[self._keys[case["name"]]]))

    def draw(self, random: Random) -> Case:
        """Return a case; each table is drawn about as often as a group of cases."""
        if random.random() < 0.5:
            return copy.deepcopy(random.choice(self.cases))
        return copy.deepcopy(random.choice(self._alike[random.choice(sorted(self._alike))]))


def _key(case: Mapping[str, Any]) -> str:
    table = case["table"]
    return json.dumps([table["protocol"], table["metaData"], table["base"]], sort_keys=True)


def _question(case: Mapping[str, Any]) -> Case:
    """Return a vector without its expected result; of its reads, keep files read by path only."""
    result = copy.deepcopy({key: value for key, value in case.items() if key in KEPT})
    if result["reads"]["predicates"]:
        result["reads"]["files"] = []
    return result


def add_action(rows: list[Row], more: Row) -> None:
    """Add an action to a commit in place of one that it would contradict."""
    [kind] = more
    keys = {"metaData": "", "protocol": "", "txn": "appId", "domainMetadata": "domain"}
    if kind in keys:
        key = keys[kind]
        same = [row for row in rows if kind in row and row[kind].get(key) == more[kind].get(key)]
    else:
        same = [row for row in rows if row.get(kind, {}).get("path") == more[kind]["path"]]
    for row in same:
        rows.remove(row)
    rows.append(more)


def rows_of(rows: Sequence[Sequence[Row]], kind: str) -> Iterator[Row]:
    return (row[kind] for actions in rows for row in actions if kind in row)


def everywhere(case: Case, kind: str) -> Iterator[Row]:
    yield case["table"][kind]
    yield from rows_of([*case["table"]["base"], *case["winners"], case["actions"]], kind)


def columns_of(case: Case) -> dict[str, str]:
    fields = json.loads(case["table"]["metaData"]["schemaString"])["fields"]
    kinds = {field["name"]: field["type"] for field in fields}
    return {name: kind for name, kind in kinds.items() if kind in SPELLINGS}

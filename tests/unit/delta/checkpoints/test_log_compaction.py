import json
from pathlib import Path
from typing import Any

import pytest

from tidegate_delta.checkpoints.log_compaction import compact
from tidegate_delta.log.actions import Action, Add, Remove
from tidegate_delta.log.commit import Commit
from tidegate_delta.log.file_names import Version

ADD = {"partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True}
REMOVE = {"dataChange": True}


def commit(version: int, *rows: dict[str, Any]) -> Commit:
    return Commit.decode(version, "\n".join(json.dumps(row) for row in rows).encode())


def add(path: str) -> dict[str, Any]:
    return {"add": {"path": path, **ADD}}


def remove(path: str, **more: Any) -> dict[str, Any]:
    return {"remove": {"path": path, **REMOVE, **more}}


def txn(version: int, **more: Any) -> dict[str, Any]:
    return {"txn": {"appId": "app", "version": version, **more}}


def rows_of(content: bytes) -> list[dict[str, Any]]:
    assert content.endswith(b"\n")
    return [json.loads(line) for line in content.splitlines()]


def test_the_example_of_the_protocol() -> None:
    result = compact(
        [
            commit(4, {"commitInfo": {}}, add("f2"), remove("f1")),
            commit(5, {"commitInfo": {}}, add("f3"), add("f4"), txn(4389)),
            commit(6, {"commitInfo": {}}, remove("f3"), txn(4390)),
        ]
    )
    expected = [txn(4390), add("f2"), add("f4"), remove("f1"), remove("f3")]
    assert sorted(rows_of(result), key=str) == sorted(expected, key=str)


def test_tombstones_are_kept_whatever_their_age() -> None:
    domain = {"domainMetadata": {"domain": "d", "configuration": "", "removed": True}}
    old = [remove("a", deletionTimestamp=0), remove("b"), domain, txn(1, lastUpdated=0)]
    assert len(rows_of(compact([commit(0, *old), commit(1)]))) == 4


def test_the_newest_of_an_app_transaction_wins_not_the_greatest() -> None:
    assert rows_of(compact([commit(0, txn(9)), commit(1, txn(3))])) == [txn(3)]


def test_spellings_of_one_file_are_one_file() -> None:
    result = rows_of(compact([commit(0, add("x%20y")), commit(1, remove("x y"))]))
    assert result == [remove("x y")]


def test_what_joins_and_leaves_in_one_version_stays_as_where_the_version_is_read() -> None:
    result = rows_of(compact([commit(0, add("x"), remove("x")), commit(1)]))
    assert result == [add("x")]


def test_a_file_with_another_deletion_vector_is_another_file() -> None:
    vector = {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}
    again = {"add": {**add("a")["add"], "deletionVector": vector}}
    result = rows_of(compact([commit(0, add("a")), commit(1, remove("a"), again)]))
    assert sorted(result, key=str) == sorted([remove("a"), again], key=str)


def test_unknown_fields_survive() -> None:
    fancy = {"add": {**add("a")["add"], "fancy": {"x": 1}}}
    assert rows_of(compact([commit(0, fancy), commit(1)])) == [fancy]


def test_a_range_has_no_gap_and_two_versions_at_least() -> None:
    for commits in ([commit(0)], [commit(0), commit(2)], []):
        with pytest.raises(ValueError, match="no range"):
            compact(commits)


def test_ranges_of_other_writers_reconcile_to_the_same_files(corpus: Path) -> None:
    vectors = json.loads((corpus / "vectors" / "log_compaction.json").read_text())["vectors"]
    for vector in vectors:
        commits = [
            Commit.decode(vector["start"] + at, (corpus / name).read_bytes())
            for at, name in enumerate(vector["commits"])
        ]
        kept = Commit.decode(0, compact(commits))
        theirs = Commit(
            Version(0), _newest(Commit.decode(0, (corpus / vector["compacted"]).read_bytes()))
        )
        assert {a.key for a in kept.of(Add)} == {a.key for a in theirs.of(Add)}, vector["table"]
        assert {t.app_id: t.version for t in kept.txns} == {
            t.app_id: t.version for t in theirs.txns
        }
    assert len(vectors) > 3


def _newest(commit: Commit) -> tuple[Action, ...]:
    """Kernel writes a file that changed twice as two actions, newest first."""
    seen: dict[Any, Action] = {}
    for action in commit.actions:
        key = action.key if isinstance(action, Add | Remove) else len(seen)
        seen.setdefault(key, action)
    return tuple(seen.values())

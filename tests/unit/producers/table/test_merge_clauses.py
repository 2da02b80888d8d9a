"""What a merge may do, by its clauses."""

from types import SimpleNamespace
from typing import Any

from tidegate_producers.table.merge import Clause, MergeText, merging
from tidegate_producers.table.row_changes import DELETED, INSERTED, UPDATED

SOURCE: Any = SimpleNamespace(columns=["k"])
INSERT = Clause("not matched", INSERTED)


def test_a_merge_that_only_inserts_removes_no_row() -> None:
    """So it may be done to a table that is append-only."""
    text = MergeText("t.k = s.k", "t")
    assert not merging(SOURCE, [INSERT], text).may_remove
    for clause in (
        Clause("matched", UPDATED),
        Clause("matched", DELETED),
        Clause("not matched by source", DELETED),
    ):
        assert merging(SOURCE, [INSERT, clause], text).may_remove

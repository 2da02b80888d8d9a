"""Names of columns in the clauses of a merge."""

import pytest

from tidegate_delta.errors import InvalidRequest
from tidegate_producers.table.clause_names import of_source, of_target

SOURCE, TARGET = ["k", "v", "only_s"], ["K", "arr", "only t"]


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("k + `V`", "__tidegate_source_0 + __tidegate_source_1"),
        ("'k' || K || 'ä'", "'k' || __tidegate_source_0 || 'ä'"),
        ("s.k > v", "s.k > __tidegate_source_1"),
        ("transform(array(1), k -> k + v)", "transform(array(1), k -> k + __tidegate_source_1)"),
        ("nosuch(k", "nosuch(k"),
    ],
)
def test_an_insert_sees_the_source(text: str, seen: str) -> None:
    assert of_source(text, SOURCE, TARGET, "t") == seen


@pytest.mark.parametrize("text", ["t.k", "arr", "`only t` + 1", "T.arr[0]"])
def test_an_insert_does_not_see_the_table(text: str) -> None:
    with pytest.raises(InvalidRequest, match="does not see"):
        of_source(text, SOURCE, TARGET, "t")


def test_what_the_source_lacks_sees_the_table() -> None:
    assert of_target("k = `only t`", SOURCE, TARGET, "t") == (
        "__tidegate_target_0 = __tidegate_target_2"
    )
    with pytest.raises(InvalidRequest, match="does not see"):
        of_target("k = only_s", SOURCE, TARGET, "t")


@pytest.mark.parametrize(
    ("text", "alias", "seen"),
    [
        ("k.a + t.k", "t", "__tidegate_target_0.a + t.k"),
        ("t.k + 1", None, "t.k + 1"),
        ("K.a.b", "k", "K.a.b"),
    ],
)
def test_what_the_source_lacks_sees_fields_of_the_table(
    text: str, alias: str | None, seen: str
) -> None:
    assert of_target(text, SOURCE, TARGET, alias) == seen

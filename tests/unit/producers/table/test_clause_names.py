"""Names of columns in the clauses of a merge."""

import pytest

from tidegate_delta.errors import InvalidRequest
from tidegate_producers.table.clause_names import JoinedColumns

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
    assert JoinedColumns(SOURCE, TARGET, "t").of_source(text) == seen


@pytest.mark.parametrize("text", ["t.k", "arr", "`only t` + 1", "T.arr[0]"])
def test_an_insert_does_not_see_the_table(text: str) -> None:
    with pytest.raises(InvalidRequest, match="does not see"):
        JoinedColumns(SOURCE, TARGET, "t").of_source(text)


def test_what_the_source_lacks_sees_the_table() -> None:
    assert JoinedColumns(SOURCE, TARGET, "t").of_target("k = `only t`") == (
        "__tidegate_target_0 = __tidegate_target_2"
    )
    with pytest.raises(InvalidRequest, match="does not see"):
        JoinedColumns(SOURCE, TARGET, "t").of_target("k = only_s")


@pytest.mark.parametrize(
    ("text", "alias", "seen"),
    [
        ("k.a + t.k", "t", "__tidegate_target_0.a + t.k"),
        ("t.k + 1", None, "t.k + 1"),
        ("K.a.b", "k", "__tidegate_target_0.a.b"),
        ("k.arr", "k", "k.arr"),
    ],
)
def test_what_the_source_lacks_sees_fields_of_the_table(
    text: str, alias: str | None, seen: str
) -> None:
    assert JoinedColumns(SOURCE, TARGET, alias).of_target(text) == seen


WORDS = ["comment", "desc", "date", "end", "values", "k"]


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("comment", "__tidegate_source_0"),
        (
            "comment = 'comment' and desc > 1",
            "__tidegate_source_0 = 'comment' and __tidegate_source_1 > 1",
        ),
        (
            "case when k then desc else comment end",
            "case when __tidegate_source_5 then __tidegate_source_1 else __tidegate_source_0 end",
        ),
        ("end", "__tidegate_source_3"),
        ("values", "__tidegate_source_4"),
        ("date '2024-01-01' < date", "date '2024-01-01' < __tidegate_source_2"),
        ("cast(k as date)", "cast(__tidegate_source_5 as date)"),
        ("s.comment || s.desc", "s.comment || s.desc"),
    ],
)
def test_words_of_sql_are_columns_where_columns_have_their_names(text: str, seen: str) -> None:
    result = JoinedColumns(WORDS, WORDS, None).of_source(text)
    assert result.replace("`", "") == seen


@pytest.mark.parametrize(
    ("text", "seen"), [("a.b", "__tidegate_source_0.b"), ("s.a.b", "s.a.b"), ("a.c", "a.c")]
)
def test_a_field_of_the_source_is_not_that_of_the_table(text: str, seen: str) -> None:
    """`a.c` may be the column `c` of a source with the alias `a`."""
    assert JoinedColumns(["a", "c"], ["a", "c"], None).of_source(text) == seen

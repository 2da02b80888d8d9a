import pytest

from tests.definitions import a_field, metadata, versions
from tidegate_delta.definitions.definition import Definition
from tidegate_delta.definitions.definition_checks import stats_column_flaws

STRUCT = {"type": "struct", "fields": [a_field("x"), a_field("B", "binary")]}
FIELDS = (a_field("a"), a_field("p", "string"), a_field("b", "binary"), a_field("s", STRUCT))


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("", []),
        ("a", []),
        ("A, S.X", []),
        ("s", []),
        ("s.b", []),
        ("P", ["stats_of_partition_column"]),
        ("b", ["stats_of_type"]),
        ("c", ["stats_of_no_column"]),
        ("a.x", ["stats_of_no_column"]),
        ("s.y", ["stats_of_no_column"]),
        ("a, A", ["stats_column_twice"]),
        ("s, s.x", ["stats_column_twice"]),
        ("c, b", ["stats_of_no_column", "stats_of_type"]),
    ],
)
def test_statistics_are_of_columns_that_have_bounds(text: str, rules: list[str]) -> None:
    about = metadata(*FIELDS, **{"delta.dataSkippingStatsColumns": text})
    one = Definition(about.with_(partition_columns=("p",)), versions(1, 2))
    assert [flaw.rule for flaw in stats_column_flaws(one)] == rules


def test_a_table_that_names_no_columns_needs_none() -> None:
    assert list(stats_column_flaws(Definition(metadata(*FIELDS), versions(1, 2)))) == []

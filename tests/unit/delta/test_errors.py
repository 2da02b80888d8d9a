"""Error messages: what is wrong, and separately what to do about an existing table."""

import pickle

import pytest

from tidegate_delta.errors import BrokenLog, TidegateError, UnsupportedFeature
from tidegate_delta.schema.types import parse_schema


def test_an_error_separates_the_problem_from_the_remedy() -> None:
    error = BrokenLog("a line is torn", error_class="CorruptCommit", remedy="restore it")
    assert (error.fault, error.remedy) == ("a line is torn", "restore it")
    assert str(error) == "a line is torn; restore it"
    assert str(BrokenLog("a line is torn: restore it")) == "a line is torn: restore it"


def test_an_error_keeps_its_fields_where_a_table_is_named() -> None:
    error = UnsupportedFeature("asks for more", feature="x", remedy="drop it")
    error = error.with_fault(f"table t: {error.fault}")
    assert str(error) == "table t: asks for more; drop it"
    assert (error.fault, error.feature) == ("table t: asks for more", "x")


def test_an_error_comes_whole_out_of_another_process() -> None:
    error: TidegateError = BrokenLog("torn", error_class="CorruptCommit", remedy="restore it")
    for item in (error, error.with_fault("t is torn")):
        result = pickle.loads(pickle.dumps(item))
        assert (str(result), vars(result)) == (str(item), vars(item))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"fields":[]}', "'type' is missing"),
        ('{"type":"struct","fields":[{"name":"a"}]}', "'type' is missing"),
        ('{"type":"struct","fields":7}', "of another kind"),
        ("no json", "char 0"),
        ('"long"', "no struct"),
    ],
)
def test_an_invalid_schema_is_a_readable_error(text: str, words: str) -> None:
    with pytest.raises(BrokenLog, match=words) as raised:
        parse_schema(text)
    assert "Error(" not in str(raised.value)

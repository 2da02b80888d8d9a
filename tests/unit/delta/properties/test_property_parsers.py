import pytest

from tidegate_delta.properties.property_parsers import any_case, boolean, column_list, whole, word


def test_a_list_of_columns_is_read() -> None:
    assert column_list("") == ()
    assert column_list(" a , b.`c.d`.e,`f``g` ") == (("a",), ("b", "c.d", "e"), ("f`g",))


@pytest.mark.parametrize("text", ["a,", "a..b", "a b", "`a", ",a"])
def test_what_is_no_list_of_columns_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no list of columns"):
        column_list(text)


def test_words_are_exact_or_of_any_case() -> None:
    assert any_case(("Serializable",))("sERIALIZABLE") == "Serializable"
    assert word(("v2",))("v2") == "v2"
    with pytest.raises(ValueError, match="none of"):
        word(("v2",))("V2")


@pytest.mark.parametrize("text", ["", "1", " true", "yes", "t"])
def test_what_is_no_truth_is_refused(text: str) -> None:
    assert boolean("TRUE") is True
    with pytest.raises(ValueError, match="neither"):
        boolean(text)


@pytest.mark.parametrize("text", ["", "1.0", " 1", "1_0", "٣", "--1", "2147483648", "-1"])
def test_what_is_no_whole_number_is_refused(text: str) -> None:
    assert whole(0)("2147483647") == 2**31 - 1
    with pytest.raises(ValueError, match=r"no whole number|too large"):
        whole(0)(text)

import pytest

from tidegate_delta.deletion_vectors import z85


def test_the_vector_of_its_specification_is_spelt_as_there() -> None:
    content = bytes.fromhex("864fd26fb559f75b")
    assert z85.encode(content) == "HelloWorld"
    assert z85.decode("HelloWorld") == content


def test_what_is_no_whole_word_is_filled_up_with_zeros() -> None:
    assert z85.decode(z85.encode(b"abcde")) == b"abcde\0\0\0"
    assert z85.encode(b"") == ""


@pytest.mark.parametrize("text", ["0000", "0000~", "#####", "0000é", "00000 0000"])
def test_what_spells_no_bytes_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="character"):
        z85.decode(text)

import pytest

from tidegate_delta.deletion_vectors import descriptors


def test_the_vector_of_its_specification_is_spelt_as_there() -> None:
    content = bytes.fromhex("864fd26fb559f75b")
    assert descriptors.z85_encode(content) == "HelloWorld"
    assert descriptors.z85_decode("HelloWorld") == content


def test_what_is_no_whole_word_is_filled_up_with_zeros() -> None:
    assert descriptors.z85_decode(descriptors.z85_encode(b"abcde")) == b"abcde\0\0\0"
    assert descriptors.z85_encode(b"") == ""


@pytest.mark.parametrize("text", ["0000", "0000~", "#####", "0000é", "00000 0000"])
def test_what_spells_no_bytes_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="character"):
        descriptors.z85_decode(text)

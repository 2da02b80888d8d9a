"""Z85: encodes four bytes as five characters, none of which JSON has to escape."""

import struct
from typing import Final

ALPHABET: Final = (
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
)
"""The digits from 0 to 84; Python's own base 85 has others."""

_NO_DIGIT: Final = 255
_DIGITS: Final = bytes(
    ALPHABET.index(character) if character in ALPHABET else _NO_DIGIT
    for character in map(chr, range(256))
)
_POWERS: Final = (85**4, 85**3, 85**2, 85, 1)


def encode(content: bytes) -> str:
    """Return bytes as text; zeros are appended to fill the last word of four bytes.

    Law: decode(encode(b))[: len(b)] == b
    Spec: "Deletion Vector Descriptor Schema"
    """
    padded = content + bytes(-len(content) % 4)
    words = struct.unpack(f">{len(padded) // 4}I", padded)
    return "".join(ALPHABET[word // power % 85] for word in words for power in _POWERS)


def decode(text: str) -> bytes:
    """Return the bytes of a text, padding included.

    Raises: ValueError, for another length or character, or a word past 32 bits.
    Spec: "Deletion Vector Descriptor Schema"
    """
    if len(text) % 5:
        raise ValueError(f"{len(text)} characters are not whole words of five")
    digits = text.encode("ascii", "replace").translate(_DIGITS)
    if _NO_DIGIT in digits or not text.isascii():
        strange = next(character for character in text if character not in ALPHABET)
        raise ValueError(f"{strange!r} is no character of Z85")
    fives = zip(*(digits[index::5] for index in range(5)), strict=True)
    values = [(((a * 85 + b) * 85 + c) * 85 + d) * 85 + e for a, b, c, d, e in fives]
    try:
        return struct.pack(f">{len(values)}I", *values)
    except struct.error as error:
        raise ValueError(f"five characters spell more than 32 bits ({error})") from error

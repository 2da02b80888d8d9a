"""Z85: four bytes as five characters, none of which JSON has to escape."""

import struct
from typing import Final

ALPHABET: Final = (
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
)
"""The digits from 0 to 84; Python's own base 85 has others."""

_DIGITS: Final = {character: digit for digit, character in enumerate(ALPHABET)}
_POWERS: Final = (85**4, 85**3, 85**2, 85, 1)


def encode(content: bytes) -> str:
    """Return bytes as text; up to three zeros are appended where they are no whole words.

    Law: decode(encode(b))[: len(b)] == b
    Spec: "Deletion Vector Descriptor Schema"
    """
    padded = content + bytes(-len(content) % 4)
    words = struct.unpack(f">{len(padded) // 4}I", padded)
    return "".join(ALPHABET[word // power % 85] for word in words for power in _POWERS)


def decode(text: str) -> bytes:
    """Return the bytes that a text spells, padding included.

    Raises: ValueError, for another length or character, or a word past 32 bits.
    Spec: "Deletion Vector Descriptor Schema"
    """
    if len(text) % 5:
        raise ValueError(f"{len(text)} characters are not whole words of five")
    try:
        digits = [_DIGITS[character] for character in text]
        values = [_word(digits[at : at + 5]) for at in range(0, len(digits), 5)]
        return struct.pack(f">{len(values)}I", *values)
    except KeyError as error:
        raise ValueError(f"{error.args[0]!r} is no character of Z85") from error
    except struct.error as error:
        raise ValueError(f"five characters spell more than 32 bits ({error})") from error


def _word(digits: list[int]) -> int:
    return sum(digit * power for digit, power in zip(digits, _POWERS, strict=True))

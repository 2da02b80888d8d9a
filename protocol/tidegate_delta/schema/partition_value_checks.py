"""Check that the text of a new partition value is one that every reader can parse, not only ours.

Readers differ in which other texts they accept, and a reader that can't parse one text can't read
the table. Texts that are already in a log are for `partition_values`, which accepts more.

Spec: "Partition Value Serialization"
"""

import re
from decimal import Decimal
from functools import lru_cache
from typing import Final

from tidegate_delta.schema import partition_values
from tidegate_delta.schema.types import STRING, DataType, DecimalType, PrimitiveType

_DAY: Final = r"[+-]?\d{4,7}-\d{1,2}-\d{1,2}"
_TIME: Final = r"\d{1,2}:\d{1,2}:\d{1,2}(\.\d{1,9})?"
_FORMS: Final = {
    "date": (_DAY, "2024-06-15"),
    "timestamp": (
        rf"{_DAY}[ T]{_TIME}(Z| ?UTC|[+-]\d{{2}}:\d{{2}})?",
        "2024-06-15T19:30:45.000000Z",
    ),
    "timestamp_ntz": (rf"{_DAY} {_TIME}", "2024-06-15 19:30:45.000000"),
}
"""The form that a type's texts must have, and an example."""


def check(text: str | None, kind: DataType) -> None:
    """Refuse a text that is no value of a type, or that not all readers parse.

    Law: where it passes, partition_values.column([text], kind) has the value
    Raises: ValueError, which names the text.
    """
    if text == "":
        raise ValueError(
            "the partition value '' is null to some readers, and others can't read it or take it "
            "for a value: write null"
        )
    if text is not None and kind != STRING:
        _check(text, kind)


def check_readable(text: str | None, kind: DataType) -> None:
    """Refuse a text that is no value of a type; accepts every form that we read, and any year.

    Raises: ValueError, which names the text.
    """
    try:
        partition_values.parse(text, kind)
    except ValueError:
        partition_values.column([text], kind)


def check_existing(text: str | None, kind: DataType) -> None:
    """Refuse a text that no reader accepts; accepts values in a log that only a cast can read.

    Raises: ValueError, which names the text.
    """
    try:
        check_readable(text, kind)
    except ValueError:
        partition_values.lenient_cast(text or "", kind)


def check_of_file(text: str | None, kind: DataType, *, is_new: bool, is_widened: bool) -> None:
    """Refuse an invalid partition value of a file, with stricter rules for new rows (`is_new`).

    New rows in a column whose type was widened may have a text of the narrower type.
    Raises: ValueError, which names the text.
    """
    if not is_new:
        check_existing(text, kind)
    elif is_widened:
        check_readable(text, kind)
    else:
        check(text, kind)


@lru_cache(maxsize=4096)
def _check(text: str, kind: DataType) -> None:
    check_readable(text, kind)
    if isinstance(kind, PrimitiveType) and kind.name == "binary":
        return
    if not text.isascii() or text != text.strip():
        raise ValueError(f"the partition value {text!r} is no {kind} without spaces, in ASCII")
    if isinstance(kind, DecimalType):
        if Decimal(text).as_tuple().exponent != -kind.scale:
            raise ValueError(f"the partition value {text!r} has not the scale of {kind}")
        return
    form, example = _FORMS.get(str(kind), ("", ""))
    if form and not re.fullmatch(form, text, re.ASCII):
        raise ValueError(f"the partition value {text!r} is no {kind} of the form {example!r}")

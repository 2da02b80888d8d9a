"""Consoles for the output of commands: as wide as the terminal, unwrapped in a pipe or file."""

import os
import sys
from typing import Final

from rich.console import Console

WIDE: Final = 10_000
"""Width of output that goes to no terminal: programs expect each row of a table on one line."""


def console(*, stderr: bool = False, wide: int = WIDE) -> Console:
    """Return a console that prints text literally, without markup or automatic colours.

    The environment variable COLUMNS, if set, overrides the width.
    """
    out = sys.stderr if stderr else sys.stdout
    has_own_width = out.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return Console(
        stderr=stderr,
        highlight=False,
        markup=False,
        emoji=False,
        width=None if has_own_width else wide,
    )


def printable(text: str) -> str:
    """Return a text with control characters and line breaks escaped.

    Paths, names and reasons come from any writer, who could send escape sequences.
    """
    return "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in text
    )

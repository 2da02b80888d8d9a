"""Where commands print: as wide as the terminal; into a pipe or file, without breaking lines."""

import os
import sys
from typing import Final

from rich.console import Console

WIDE: Final = 10_000
"""Width of output that goes to no terminal: programs want each row of a table on one line."""


def console(*, stderr: bool = False, wide: int = WIDE) -> Console:
    """Return a console that takes text as it is: no markup, no colours of its own choice.

    COLUMNS in the environment, where it is set, says how wide.
    """
    out = sys.stderr if stderr else sys.stdout
    asked = out.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return Console(
        stderr=stderr, highlight=False, markup=False, emoji=False, width=None if asked else wide
    )

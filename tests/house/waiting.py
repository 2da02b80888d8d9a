"""Where the committer asks stores: in what runs aside, and nowhere else.

The loop serves every table of the process. Whoever asks a store in it makes them all wait for that
one store: a minute, or for ever.
"""

import re
from collections.abc import Iterator
from typing import Final

from tests.house.homes import COMMITTER

RUNS_ASIDE: Final = frozenset(
    {"audits", "claims", "entry_put", "errands", "glances", "loading", "recovery", "shelf"}
    | {"whole_tables"}
)
"""The modules that ask stores. The loop begins `errands`, `loading`, `audits`, `glances` and
`entry_put` of these: by `Doors.reads`, `loads`, `aside` and `puts`."""

ASKS: Final = re.compile(
    r"\brecovery\.(?!lacks\b|is_short\b)\w+\("  # These two look at what is remembered.
    r"|\bread_claim\b|\bwhole_table\("
    r"|\bstore\.(?:read|open|list_from|put|put_if_absent|delete)\("
    r"|\bfrom tidegate\.runtime\.(?:open_table|log_files|vector_files|row_ids|table_files)\b"
    r"|\b(?:vet|errand\.run)\(\S*\)"
)


def asks_in_the_loop(path: str, text: str) -> Iterator[str]:
    """Yield each line of a module of the committer's loop that asks a store."""
    if not path.startswith(COMMITTER) or path.removeprefix(COMMITTER)[:-3] in RUNS_ASIDE:
        return
    for number, line in enumerate(text.splitlines(), 1):
        if ASKS.search(line):
            yield f"{path}:{number} asks a store while the loop waits: {line.strip()}"

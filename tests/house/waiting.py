"""Where the committer asks stores: in what runs aside, and nowhere else.

The loop serves every table of the process. Whoever asks a store in it makes them all wait for that
one store: a minute, or for ever.
"""

import re
from collections.abc import Iterator
from typing import Final

from tests.house.homes import COMMITTER

RUNS_ASIDE: Final = tuple(f"{COMMITTER}{name}" for name in ("store_reads/", "loop/entry_put.py"))
"""What asks stores. The loop begins `decision_reads`, `table_loading`, `log_audit`,
`idle_table_probe` and `entry_put` of these: by `Dependencies.reads`, `loads`,
`background` and `puts`."""

ASKS: Final = re.compile(
    r"\brecovery\.(?!lacks\b|is_short\b)\w+\("  # These two look at what is remembered.
    r"|\bread_claim\b|\bwhole_table\("
    r"|\bstore\.(?:read|open|list_from|put|put_if_absent|delete)\("
    r"|\bfrom tidegate_runtime\.table_io\b"
    r"|\b(?:vet|fetch\.run)\(\S*\)"
)


def asks_in_the_loop(path: str, text: str) -> Iterator[str]:
    """Yield each line of a module of the committer's loop that asks a store."""
    if not path.startswith(COMMITTER) or path.startswith(RUNS_ASIDE):
        return
    for number, line in enumerate(text.splitlines(), 1):
        if ASKS.search(line):
            yield f"{path}:{number} asks a store while the loop waits: {line.strip()}"

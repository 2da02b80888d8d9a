"""Find calls to stores in the committer's loop; only its worker threads may make them.

The loop serves every table of the process. A call to a store within it delays all tables for that
one store: for a minute, or for ever.
"""

import re
from collections.abc import Iterator
from typing import Final

from tests.house.homes import COMMITTER

RUNS_ASIDE: Final = tuple(f"{COMMITTER}{name}" for name in ("store_reads/", "loop/entry_put.py"))
"""Modules that call stores. The loop starts `decision_reads`, `table_loading`, `log_audit`,
and `entry_put` of these through `Dependencies.reads`, `loads`, `background` and `puts`.
"""

ASKS: Final = re.compile(
    r"\brecovery\.(?!lacks\b|is_short\b)\w+\("  # These two only look at memory.
    r"|\bread_claim\b|\bwhole_table\("
    r"|\bstore\.(?:read|open|list_from|put|put_if_absent|delete)\("
    r"|\bfrom tidegate_runtime\.table_io\b"
    r"|\b(?:vet|fetch\.run)\(\S*\)"
)


def store_calls_in_the_loop(path: str, text: str) -> Iterator[str]:
    """Yield each line of the committer's loop that calls a store."""
    if not path.startswith(COMMITTER) or path.startswith(RUNS_ASIDE):
        return
    for number, line in enumerate(text.splitlines(), 1):
        if ASKS.search(line):
            yield f"{path}:{number} asks a store while the loop waits: {line.strip()}"

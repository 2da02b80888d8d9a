"""Who needs which versions of a table: what no cleanup and no vacuum may take."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Gate:
    """`holder` needs every version from `needed_from` on: its commits and, with `reads_rows`, the
    files that these versions name.
    """

    needed_from: int
    holder: str
    reads_rows: bool = True

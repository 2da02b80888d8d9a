"""The operator's limits and permissions, in the form that the pure code takes."""

from dataclasses import dataclass
from typing import Final, Literal

Level = Literal["Serializable", "WriteSerializable", "SnapshotIsolation"]

UnsafeWriters = Literal["warn", "halt"]
"""What to do with a table that an engine without put-if-absent writes to directly."""

STRICTNESS: Final[tuple[Level, ...]] = ("SnapshotIsolation", "WriteSerializable", "Serializable")
"""The isolation levels, weakest first."""

LEVELS: Final = {level.lower(): level for level in STRICTNESS}
"""The levels by their lower-case names: table properties may use any case."""

_KIB: Final = 1024
_MIB: Final = 1024 * _KIB
_DAY_MS: Final = 24 * 60 * 60 * 1000


@dataclass(frozen=True)
class Policy:
    """Limits of one proposal, and of the proposals that share an entry.

    `weakest_isolation` is the weakest level that a proposal may ask for. `window` is the number of
    versions whose entries are kept in memory. `verbatim` allows verbatim entries.
    `roots` are the URI prefixes below which tables, and files of shallow clones, may lie.
    Units: `_bytes` in bytes, `_chars` in code points, `_ms` in ms.
    """

    record_bytes_max: int = _MIB
    claim_bytes_max: int = 256 * _MIB
    actions_max: int = 100_000
    line_bytes_max: int = 4 * _MIB
    stats_chars_max: int = 16 * _KIB
    partition_value_chars_max: int = _KIB
    schema_fields_max: int = 10_000
    predicate_nodes_max: int = 10_000
    vector_bytes_max: int = 64 * _MIB
    files_age_max_ms: int = 6 * _DAY_MS
    weakest_isolation: Level = "WriteSerializable"
    group_members_max: int = 256
    group_actions_max: int = 100_000
    group_bytes_max: int = 64 * _MIB
    window: int = 1_000
    verbatim: bool = True
    roots: tuple[str, ...] = ()

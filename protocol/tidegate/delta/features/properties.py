"""Table properties: typed, validated, with Delta's defaults."""

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from tidegate.delta.actions import Metadata
from tidegate.delta.errors import InvalidRequest

T = TypeVar("T")

_UNITS_MS: Final = {
    "millisecond": 1,
    "second": 1_000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}
_TERM: Final = re.compile(r"(-?\d+)\s+([a-z]+?)s?(?:\s+|$)")
_PAGE_VERSION: Final = re.compile(r"^(1\.0\.0|2\.\d+\.\d+)$")
_BACKTICKED: Final = re.compile(r"`((?:[^`]|``)+)`|([^.,`\s]+)")

CODECS: Final = frozenset({"uncompressed", "none", "snappy", "gzip", "lz4", "lz4_raw", "zstd"})


@dataclass(frozen=True)
class Property(Generic[T]):
    """A property of a table: its key, what it is when absent, how its text is read.

    Spec: "Table Properties"
    """

    key: str
    default: T
    read: Callable[[str], T]
    expected: str

    def __call__(self, metadata: Metadata) -> T:
        """Return the property's value. Raises: InvalidRequest for text that is none."""
        return self.of(metadata.configuration)

    def of(self, configuration: Mapping[str, str]) -> T:
        """Return the property's value. Raises: InvalidRequest for text that is none."""
        text = configuration.get(self.key)
        if text is None:
            return self.default
        try:
            return self.read(text)
        except ValueError as error:
            raise InvalidRequest(
                f"table property {self.key!r} is {text!r}; expected {self.expected}: set it anew",
                error_class="InvalidTableProperty",
            ) from error


def validate(configuration: Mapping[str, str]) -> None:
    """Check every property that we know.

    Raises: InvalidRequest, naming the first property with a value it can't have.
    Spec: "Table Properties"
    """
    for one in ALL:
        one.of(configuration)


def check_names(configuration: Mapping[str, str]) -> None:
    """Check that the `delta.` properties of a new table are properties, spelt as Delta spells them.

    A misspelt one would be kept and mean nothing to anybody. Existing tables keep what they have.
    Raises: InvalidRequest (`DELTA_UNKNOWN_CONFIGURATION`), with the nearest name.
    Spec: "Table Properties"
    """
    known = {key.lower(): key for key in (*(one.key for one in ALL), *READ_ELSEWHERE)}
    for key in configuration:
        name = key.lower()
        if not name.startswith("delta.") or known.get(name) == key:
            continue
        if key.startswith(_FEATURES):
            continue
        remedy = "leave it out"
        if name.startswith(_PROTOCOL):
            remedy = "leave it out: a table's protocol follows from its features"
        elif near := difflib.get_close_matches(name, known, 1, 0.7):
            remedy = f"did you mean {known[near[0]]!r}?"
        raise InvalidRequest(
            f"{key!r} is no table property that this release knows; {remedy}",
            error_class="DELTA_UNKNOWN_CONFIGURATION",
        )


def interval_ms(text: str) -> int:
    """Return how long an interval such as `interval 1 week` is, in ms.

    Raises: ValueError for months, years, negative intervals and what is no interval.
    Spec: "Table Properties"
    """
    rest = text.strip().lower().removeprefix("interval").strip()
    total, end = 0, 0
    for term in _TERM.finditer(rest):
        if term.start() != end or term[2] not in _UNITS_MS:
            raise ValueError(f"{text!r} is no interval of days or shorter units")
        total, end = total + int(term[1]) * _UNITS_MS[term[2]], term.end()
    if not rest or end != len(rest) or total < 0:
        raise ValueError(f"{text!r} is no interval of days or shorter units")
    return total


def column_list(text: str) -> tuple[tuple[str, ...], ...]:
    """Return the column paths of a list such as ``a, b.c, `d.e` ``.

    Raises: ValueError for what is no list of columns.
    Spec: "Table Properties"
    """
    columns: list[tuple[str, ...]] = []
    position = 0
    while position <= len(text) and text.strip():
        path, position = _column(text, position)
        columns.append(path)
    return tuple(columns)


def _column(text: str, start: int) -> tuple[tuple[str, ...], int]:
    path: list[str] = []
    position = start
    while True:
        position += len(text[position:]) - len(text[position:].lstrip())
        match = _BACKTICKED.match(text, position)
        if match is None:
            raise ValueError(f"{text!r} is no list of columns")
        path.append(match[1].replace("``", "`") if match[1] else match[2])
        rest = text[match.end() :].lstrip()
        position = len(text) - len(rest)
        if not rest or rest[0] == ",":
            return tuple(path), position + 1
        if rest[0] != ".":
            raise ValueError(f"{text!r} is no list of columns")
        position += 1


def _boolean(text: str) -> bool:
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return word == "true"


def _at_least(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        number = int(text)
        if number < least:
            raise ValueError(f"{number} is less than {least}")
        return number

    return read


def _word(words: Mapping[str, str]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text.strip().lower() not in words:
            raise ValueError(f"{text!r} is none of {sorted(words.values())}")
        return words[text.strip().lower()]

    return read


def _page_version(text: str) -> str:
    if not _PAGE_VERSION.match(text):
        raise ValueError(f"{text!r} is no page format version")
    return text


def _flag(key: str, *, default: bool) -> Property[bool]:
    return Property(key, default, _boolean, "true or false")


def _interval(key: str, default: str) -> Property[int]:
    return Property(key, interval_ms(default), interval_ms, "an interval such as '30 days'")


_LEVELS: Final = {"serializable": "Serializable", "writeserializable": "WriteSerializable"}

append_only: Final = _flag("delta.appendOnly", default=False)
change_feed_enabled: Final = _flag("delta.enableChangeDataFeed", default=False)
deletion_vectors_enabled: Final = _flag("delta.enableDeletionVectors", default=False)
in_commit_timestamps_enabled: Final = _flag("delta.enableInCommitTimestamps", default=False)
checkpoint_stats_as_json: Final = _flag("delta.checkpoint.writeStatsAsJson", default=True)
checkpoint_stats_as_struct: Final = _flag("delta.checkpoint.writeStatsAsStruct", default=True)
log_cleanup_enabled: Final = _flag("delta.enableExpiredLogCleanup", default=True)
random_prefixes: Final = _flag("delta.randomizeFilePrefixes", default=False)
log_retention_ms: Final = _interval("delta.logRetentionDuration", "interval 30 days")
tombstone_retention_ms: Final = _interval("delta.deletedFileRetentionDuration", "interval 1 week")

txn_retention_ms: Final[Property[int | None]] = Property(
    "delta.setTransactionRetentionDuration", None, interval_ms, "an interval such as '30 days'"
)
checkpoint_interval: Final = Property(
    "delta.checkpointInterval", 10, _at_least(1), "a positive whole number"
)
isolation_level: Final = Property(
    "delta.isolationLevel", "Serializable", _word(_LEVELS), "Serializable or WriteSerializable"
)
checkpoint_policy: Final = Property(
    "delta.checkpointPolicy", "classic", _word({"classic": "classic", "v2": "v2"}), "classic or v2"
)
num_indexed_columns: Final = Property(
    "delta.dataSkippingNumIndexedCols", 32, _at_least(-1), "a whole number from -1"
)
stats_columns: Final[Property[tuple[tuple[str, ...], ...] | None]] = Property(
    "delta.dataSkippingStatsColumns", None, column_list, "a list of columns such as 'a, b.c'"
)
string_prefix_length: Final = Property(
    "delta.dataSkippingStringPrefixLength", 32, _at_least(0), "a whole number from 0"
)
column_mapping_mode: Final = Property(
    "delta.columnMapping.mode",
    "none",
    _word({"none": "none", "name": "name", "id": "id"}),
    "none, name or id",
)
compression_codec: Final = Property(
    "delta.parquet.compression.codec",
    "zstd",
    _word({name: name for name in CODECS}),
    f"one of {', '.join(sorted(CODECS))}",
)
page_version: Final = Property(
    "delta.parquet.format.version", "1.0.0", _page_version, "1.0.0 or 2.MINOR.PATCH"
)
ict_enablement_version: Final[Property[int | None]] = Property(
    "delta.inCommitTimestampEnablementVersion", None, _at_least(0), "a version"
)
ict_enablement_timestamp_ms: Final[Property[int | None]] = Property(
    "delta.inCommitTimestampEnablementTimestamp", None, int, "a time in ms"
)

ALL: Final[tuple[Property[Any], ...]] = (
    append_only,
    change_feed_enabled,
    in_commit_timestamps_enabled,
    checkpoint_stats_as_json,
    checkpoint_stats_as_struct,
    log_cleanup_enabled,
    random_prefixes,
    log_retention_ms,
    tombstone_retention_ms,
    txn_retention_ms,
    checkpoint_interval,
    isolation_level,
    checkpoint_policy,
    num_indexed_columns,
    stats_columns,
    string_prefix_length,
    column_mapping_mode,
    compression_codec,
    page_version,
    ict_enablement_version,
    ict_enablement_timestamp_ms,
)

READ_ELSEWHERE: Final = frozenset(
    {
        "delta.autoOptimize",
        "delta.autoOptimize.autoCompact",
        "delta.autoOptimize.optimizeWrite",
        "delta.checkpointRetentionDuration",
        "delta.columnMapping.maxColumnId",
        "delta.columnMapping.mode",
        "delta.coordinatedCommits.commitCoordinator-preview",
        "delta.enableChangeDataCapture",
        "delta.enableDeletionVectors",
        "delta.enableFullRetentionRollback",
        "delta.enableIcebergCompatV1",
        "delta.enableIcebergCompatV2",
        "delta.enableIcebergCompatV3",
        "delta.enableRowTracking",
        "delta.enableTypeWidening",
        "delta.enableVariantShredding",
        "delta.randomPrefixLength",
        "delta.sampleRetentionDuration",
        "delta.targetFileSize",
        "delta.tuneFileSizesForRewrites",
    }
)
"""Properties that turn features on, which are judged as features, or that other engines obey."""
_FEATURES: Final = ("delta.constraints.", "delta.feature.")
_PROTOCOL: Final = ("delta.minreaderversion", "delta.minwriterversion")

"""The options of `format("tidegate")`: Delta's names, `kafka.*` and `storage.*`.

Spark lower-cases option names, so they are matched without regard to case. The error for an
unknown option suggests the nearest known name; the error for an option of Delta's that this
release lacks suggests an alternative.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, NoReturn, get_args

from pydantic import SecretStr, ValidationError

from tidegate_delta.errors import InvalidRequest, Misconfigured, UnsupportedFeature
from tidegate_delta.properties.property import column_list
from tidegate_delta.schema.partition_values import parse
from tidegate_delta.schema.types import TIMESTAMP
from tidegate_messages.proposal import AppTxn, Isolation
from tidegate_messages.record_headers import compose_traceparent, is_traceparent
from tidegate_runtime.client.client import TIMEOUT_S
from tidegate_runtime.kafka.settings import KafkaSettings
from tidegate_runtime.service.settings import ServiceSettings, load
from tidegate_runtime.storage.open_store import canonical_root

OverwriteMode = Literal["static", "dynamic"]
Compression = Literal["snappy", "zstd", "gzip", "lz4", "none"]

WRITING: Final = {
    name.lower(): name
    for name in (
        "path",
        "name",
        "partitionColumns",
        "userMetadata",
        "txnAppId",
        "txnVersion",
        "isolationLevel",
        "outcomeTimeout",
        "topicPrefix",
        "compression",
        "maxRecordsPerFile",
        "dataChange",
        "partitionOverwriteMode",
        "readVersion",
        "checkpointLocation",
        "queryName",
        "constraintsEnforced",
        "mergeSchema",
        "overwriteSchema",
        "replaceWhere",
        "traceparent",
    )
}
READING: Final = {name.lower(): name for name in ("path", "versionAsOf", "timestampAsOf")}
STREAM_READING: Final = {
    name.lower(): name
    for name in (
        "path",
        "startingVersion",
        "startingTimestamp",
        "maxFilesPerTrigger",
        "maxBytesPerTrigger",
        "ignoreDeletes",
        "ignoreChanges",
        "skipChangeCommits",
        "failOnDataLoss",
        "excludeRegex",
    )
}
CHANGE_READING: Final = {
    name.lower(): name
    for name in (
        "path",
        "readChangeFeed",
        "readChangeData",
        "startingVersion",
        "startingTimestamp",
        "endingVersion",
        "endingTimestamp",
    )
}
_FEED: Final = {"readchangefeed": "readChangeFeed", "readchangedata": "readChangeData"}
FILES_OF_BATCH: Final = 1_000
"""Files of a micro-batch without maxFilesPerTrigger and maxBytesPerTrigger, as in delta-spark."""
_SOME_ROWS: Final = "say which rows an overwrite replaces in the option replaceWhere"
_CHANGES: Final = "it is an option of a read of changes: give it to spark.read with readChangeFeed"
_TRACKED: Final = (
    "leave it out; when a column was renamed or dropped, start the query with a new checkpoint"
)
LATER: Final[Mapping[str, tuple[str, str]]] = {
    name.lower(): (name, remedy)
    for remedy, names in {
        _SOME_ROWS: ("replaceOn", "replaceUsing"),
        _CHANGES: (
            "readChangeFeed",
            "readChangeData",
            "endingVersion",
            "endingTimestamp",
        ),
        _TRACKED: ("schemaTrackingLocation", "streamingSourceTrackingId"),
        "leave it out, and pack small files with Table.optimize": ("optimizeWrite", "autoCompact"),
        "leave it out": ("failOnDataLoss", "excludeRegex", "withEventTimeOrder"),
    }.items()
    for name in names
}
"""Delta's options that this release refuses: lower-case name -> Delta's name and a remedy."""

_SECURITY: Final = {
    "security.protocol": "protocol",
    "sasl.mechanism": "mechanism",
    "sasl.mechanisms": "mechanism",
    "sasl.username": "username",
    "sasl.password": "password",
    "ssl.ca.location": "ca_location",
    "ssl.certificate.location": "certificate_location",
    "ssl.key.location": "key_location",
    "ssl.key.password": "key_password",
    "sasl.password.location": "password_location",
    "ssl.key.password.location": "key_password_location",
    "sasl.oauthbearer.token.location": "oauth_token_location",
    "sasl.oauthbearer.token.endpoint.url": "oauth_token_url",
    "sasl.oauthbearer.client.id": "oauth_client_id",
    "sasl.oauthbearer.client.secret": "oauth_client_secret",
    "sasl.oauthbearer.client.secret.location": "oauth_client_secret_location",
    "sasl.oauthbearer.scope": "oauth_scope",
}
_BY_PATH: Final = (
    'name the table by its path: df.write.format("tidegate").save(path), Table.create(spark, path, '
    "schema), and for SQL CREATE TEMPORARY VIEW v USING tidegate OPTIONS (path ...)"
)
_CATALOG_KEYS: Final = frozenset({"provider", "owner"})
"""Table properties that Spark's catalog passes as options for CREATE TABLE … USING tidegate."""

_WHOLE_MAX: Final = 2**63 - 1
"""The largest version that the log can hold: Delta's versions are 64-bit."""
_DURATION: Final = re.compile(r"^(\d+(?:\.\d+)?)\s*(ms|s|m|)$")
_SIZE: Final = re.compile(r"^(\d{1,15})\s*([kmgt]?)(?:i?b)?$")
_UNITS: Final = ("", "k", "m", "g", "t")
_HASH: Final = re.compile(r"^[0-9a-f]{64}$")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0}


@dataclass(frozen=True)
class TableLocation:
    """A table's root, as a canonical URI, and the options of its store."""

    root: str
    storage: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class WriteOptions:
    """The checked options of a write.

    `overwrite_mode` is the given `partitionOverwriteMode`, None for the session's. `replace_where`
    is the condition of the rows that an overwrite replaces. `read_version` is the table version
    from which the rows were computed. `properties` are those of a table that the write makes.
    `traceparent` is the trace context of the writing program.
    """

    place: TableLocation
    kafka: KafkaSettings
    name: str | None = None
    partition_columns: tuple[str, ...] | None = None
    user_metadata: str | None = None
    txn_app_id: str | None = None
    txn_version: int | None = None
    isolation: Isolation = "default"
    outcome_timeout_s: float = TIMEOUT_S
    compression: Compression | None = None
    records_per_file_max: int | None = None
    constraints_enforced: tuple[str, ...] = ()
    overwrite_mode: OverwriteMode | None = None
    replace_where: str | None = None
    merge_schema: bool = False
    overwrite_schema: bool = False
    read_version: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    traceparent: str | None = None


@dataclass(frozen=True)
class ReadOptions:
    """The checked options of a read. Units: `timestamp_ms` in ms since the Unix epoch."""

    place: TableLocation
    version: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True)
class StreamReadOptions:
    """The checked options of `readStream`.

    A stream without a start begins with the table as it is. Units: `starting_timestamp_ms` in ms
    since the Unix epoch, `bytes_max` in bytes.
    """

    place: TableLocation
    starting_version: int | None = None
    starts_at_latest: bool = False
    starting_timestamp_ms: int | None = None
    files_max: int | None = None
    bytes_max: int | None = None
    ignore_deletes: bool = False
    ignore_changes: bool = False
    skip_change_commits: bool = False
    fail_on_data_loss: bool = True
    exclude_regex: re.Pattern[str] | None = None
    of_changes: bool = False

    @property
    def files_of_batch(self) -> int:
        """How many files a batch has at most, if only files count."""
        return self.files_max or FILES_OF_BATCH


@dataclass(frozen=True)
class ChangeReadOptions:
    """The checked options of `readChangeFeed`: the first and the last version, both included, each
    by number or by time. Units: `start_ms`, `end_ms` in ms since the Unix epoch.
    """

    place: TableLocation
    start: int = 0
    end: int | None = None
    start_ms: int | None = None
    end_ms: int | None = None


def for_writing(options: Mapping[str, str]) -> WriteOptions:
    """Return the options of a write.

    Raises: InvalidRequest, UnsupportedFeature or Misconfigured, naming the option.
    """
    properties = {name: value for name, value in options.items() if _is_property(name)}
    known_options = _canonical_names(options, WRITING, properties)
    _check_fixed(known_options, "dataChange", "true")
    write_options = WriteOptions(
        place=_place(options, known_options),
        kafka=kafka_settings(options),
        name=known_options.get("name"),
        partition_columns=_columns(known_options.get("partitionColumns")),
        user_metadata=known_options.get("userMetadata"),
        txn_app_id=known_options.get("txnAppId"),
        txn_version=_whole_number(known_options, "txnVersion", 0),
        isolation=_one_of(known_options, "isolationLevel", get_args(Isolation), "default"),
        outcome_timeout_s=_seconds(known_options),
        compression=_one_of(known_options, "compression", get_args(Compression), None),
        records_per_file_max=_whole_number(known_options, "maxRecordsPerFile", 1),
        constraints_enforced=_hashes(known_options.get("constraintsEnforced", "")),
        overwrite_mode=_one_of(
            known_options, "partitionOverwriteMode", get_args(OverwriteMode), None
        ),
        replace_where=known_options.get("replaceWhere"),
        merge_schema=_one_of(known_options, "mergeSchema", ("true", "false"), "false") == "true",
        overwrite_schema=_one_of(known_options, "overwriteSchema", ("true", "false"), "false")
        == "true",
        read_version=_whole_number(known_options, "readVersion", 0),
        properties=properties,
        traceparent=_traceparent(known_options),
    )
    _check_together(write_options)
    return write_options


def for_reading(options: Mapping[str, str]) -> ReadOptions:
    """Return the options of a read; a writer's options are ignored, so that both may share a set.

    Raises: InvalidRequest, UnsupportedFeature or Misconfigured, naming the option.
    """
    stray = [name for option in options if (name := STREAM_READING.get(option.lower()))]
    stray = [name for name in stray if name != "path"]
    if stray:
        _refuse(
            f"{stray[0]} is an option of spark.readStream, or of a read with readChangeFeed=true: "
            "leave it out of a batch read"
        )
    known_options = _canonical_names(options, READING, WRITING)
    version = _whole_number(known_options, "versionAsOf", 0)
    timestamp = known_options.get("timestampAsOf")
    timestamp_ms = None if timestamp is None else time_ms(timestamp, "timestampAsOf")
    if version is not None and timestamp_ms is not None:
        _refuse("give versionAsOf or timestampAsOf, not both")
    return ReadOptions(_place(options, known_options), version, timestamp_ms)


def for_stream_reading(options: Mapping[str, str]) -> StreamReadOptions:
    """Return the options of `readStream`; a writer's options are ignored.

    Raises: InvalidRequest, UnsupportedFeature or Misconfigured, naming the option.
    """
    for option in options:
        if option.lower() in READING and option.lower() != "path":
            _refuse(
                f"{READING[option.lower()]} is an option of a batch read: a stream starts at "
                "startingVersion or startingTimestamp"
            )
    of_changes = _is_of_changes(options)
    known_options = _canonical_names(options, {**STREAM_READING, **_FEED}, WRITING)
    if of_changes:
        _refuse_for_changes(known_options)
    starts_at_latest = known_options.get("startingVersion", "").lower() == "latest"
    version = None if starts_at_latest else _whole_number(known_options, "startingVersion", 0)
    timestamp = known_options.get("startingTimestamp")
    if timestamp is not None and "startingVersion" in known_options:
        _refuse("give startingVersion or startingTimestamp, not both")
    size = known_options.get("maxBytesPerTrigger")
    return StreamReadOptions(
        place=_place(options, known_options),
        starting_version=version,
        starts_at_latest=starts_at_latest,
        starting_timestamp_ms=None
        if timestamp is None
        else time_ms(timestamp, "startingTimestamp"),
        files_max=_whole_number(known_options, "maxFilesPerTrigger", 1),
        bytes_max=None if size is None else _bytes(size, "maxBytesPerTrigger"),
        ignore_deletes=_flag(known_options, "ignoreDeletes"),
        ignore_changes=_flag(known_options, "ignoreChanges"),
        skip_change_commits=_flag(known_options, "skipChangeCommits"),
        fail_on_data_loss=_flag(known_options, "failOnDataLoss", "true"),
        exclude_regex=_pattern(known_options, "excludeRegex"),
        of_changes=of_changes,
    )


def for_changes(options: Mapping[str, str]) -> ChangeReadOptions | None:
    """Return the options of a read of the change data feed; None if it is not asked for.

    Raises: InvalidRequest, UnsupportedFeature or Misconfigured, naming the option.
    """
    if not _is_of_changes(options):
        return None
    known_options = _canonical_names(options, CHANGE_READING, WRITING)
    start, end = _moment(known_options, "starting"), _moment(known_options, "ending")
    if start == (None, None):
        _refuse(
            "readChangeFeed needs startingVersion or startingTimestamp, the first version to read",
            "DELTA_NO_START_FOR_CDC_READ",
        )
    return ChangeReadOptions(
        _place(options, known_options), start[0] or 0, end[0], start_ms=start[1], end_ms=end[1]
    )


def for_changes_of_any_kind(options: Mapping[str, str]) -> StreamReadOptions | None:
    """Return the options of a read of changes whose columns are those of the newest version; None
    if it is no such read.

    Spark does not say whether the columns are for a batch or a stream: a stream may lack a start.
    Raises: as `for_stream_reading`.
    """
    option_names = {option.lower() for option in options}
    of_stream = not option_names.isdisjoint(STREAM_READING.keys() - CHANGE_READING.keys())
    has_start = not option_names.isdisjoint({"startingversion", "startingtimestamp"})
    starts_at_latest = next(
        (value for name, value in options.items() if name.lower() == "startingversion"), ""
    )
    if not _is_of_changes(options) or option_names & {"endingversion", "endingtimestamp"}:
        return None
    if of_stream or not has_start or starts_at_latest.lower() == "latest":
        return for_stream_reading(options)
    return None


def _is_of_changes(options: Mapping[str, str]) -> bool:
    value_by_name = {option.lower(): value for option, value in options.items()}
    return any(value_by_name.get(name, "").lower() == "true" for name in _FEED)


def _refuse_for_changes(known_options: Mapping[str, str]) -> None:
    """Refuse options that mean nothing to a stream of changes, which has the deletes, too."""
    for name in ("ignoreDeletes", "ignoreChanges", "skipChangeCommits"):
        if name in known_options:
            _refuse(
                f"option {name} is for a stream of rows, and this one reads changes "
                "(readChangeFeed), deletes and updates included: leave one of them out"
            )


def _moment(known_options: Mapping[str, str], end: str) -> tuple[int | None, int | None]:
    """Return the version or the time that an end of a range is given by."""
    version, text = (
        _whole_number(known_options, f"{end}Version", 0),
        known_options.get(f"{end}Timestamp"),
    )
    if version is not None and text is not None:
        _refuse(f"give {end}Version or {end}Timestamp, not both")
    return version, None if text is None else time_ms(text, f"{end}Timestamp")


def for_schema(options: Mapping[str, str]) -> ReadOptions:
    """Return the options of the read whose columns Spark asks for: of a batch or of a stream.

    Spark does not say which of them it is. Raises: as `for_reading`.
    """
    stream_only = STREAM_READING.keys() - {"path"}
    if stream_only.isdisjoint(option.lower() for option in options):
        return for_reading(options)
    return ReadOptions(for_stream_reading(options).place)


def app_txn_of(options: WriteOptions) -> AppTxn | None:
    """Return the app transaction of `txnAppId` and `txnVersion`, or None without them.

    Raises: InvalidRequest, when only one of them is given.
    """
    app_id, version = options.txn_app_id, options.txn_version
    if app_id is None and version is None:
        return None
    if app_id is None or version is None:
        _refuse(
            "txnAppId and txnVersion belong together: give both or neither",
            "DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS",
        )
    return AppTxn(app_id=app_id, version=version)


def kafka_settings(options: Mapping[str, str]) -> KafkaSettings:
    """Return the environment's Kafka settings; `kafka.*` and `topicPrefix` override them.

    Raises: Misconfigured.
    """
    base: dict[str, Any] = load(ServiceSettings, None, {}).kafka.model_dump()
    for option, value in options.items():
        name = option.lower().removeprefix("kafka.")
        if option.lower() == "topicprefix":
            base["topic_prefix"] = value
        elif name == option.lower():
            continue
        elif name == "bootstrap.servers":
            base["bootstrap_servers"] = value
        elif name in _SECURITY:
            base["security"] = {**base["security"], _SECURITY[name]: value}
        else:
            base["client"] = {**base["client"], name: value}
    try:
        return KafkaSettings.model_validate(base)
    except ValidationError as error:
        wrong = (f"{_dotted(problem['loc'])}: {problem['msg']}" for problem in error.errors())
        raise Misconfigured(f"the kafka options are wrong: {'; '.join(wrong)}") from error


def as_options(kafka: KafkaSettings, storage: Mapping[str, str]) -> dict[str, str]:
    """Return settings as the options `kafka.*`, `topicPrefix` and `storage.*` that give them.

    Law: kafka_settings(as_options(settings, {})) == settings, in an environment without others
    """
    named = {name: option for option, name in _SECURITY.items() if option != "sasl.mechanisms"}
    security: dict[str, str] = {}
    for name, value in kafka.security:
        if value is not None:
            text = value.get_secret_value() if isinstance(value, SecretStr) else value
            security[f"kafka.{named[name]}"] = text
    return {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "topicPrefix": kafka.topic_prefix,
        **security,
        **{f"kafka.{name}": value for name, value in kafka.client.items()},
        **{f"storage.{name}": value for name, value in storage.items()},
    }


def _canonical_names(
    options: Mapping[str, str], spelling: Mapping[str, str], passed: Mapping[str, str]
) -> dict[str, str]:
    known_options: dict[str, str] = {}
    if {option.lower() for option in options} >= _CATALOG_KEYS:
        _refuse(
            "Spark's catalog can't hold a table of format tidegate (CREATE TABLE, CTAS, "
            f"saveAsTable, toTable): {_BY_PATH}",
            "DELTA_UNSUPPORTED_FEATURES_FOR_WRITE",
        )
    for option, value in options.items():
        name = option.lower()
        if name.startswith(("kafka.", "storage.")):
            continue
        if name in spelling:
            known_options[spelling[name]] = value
        elif option in passed or name in passed or (passed is WRITING and _is_property(name)):
            continue
        elif name in LATER:
            unknown, remedy = LATER[name]
            raise UnsupportedFeature(
                f"this release has no option {unknown}: {remedy}",
                feature=unknown,
            )
        else:
            _refuse(f"unknown option {option!r}; {_nearest(name, spelling)}")
    return known_options


def _is_property(option: str) -> bool:
    return option.lower().startswith("delta.")


def _nearest(name: str, spelling: Mapping[str, str]) -> str:
    near = difflib.get_close_matches(name, spelling, 1, 0.5)
    return (
        f"did you mean {spelling[near[0]]!r}?" if near else f"known: {', '.join(spelling.values())}"
    )


def _place(options: Mapping[str, str], known_options: Mapping[str, str]) -> TableLocation:
    if "path" not in known_options:
        _refuse(
            "there is no path: give the table's root to load(...), save(...) or start(...); Spark "
            "does not pass on the path of a table in its catalog (INSERT INTO, insertInto, "
            f"saveAsTable, toTable, CTAS): {_BY_PATH}"
        )
    prefix = "storage."
    storage = {
        option[len(prefix) :]: value
        for option, value in options.items()
        if option.lower().startswith(prefix)
    }
    return TableLocation(canonical_root(known_options["path"]), storage)


def _columns(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    try:
        # A partition column lies in no struct: a dot is part of its name.
        return tuple(".".join(path) for path in column_list(text))
    except ValueError:
        _refuse(
            f"option partitionColumns={text[:80]}: expected names between commas, those with "
            "spaces, commas or backticks in backticks"
        )


def _hashes(text: str) -> tuple[str, ...]:
    hashes = tuple(part.strip() for part in text.split(",") if part.strip())
    if not all(map(_HASH.match, hashes)):
        _refuse(f"option constraintsEnforced={text[:80]}: expected SHA-256 in lower hexadecimal")
    return hashes


def _check_fixed(known_options: Mapping[str, str], name: str, only: str) -> None:
    value = known_options.get(name, only)
    if value.lower() != only:
        raise UnsupportedFeature(
            f"this release has no {name}={value}, only {name}={only}",
            feature=name,
        )


def _check_together(options: WriteOptions) -> None:
    """Refuse options of which each says that other rows, or other columns, are replaced."""
    if options.replace_where is not None and options.overwrite_mode == "dynamic":
        _refuse(
            "replaceWhere and partitionOverwriteMode=dynamic both say which rows are replaced: "
            "give one of them",
            "DELTA_REPLACE_WHERE_WITH_DYNAMIC_PARTITION_OVERWRITE",
        )
    if options.overwrite_schema and options.overwrite_mode == "dynamic":
        _refuse(
            "overwriteSchema replaces the columns of every row, and partitionOverwriteMode=dynamic "
            "keeps some rows: leave one out, or use mergeSchema",
            "DELTA_OVERWRITE_SCHEMA_WITH_DYNAMIC_PARTITION_OVERWRITE",
        )
    if options.overwrite_schema and options.replace_where is not None:
        _refuse(
            "overwriteSchema replaces the columns of every row, and replaceWhere keeps some rows: "
            "leave one out, or use mergeSchema"
        )


def _one_of(
    known_options: Mapping[str, str], name: str, allowed: Iterable[Any], default: Any
) -> Any:
    value = known_options.get(name)
    if value is None:
        return default
    spelling = {value_allowed.lower(): value_allowed for value_allowed in allowed}
    if value.lower() not in spelling:
        _refuse(f"option {name}={value}: expected one of {', '.join(spelling.values())}")
    return spelling[value.lower()]


def _whole_number(known_options: Mapping[str, str], name: str, least: int) -> int | None:
    text = known_options.get(name)
    if text is None:
        return None
    if not text.strip().isdecimal() or not least <= int(text) <= _WHOLE_MAX:
        _refuse(f"option {name}={text}: expected a whole number from {least} to {_WHOLE_MAX}")
    return int(text)


def _flag(known_options: Mapping[str, str], name: str, default: str = "false") -> bool:
    return bool(_one_of(known_options, name, ("true", "false"), default) == "true")


def _pattern(known_options: Mapping[str, str], name: str) -> re.Pattern[str] | None:
    text = known_options.get(name)
    try:
        return None if text is None else re.compile(text)
    except re.error as error:
        _refuse(f"option {name}={text}: expected a regular expression ({error})")


def _bytes(text: str, option: str) -> int:
    """Return a size in Spark's form: bytes, or a number with the unit k, m, g or t."""
    match = _SIZE.match(text.strip().lower())
    if match is None or int(match[1]) == 0:
        _refuse(f"option {option}={text}: expected a size such as 1048576, 512k, 64m or 1g")
    return int(match[1]) * int(1024 ** _UNITS.index(match[2]))


def _traceparent(known_options: Mapping[str, str]) -> str | None:
    text = known_options.get("traceparent")
    if text is not None and not is_traceparent(text):
        _refuse(
            f"option traceparent={text[:80]}: expected a W3C trace context, such as "
            f"{compose_traceparent(0xABC, 0xDEF, 1)}"
        )
    return text


def _seconds(known_options: Mapping[str, str]) -> float:
    text = known_options.get("outcomeTimeout")
    if text is None:
        return TIMEOUT_S
    match = _DURATION.match(text.strip().lower())
    if match is None:
        _refuse(f"option outcomeTimeout={text}: expected a duration such as 90s, 2m or 1500ms")
    return float(match[1]) * _SECONDS[match[2]]


def time_ms(text: str, option: str) -> int:
    """Return the time that an option gives, in ms since the Unix epoch.

    Raises: InvalidRequest, naming the option.
    """
    try:
        timestamp: datetime = parse(text, TIMESTAMP)
        return round(timestamp.timestamp() * 1000)
    except (ValueError, AttributeError):
        _refuse(
            f"option {option}={text}: expected a timestamp such as 2013-01-01 00:00:00 "
            "(UTC unless it names a zone)",
            "DELTA_TIMESTAMP_INVALID",
        )


def _dotted(parts: Iterable[object]) -> str:
    return ".".join(str(part) for part in parts)


def _refuse(message: str, error_class: str = "DELTA_ILLEGAL_OPTION") -> NoReturn:
    raise InvalidRequest(message, error_class=error_class)

"""The settings of an ingest job: the section `ingest`, with a route for each table that it fills.

A route is also what `tidegate ingest TOPICS TABLE` gives by its options, of the same names.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from tidegate_delta.errors import Misconfigured
from tidegate_runtime.service.settings import Section, ServiceSettings

Mode = Literal["append", "upsert"]
Format = Literal["json", "avro", "protobuf"]
Envelope = Literal["none", "debezium", "debezium_flat"]
Evolution = Literal["add", "widen", "fail", "ignore"]
OnRestore = Literal["stop", "skip", "again"]
OnDataLoss = Literal["stop", "skip"]
RecordPart = Literal["key", "headers", "timestamp", "topic", "partition", "offset"]

Name = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]

RECORD_PARTS: Final[Mapping[str, str]] = {
    "key": "BINARY",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
    "timestamp": "TIMESTAMP",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
}
"""The parts of a record that may become columns, with their types in Spark's SQL."""

OWN_PREFIX: Final = "__ingest_"
"""What the names of this job's own columns begin with: no column of a table may."""

DELETED_FLAG: Final = "__deleted"
"""The field by which Debezium's flat rows say that they delete one."""

FLAT_FIELDS: Final = (DELETED_FLAG, "__op", "__table", "__source_ts_ms", "__ts_ms", "__lsn")
"""The fields that Debezium adds to flat rows, and that are no columns."""

_OFFSETS: Final = re.compile(r"(?:[\w.-]+:)?\d+:\d+(?:,(?:[\w.-]+:)?\d+:\d+)*")
_SCHEMA_FILE: Final = "@"
_APPLICATION: Final = "kafka-delta-ingest:"


@dataclass(frozen=True)
class Start:
    """Where partitions begin that the table has never seen. Units: `timestamp_ms` since 1970.

    `offsets` are by topic and partition; the topic is empty where it was not named. `application`
    is that of a kafka-delta-ingest which filled the table before.
    """

    at: Literal["earliest", "latest", "timestamp", "offsets", "application"]
    timestamp_ms: int = 0
    application: str = ""
    offsets: Mapping[tuple[str, int], int] | None = None


def start_of(text: str) -> Start:
    """Return what `start` says. Raises: ValueError, with the forms that it may have."""
    if text in ("earliest", "latest"):
        return Start("earliest" if text == "earliest" else "latest")
    if text.startswith(_APPLICATION) and text != _APPLICATION:
        return Start("application", application=text.removeprefix(_APPLICATION))
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None and _OFFSETS.fullmatch(text):
        offsets = {}
        for part in text.split(","):
            *topic, partition, offset = part.split(":")
            offsets["".join(topic), int(partition)] = int(offset)
        return Start("offsets", offsets=offsets)
    if at is None or at.tzinfo is None:
        raise ValueError(
            f"start {text!r}: give earliest, latest, a time with its zone such as "
            "2026-01-31T12:00:00Z, offsets as PARTITION:OFFSET,PARTITION:OFFSET, or "
            "kafka-delta-ingest:APP_ID to go on behind one"
        )
    return Start("timestamp", timestamp_ms=round(at.timestamp() * 1000))


class Route(Section):
    """Which topics go into which table, and how. Units: `_s` in seconds, `_bytes` in bytes."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    topics: tuple[Name, ...] = ()
    topic_pattern: Name | None = None
    """A regular expression for the names of topics, instead of `topics`."""
    table: Name
    """The table's root, a path or URI, or the name that it is registered by."""
    format: Format = "json"
    """What values are. With `avro` and `protobuf` each begins with the id of its schema in
    `registry`, as Confluent's serializers write it; one of `json` may.
    """
    registry: Name | None = None
    """The URL of the schema registry of Avro and Protobuf values; with `json` columns get their
    types from its JSON Schemas.
    """
    mode: Mode = "append"
    """`append` adds a row for each record; `upsert` keeps one row for each `key`."""
    key: tuple[Name, ...] = ()
    """The columns by which `upsert` finds a record's row."""
    order_by: Name | None = None
    """The column by which the last record of a key is chosen, and late ones are left out; without
    it the order is that of offsets.
    """
    delete_column: Name | None = None
    """A column of records; where it is true the row with the record's key is deleted."""
    envelope: Envelope = "none"
    """`debezium` for values with before, after and op; `debezium_flat` for rows with __deleted."""
    value_schema: Name | None = None
    """The columns of values as DDL, such as `id BIGINT, at TIMESTAMP`, or `@` and a file of it;
    without it those of the table, or of a sample.
    """
    select: Name | None = None
    """What of a value becomes the row: a list of SQL expressions, such as `id, upper(name) name`.
    """
    where: Name | None = None
    """A SQL condition on a value's columns, or on `headers` and the other parts of a record."""
    columns: tuple[Name, ...] = ()
    """Parts of a record that become columns: `key`, `headers`, `timestamp`, `topic`, `partition`,
    `offset`, each as `part=column`; without a name the column is `kafka_part`.
    """
    partition_by: tuple[Name, ...] = ()
    """The partition columns of a table that the job makes."""
    cluster_by: tuple[Name, ...] = ()
    """The clustering columns of a table that the job makes."""
    properties: dict[str, str] = Field(default_factory=dict)
    """The properties of a table that the job makes."""
    name: Name | None = None
    """The name under which a table is registered that the job makes."""
    start: Name = "earliest"
    """Where partitions begin that the table has never seen: earliest, latest, a time, offsets, or
    `kafka-delta-ingest:APP_ID` to go on behind one that filled the table before.
    """
    max_latency_s: float = Field(default=5.0, ge=0, le=3_600)
    """How often a batch is committed, if there are records."""
    batch_records_max: int = Field(default=500_000, ge=1)
    """The most records of a batch."""
    target_file_bytes: int = Field(default=128 * 1024 * 1024, ge=1024 * 1024)
    """A batch with more bytes of values than this is written as several files."""
    schema_evolution: Evolution = "add"
    """What becomes of fields that the table has no column for, or that a column lacks inside: `add`
    adds them to the table, `fail` sends the record to the dead letters, `ignore` leaves the fields
    out. `widen` adds, too, and gives a column the wider type that a number needs, where Delta
    widens without writing files.
    """
    dead_letters_max: int = Field(default=10_000, ge=0)
    """The job stops when a run has more dead letters than this."""
    dead_letters_share_max: float = Field(default=0.5, ge=0, le=1)
    """The job stops when more than this share of a batch of 100 records or more are dead letters.
    """
    after_restore: OnRestore = "stop"
    """What to do where the table is before what this job has committed since it was started: copy
    `again` from the table's position, `skip` to the job's, or `stop`.
    """
    after_data_loss: OnDataLoss = "stop"
    """What to do where the topic has lost records that the table lacks: `skip` them, or `stop`."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        faults = [*self._source_faults(), *self._format_faults()]
        faults += [*self._key_faults(), *self._column_faults()]
        if faults:
            raise ValueError("; ".join(faults))
        return self

    @property
    def begins(self) -> Start:
        """Where partitions begin that the table has never seen."""
        return start_of(self.start)

    @property
    def record_columns(self) -> Mapping[str, str]:
        """The name of the column for each part of a record that becomes one."""
        split = (text.partition("=") for text in self.columns)
        return {part.strip(): name.strip() or f"kafka_{part.strip()}" for part, _, name in split}

    @property
    def delete_name(self) -> str | None:
        """The field of values whose truth deletes a row, or None."""
        return DELETED_FLAG if self.envelope == "debezium_flat" else self.delete_column

    @property
    def fields_of_envelope(self) -> tuple[str, ...]:
        """The names of fields that the envelope adds to a flat row."""
        return FLAT_FIELDS if self.envelope == "debezium_flat" else ()

    def takes(self, topic: str) -> bool:
        """Return whether a topic is one of the route's."""
        if self.topic_pattern is not None:
            return re.fullmatch(self.topic_pattern, topic) is not None
        return topic in self.topics

    def schema_text(self) -> str | None:
        """Return the DDL of values, or None. Raises: Misconfigured, for an unreadable file."""
        if self.value_schema is None or not self.value_schema.startswith(_SCHEMA_FILE):
            return self.value_schema
        path = Path(self.value_schema.removeprefix(_SCHEMA_FILE))
        try:
            return path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise Misconfigured(
                f"value_schema names {path}, which cannot be read ({error}): give the path of a "
                "file that holds DDL, such as `id BIGINT, at TIMESTAMP`"
            ) from error

    def _source_faults(self) -> Iterator[str]:
        if bool(self.topics) == (self.topic_pattern is not None):
            yield "give topics or topic_pattern, one of them"
        if len(set(self.topics)) < len(self.topics):
            yield "topics names a topic twice: leave one out"
        if self.topic_pattern is not None:
            try:
                re.compile(self.topic_pattern)
            except re.error as error:
                yield f"topic_pattern {self.topic_pattern!r} is no regular expression ({error})"
        try:
            start = self.begins
        except ValueError as error:
            yield str(error)
            return
        named = {topic for topic, _ in start.offsets or {}}
        if start.at == "application" and len(self.topics) != 1:
            yield "start: kafka-delta-ingest reads one topic: give topics that one alone"
        if "" in named and (len(self.topics) != 1):
            yield "start: with several topics name each: TOPIC:PARTITION:OFFSET"
        try:
            strangers = sorted(topic for topic in named if topic and not self.takes(topic))
        except re.error:
            strangers = []
        if strangers:
            yield f"start names {strangers[0]!r}, which is not among the topics"

    def _format_faults(self) -> Iterator[str]:
        if self.format != "json" and self.registry is None:
            yield (
                f"format {self.format} needs registry: the URL of the schema registry with its "
                "schemas"
            )

    def _key_faults(self) -> Iterator[str]:
        if self.mode == "upsert" and not self.key:
            yield "mode upsert needs key: the columns by which a record's row is found"
        upserting = {
            "key": self.key,
            "order_by": self.order_by,
            "delete_column": self.delete_column,
        }
        for name, value in upserting.items():
            if self.mode == "append" and value:
                yield f"{name} is for mode upsert: set mode to upsert, or leave {name} out"
        if self.order_by is not None and self.order_by in self.key:
            yield "order_by is one of the key's columns, which are all equal: name another"
        if self.delete_column is not None and self.delete_column in self.key:
            yield "delete_column is one of the key's columns: name another"
        if self.mode == "append" and self.envelope != "none":
            yield f"envelope {self.envelope} has updates and deletes: set mode to upsert, and key"
        if self.envelope != "none" and self.delete_column is not None:
            yield f"delete_column: envelope {self.envelope} says by itself what is deleted"

    def _column_faults(self) -> Iterator[str]:
        for part in self.record_columns:
            if part not in RECORD_PARTS:
                yield f"columns has {part!r}: the parts of a record are {', '.join(RECORD_PARTS)}"
        names = list(self.record_columns.values())
        if len(names) < len(self.columns) or len({name.lower() for name in names}) < len(names):
            yield "columns gives a part or a column twice: leave one out"
        if self.select is not None and self.value_schema is None:
            yield "select needs value_schema: the columns of values that it is made of"
        if self.partition_by and self.cluster_by:
            yield "give partition_by or cluster_by: a clustered table has no partitions"


class IngestSection(Section):
    """The routes of a job by their names, and what they share."""

    routes: dict[str, Route] = Field(default_factory=dict)
    registry_properties: dict[str, str] = Field(default_factory=dict)
    """Further settings of confluent-kafka's client for schema registries, such as
    `basic.auth.user.info` and `ssl.ca.location`.
    """
    spark: dict[str, str] = Field(default_factory=dict)
    """Spark's settings, such as `spark.master`, which is `local[*]` unless something sets it."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        faults: list[str] = []
        seen: dict[tuple[str, str], str] = {}
        for name, route in self.routes.items():
            for topic in route.topics or (f"/{route.topic_pattern}/",):
                other = seen.setdefault((topic, route.table.rstrip("/")), name)
                if other != name:
                    faults.append(
                        f"routes {other} and {name} both copy {topic} into {route.table}, whose "
                        "positions they share: make one of them, with a `where`"
                    )
        if faults:
            raise ValueError("; ".join(faults))
        return self


class IngestSettings(ServiceSettings):
    """The settings of an ingest job."""

    ingest: IngestSection = IngestSection()

"""Follows a table's change topic, for subscribers: each change once, from where the last run ended.

Changes of one key come in order, those of one topic partition in the order of versions. Save
`ChangeStream.position` together with what you made of the changes, and each counts once.
"""

from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from types import TracebackType
from typing import Any, Final, Literal, NamedTuple, Self

import orjson
import pyarrow as pa

from tidegate_delta.errors import InvalidRequest, MalformedRecord
from tidegate_messages import codec
from tidegate_messages.proposal import ClaimCheck
from tidegate_messages.schema_announcement import (
    CLAIM_CHECK,
    CLAIMS_FOLDER,
    CONTENT,
    END,
    GAP,
    MARKER,
    SCHEMA,
    SchemaChange,
    StreamGap,
)
from tidegate_messages.topics import Topics
from tidegate_runtime.client.change_stream_rows import carried_row, typed_iso_value
from tidegate_runtime.kafka.client_protocols import Bus, Offset, Reader, Record, TopicPartition
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.storage.open_store import open_store
from tidegate_runtime.table_registry import find_table, read_registry

WAIT_S: Final = 1.0
"""How long one read waits for changes."""

_ENVELOPE: Final = frozenset({"op", "before", "after", "source"})

Row = Mapping[str, Any]


class StreamPlace(NamedTuple):
    """The place of a change in the stream: a snapshot's rows come before its next version's, those
    of an incremental one between two versions. `part` says which: 0, 1 for changes, 2.
    """

    version: int
    part: int
    number: int


@dataclass(frozen=True)
class Change:
    """One changed row, as docs/changes.md describes the record: `op` is `c`, `u`, `d`, or `r` for
    a row that was there when the stream began. `value` is the whole envelope.
    """

    op: Literal["c", "u", "d", "r"]
    key: Row | None
    before: Row | None
    after: Row | None
    version: int
    index: int
    value: Row

    @property
    def place(self) -> StreamPlace:
        """Its place among the changes of its topic partition."""
        if self.op != "r":
            return StreamPlace(self.version, 1, self.index)
        is_incremental = self.value["source"].get("snapshot") == "incremental"
        return StreamPlace(self.version, 2 if is_incremental else 0, self.index)


@dataclass(frozen=True)
class NewSchema:
    """The table's schema changes here: rows that came before follow it by `carried`.

    It comes once, after the changes before it in every topic partition. `op` is `m`, Debezium's
    letter for a message in the stream. `change` is the whole announcement.
    """

    change: SchemaChange
    op: Literal["m"] = "m"

    @property
    def version(self) -> int:
        """The version whose schema it is."""
        return self.change.version

    def carried(self, row: Row) -> Row:
        """Return a row of before as one of the new schema."""
        return carried_row(row, self.change.columns, self.change.form)


@dataclass(frozen=True)
class Gap:
    """Changes of some versions are not in the stream: a copy lacks them from here on.

    An operator passed over them, or the publisher did by `on_gap=marker`. `op` is `m`, as for a
    new schema.
    """

    first: int
    last: int
    reason: str
    op: Literal["m"] = "m"

    @property
    def version(self) -> int:
        """The last version that is missing, or not whole."""
        return self.last


class WholeVersion(NamedTuple):
    """All that a version changes, in the order of each partition, and the position behind it."""

    version: int
    changes: tuple[Change | NewSchema | Gap, ...]
    position: Mapping[str, Any]


@dataclass
class _Progress:
    """Where a topic partition is read on, and the last change that was returned.

    `schema` is the version of the last change of the schema that was returned; `waits` is one that
    is next here, and must come in the other partitions first. After it `following` is next. `ended`
    is the last version that is whole here, if the stream says so; `ends` are the positions behind
    versions that are whole here and not yet everywhere.
    """

    offset: Offset
    last: StreamPlace | None = None
    schema: int = -1
    waits: SchemaChange | None = None
    following: Offset | None = None
    ended: int = -1
    ends: dict[int, Row] = field(default_factory=dict)

    def end(self, version: int) -> None:
        """Note that a version is whole here."""
        self.ended = max(self.ended, version)
        self.ends[version] = self.position

    @property
    def position(self) -> Row:
        """Where to go on here, as JSON values."""
        return {
            "offset": int(self.offset),
            "last": self.last and list(self.last),
            "schema": self.schema,
            "ended": self.ended,
        }

    def behind(self, version: int) -> Row | None:
        """Return where to go on behind a version, and forget the ends before it."""
        newest = max((ended for ended in self.ends if ended <= version), default=-1)
        self.ends = {ended: place for ended, place in self.ends.items() if ended >= newest}
        return self.ends.get(newest)

    def wait(self, change: SchemaChange, following: int) -> None:
        """Read nothing more until a change of the schema is reached everywhere."""
        self.waits, self.following = change, Offset(following)


class ChangeStream:
    """The changes of one table. `position` is that of a former run, or None to begin with the
    oldest change on the topic.
    """

    def __init__(
        self,
        bus: Bus,
        topic: str,
        position: Mapping[str, Any] | None = None,
        store: LogStore | None = None,
    ) -> None:
        """`store` is the table's, where values are that were too large for the topic."""
        self._bus = bus
        self._store = store
        self._topic = topic
        self._reader: Reader = bus.reader()
        self._id = bus.identity([topic]).topic_ids[topic]
        self._held: list[Change | NewSchema | Gap] = []
        self._progress = self._begun(position or {"topic": topic, "id": self._id, "partitions": {}})

    @classmethod
    def of_table(
        cls,
        bus: Bus,
        topics: Topics,
        table: str,
        position: Mapping[str, Any] | None = None,
        *,
        topic: str | None = None,
        storage: Mapping[str, str] | None = None,
    ) -> Self:
        """Return the stream of a registered table, by its name or root.

        `topic` is its topic, if the publisher gives it a name of its own. `storage` are the options
        of the table's store, where values are that were too large for the topic.

        Raises: InvalidRequest (`TableNotRegistered`); Misconfigured, for a table that no publisher
        publishes; Unavailable.
        """
        record = find_table(read_registry(bus, topics), table)
        if record is None:
            raise InvalidRequest(
                f"no table {table!r} is registered: `tidegate changes list` shows those that are",
                error_class="TableNotRegistered",
            )
        store = open_store(record.table_root, storage or {})
        return cls(bus, topic or topics.changes(record.name), position, store)

    def __enter__(self) -> Self:
        """Return the stream."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connection."""
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._reader.close()

    @property
    def position(self) -> dict[str, Any]:
        """Where to go on after the changes that were returned: JSON, to be saved with the result.

        Units: offsets of the topic; `last` is version, whether a change of it, and index; `schema`
        is a version.
        """
        return self._position_of({at: progress.position for at, progress in self._progress.items()})

    def _position_of(self, progress: Mapping[TopicPartition, Row | None]) -> dict[str, Any]:
        """Return a position; a partition of which nothing was read is left out."""
        positions = {
            str(topic_partition.partition): position
            for topic_partition, position in progress.items()
            if position is not None
        }
        return {"topic": self._topic, "id": self._id, "partitions": positions}

    @property
    def ended(self) -> int:
        """The last version of which all changes were returned, by the stream's END markers; -1
        before the first one.
        """
        return min((progress.ended for progress in self._progress.values()), default=-1)

    def versions(self, quiet_s: float | None = None) -> Iterator[WholeVersion]:
        """Yield the changes of whole versions, those of a snapshot as one; otherwise as `changes`.

        The publisher must have `provide_transaction_metadata`. Versions without changes are left
        out. Save `WholeVersion.position`: the stream's own is further on.
        Raises: as `changes`.
        """
        for change in self._changes(quiet_s, None, with_ends=True):
            if change is not None:
                self._held.append(change)
                continue
            whole = [change for change in self._held if change.version <= self.ended]
            self._held = [change for change in self._held if change.version > self.ended]
            for version in sorted({change.version for change in whole}):
                behind = {
                    topic_partition: progress.behind(version)
                    for topic_partition, progress in self._progress.items()
                }
                of_version = tuple(change for change in whole if change.version == version)
                yield WholeVersion(version, of_version, self._position_of(behind))

    def changes(
        self, quiet_s: float | None = None, until: int | None = None
    ) -> Iterator[Change | NewSchema | Gap]:
        """Yield changes as they come; end after so many seconds without one, or never, or with
        `until` once that version is whole in every topic partition: then the publisher must have
        `provide_transaction_metadata`, and changes of later versions may have come.

        A change that is on the topic twice, because the publisher lost its position, comes once.
        Raises: InvalidRequest (`ChangesGone`), if changes were deleted before they were read;
        ValueError, for a record that is no change; Unavailable.
        """
        for change in self._changes(quiet_s, until, with_ends=False):
            if change is not None:
                yield change

    def _changes(
        self, quiet_s: float | None, until: int | None, *, with_ends: bool
    ) -> Iterator[Change | NewSchema | Gap | None]:
        """Yield changes, and None where a version may have become whole."""
        quiet, ended = 0.0, self.ended
        while (quiet_s is None or quiet < quiet_s) and (until is None or self.ended < until):
            wait_s = WAIT_S if quiet_s is None else min(WAIT_S, quiet_s - quiet)
            starts = {
                topic_partition: progress.offset
                for topic_partition, progress in self._progress.items()
                if progress.waits is None
            }
            records = self._reader.read_several(starts, wait_s)
            quiet = 0.0 if records else quiet + wait_s
            for record in records:
                change = self._change_in(record)
                if change is not None:
                    yield change
            while (schema := self._reached_everywhere()) is not None:
                yield NewSchema(schema)
            if with_ends and self.ended > ended:
                ended = self.ended
                yield None

    def _change_in(self, record: Record) -> Change | Gap | None:
        """Return the change in a record; None for a tombstone, for one that came before, and for
        one behind a change of the schema that waits.
        """
        progress = self._progress[record.at]
        if progress.waits is not None:
            return None
        schema = schema_change_of(record)
        if schema is not None and (schema.snapshot or schema.version > progress.schema):
            progress.wait(schema, record.offset + 1)
            return None
        change = None
        if schema is None and record.value is not None:
            change = change_of(replace(record, value=self._claimed(record)))
        missed = None if change is None else self._missed(change.version)
        if missed is not None:
            progress.wait(missed, record.offset)
            return None
        progress.offset = Offset(record.offset + 1)
        if change is None and (ended := _ended(record)) is not None:
            progress.end(ended)
            return None
        if change is None and record.at.partition == 0:
            return gap_of(record)
        if change is None or (progress.last is not None and change.place <= progress.last):
            return None
        progress.last = change.place
        return change

    def _claimed(self, record: Record) -> bytes | None:
        """Return a record's value, from its file if it was too large.

        Raises: InvalidRequest (`ClaimNotFound`); Unavailable.
        """
        header = dict(record.headers).get(CLAIM_CHECK)
        if header is None or self._store is None:
            return record.value
        claim = ClaimCheck.model_validate_json(header)
        is_ours = claim.path == f"{CLAIMS_FOLDER}/{claim.sha256}.json"
        content = self._store.read(claim.path) if is_ours else None
        if content is None or sha256(content).hexdigest() != claim.sha256:
            raise InvalidRequest(
                f"{record.at}, offset {record.offset}: its value is in {claim.path} of "
                f"{self._store.root}, which is gone or another one: begin anew with all rows "
                "(`tidegate changes snapshot`)",
                error_class="ClaimNotFound",
            )
        return content

    def _missed(self, version: int) -> SchemaChange | None:
        """Return the change of the schema before a version that other partitions have reached.

        Its marker here was deleted or compacted away, or the partition is younger.
        """
        waiting = (
            progress.waits for progress in self._progress.values() if progress.waits is not None
        )
        return min(
            (change for change in waiting if change.version < version),
            key=lambda change: change.version,
            default=None,
        )

    def _reached_everywhere(self) -> SchemaChange | None:
        """Return the change of the schema that is next in every partition, and go past it."""
        waiting = [
            progress.waits for progress in self._progress.values() if progress.waits is not None
        ]
        if not waiting:
            return None
        next_one = min(waiting, key=lambda change: change.version)
        behind = [
            topic_partition
            for topic_partition, progress in self._progress.items()
            if progress.waits is None
        ]
        if any(first < end for first, end in map(self._reader.bounds, behind)):
            return None
        for progress in self._progress.values():
            progress.schema = next_one.version
            if next_one.snapshot:
                progress.last = None
            if progress.waits is not None and progress.waits.version == next_one.version:
                assert progress.following is not None, "it waits"
                progress.offset, progress.waits = progress.following, None
        return next_one

    def _begun(self, position: Mapping[str, Any]) -> dict[TopicPartition, _Progress]:
        if position["topic"] != self._topic:
            raise InvalidRequest(
                f"position: it is of the topic {position['topic']!r}, not of {self._topic!r}: "
                "begin without one",
                error_class="WrongPosition",
            )
        progress = {}
        for number in range(self._bus.partitions(self._topic)):
            topic_partition = TopicPartition(self._topic, number)
            first, end = self._reader.bounds(topic_partition)
            saved = position["partitions"].get(str(number))
            last = StreamPlace(*saved["last"]) if saved and saved["last"] else None
            offset = Offset(saved["offset"]) if saved else first
            if position["id"] != self._id or offset > end:
                # The topic was recreated: what was read before is passed over by its place.
                offset = first
            elif saved and offset < first:
                raise InvalidRequest(
                    f"the changes of {topic_partition} from offset {offset} to {first} were "
                    "deleted before they were read: begin without a position, with an empty copy, "
                    "and give the topic a longer retention",
                    error_class="ChangesGone",
                )
            progress[topic_partition] = _Progress(
                offset,
                last,
                saved.get("schema", -1) if saved else -1,
                ended=saved.get("ended", -1) if saved else -1,
            )
        return progress


def change_of(record: Record) -> Change:
    """Return the change in a record of the change topic. Raises: ValueError, for another record."""
    try:
        value = payload_of(record.value)
    except orjson.JSONDecodeError:
        value = None
    # A flat row may have a column `source`.
    if not isinstance(value, dict) or not value.keys() >= _ENVELOPE:
        raise ValueError(
            f"{record.at}, offset {record.offset}: its value is not Debezium's envelope; follow a "
            "stream whose settings are envelope=debezium and value_format=json or json_schema, or "
            "read these rows with a plain consumer"
        )
    version, index = orjson.loads(value["source"]["sequence"])
    return Change(
        op=value["op"],
        key=None if record.key is None else payload_of(record.key),
        before=value["before"],
        after=value["after"],
        version=int(version),
        index=int(index),
        value=value,
    )


def schema_change_of(record: Record) -> SchemaChange | None:
    """Return the change of the schema that a marker announces; None for another record.

    Raises: MalformedRecord.
    """
    headers = dict(record.headers)
    if headers.get(MARKER) != SCHEMA.encode():
        return None
    return codec.decode(SchemaChange, b64decode(headers.get(CONTENT, b"")))


def _ended(record: Record) -> int | None:
    """Return the version that is whole, by an END marker; None for another record."""
    headers = dict(record.headers)
    if headers.get(MARKER) != END.encode():
        return None
    return int(headers["delta_version"])


def gap_of(record: Record) -> Gap | None:
    """Return the gap that a marker announces; None for another record. Raises: MalformedRecord."""
    headers = dict(record.headers)
    if headers.get(MARKER) != GAP.encode():
        return None
    try:
        announced = StreamGap.model_validate_json(b64decode(headers.get(GAP, b"")))
    except ValueError as error:
        raise MalformedRecord(f"{record.at}, offset {record.offset}: {error}") from error
    return Gap(announced.first, announced.last, announced.reason)


class TableCopy:
    """A table made of its changes: the newest row of each key.

    `gaps` are the versions that it lacks, until all rows come anew.
    """

    def __init__(self) -> None:
        self._rows: dict[bytes, Row] = {}
        self.gaps: list[Gap] = []

    def apply(self, change: Change | NewSchema | Gap) -> None:
        """Take a change over. Raises: InvalidRequest, for a table without key columns."""
        if isinstance(change, Gap):
            self.gaps.append(change)
            return
        if isinstance(change, NewSchema):
            self._follow(change)
            return
        if change.key is None:
            raise InvalidRequest(
                "a stream without keys tells no row from another: give the table key columns "
                "(`tidegate.cdc.keyColumns`) to keep a copy of it",
                error_class="KeyColumnsMissing",
            )
        key = _key_of(change.key)
        if change.after is None:
            self._rows.pop(key, None)
        else:
            self._rows[key] = change.after

    def _follow(self, schema: NewSchema) -> None:
        """Carry all rows into the new schema, under its key columns."""
        if schema.change.snapshot:
            self.gaps.clear()
        rows = [] if schema.change.snapshot else [schema.carried(row) for row in self.rows]
        keys = schema.change.key_columns or ()
        self._rows = {_key_of({name: row[name] for name in keys}): row for row in rows}

    @classmethod
    def of(cls, saved: Sequence[tuple[str, Row]]) -> Self:
        """Return the copy of a former run, from what `saved` gave."""
        copy = cls()
        copy._rows = {key.encode(): row for key, row in saved}
        return copy

    @property
    def saved(self) -> list[tuple[str, Row]]:
        """The keys, as JSON texts, and the rows: to be saved beside the position."""
        return [(key.decode(), row) for key, row in self._rows.items()]

    @property
    def rows(self) -> list[Row]:
        """The rows, in the order in which their keys first came."""
        return list(self._rows.values())

    def to_arrow(self, schema: pa.Schema | None = None) -> pa.Table:
        """Return the rows as an Arrow table. With a schema, such as the table's, the stream's ISO
        texts become decimals, dates, timestamps and bytes; without one types are guessed.
        """
        rows = [dict(row) for row in self._rows.values()]
        if schema is not None:
            rows = [
                {field.name: typed_iso_value(row.get(field.name), field.type) for field in schema}
                for row in rows
            ]
        return pa.Table.from_pylist(rows, schema=schema)

    def to_pandas(self, schema: pa.Schema | None = None) -> Any:
        """Return the rows as a pandas DataFrame, with types as in `to_arrow`. It needs pandas."""
        return self.to_arrow(schema).to_pandas()


def _key_of(key: Row) -> bytes:
    return orjson.dumps(key, option=orjson.OPT_SORT_KEYS)


def payload_of(content: bytes | None) -> Any:
    """Return what a key or value says, without the schema that may stand beside it."""
    value = orjson.loads(content or b"")
    if not isinstance(value, dict) or value.keys() != {"schema", "payload"}:
        return value
    # A key may have columns of these names.
    schema = value["schema"]
    return value["payload"] if isinstance(schema, dict) and "fields" in schema else value

"""A table as the source of a stream: which files come in which order, and what stops the stream.

A stream reads the table as it is at its first version, file after file, then what later versions
add. Pure but for reading the log; `StreamReader` hands it to Spark.

The stream reader: what versions add to a table, in micro-batches with Delta's limits.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final, NamedTuple, Self

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType as SparkSchema

from tidegate_delta.errors import InvalidRequest
from tidegate_delta.features.supported_features import check_readable
from tidegate_delta.log.actions import Add, Metadata, Remove
from tidegate_delta.log.commit import Commit
from tidegate_delta.schema.column_mapping import PHYSICAL_NAME
from tidegate_delta.schema.field_paths import find_field
from tidegate_delta.schema.type_widening import holds
from tidegate_delta.schema.types import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    parse_schema,
)
from tidegate_producers.cached_clients import store_for
from tidegate_producers.datasource.batch_reader import TaskFiles, binned, check_schema
from tidegate_producers.datasource.plain_errors import plain_errors, plain_errors_of_rows
from tidegate_producers.datasource.spark_schema import arrow_of
from tidegate_producers.options import StreamReadOptions
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.data_file_reader import rows_of
from tidegate_runtime.table_io.open_table import head_version, open_keys, open_snapshot, read_commit
from tidegate_runtime.table_io.time_travel import versions_between

VERSIONS_KEPT: Final = 64
"""How many versions' files are kept, as Spark asks for each twice."""

_DIGEST_CHARS: Final = 16
_NEW_CHECKPOINT: Final = (
    "start a new stream with a new checkpoint, which reads the table from its beginning, or from a "
    "startingVersion"
)

Files = Sequence[Mapping[str, Any]]
"""Files as rows of ADD_SCHEMA."""


class FilePosition(NamedTuple):
    """The next file to read: `number` of a version, or of the table as it is at a version.

    `table_id` and `commit` are the table and the bytes of the last version of which it has read,
    if they are known. Its form in Spark's checkpoint is that of `to_json`.
    """

    version: int
    number: int = 0
    is_snapshot: bool = False
    table_id: str | None = None
    commit: str | None = None

    @property
    def last_read(self) -> int:
        """The last version of which it has read, or that lies before it."""
        return self.version if self.is_snapshot or self.number else self.version - 1

    @property
    def place(self) -> tuple[int, int]:
        """Its place in the order of the stream."""
        return self.version, self.number

    def to_json(self) -> dict[str, Any]:
        """Return the offset that Spark writes down."""
        return {
            "version": self.version,
            "index": self.number,
            "isStartingVersion": self.is_snapshot,
            "tableId": self.table_id,
            "commit": self.commit,
        }

    @classmethod
    def from_json(cls, offset: Mapping[str, Any]) -> Self:
        """Return the position of an offset that `to_json` made."""
        return cls(
            int(offset["version"]),
            int(offset["index"]),
            bool(offset["isStartingVersion"]),
            offset.get("tableId"),
            offset.get("commit"),
        )


class StreamSource:
    """The files of a table in the order of a stream. It has the columns of the version that was
    newest when it was made.

    Files are numbered as the log lists them, also those that `excludeRegex` leaves out.
    """

    splits_versions = True
    """Whether a batch may end within a version."""

    def __init__(self, store: LogStore, options: StreamReadOptions) -> None:
        self._store = store
        self._options = options
        self.metadata = open_keys(store).metadata
        self._schema = parse_schema(self.metadata.schema_string)
        self._kept = lru_cache(VERSIONS_KEPT)(self._added)
        self._opened = lru_cache(1)(self._live)
        self._digest = lru_cache(VERSIONS_KEPT)(self._digest_of)
        self._columns_are_checked = False

    def first(self) -> FilePosition:
        """Return where a new stream begins.

        Raises: InvalidRequest (`TimestampAfterLatest`, `NotADeltaTable`); BrokenLog; Unavailable.
        """
        head, options = self.head(), self._options
        if options.starting_timestamp_ms is not None:
            keys = open_keys(self._store)
            first, _ = versions_between(self._store, keys, options.starting_timestamp_ms)
            return FilePosition(first)
        if options.starts_at_latest:
            return FilePosition(head + 1)
        if options.starting_version is None:
            return FilePosition(head, is_snapshot=True)
        if options.starting_version > head + 1:
            raise InvalidRequest(
                f"option startingVersion={options.starting_version}: the newest version of "
                f"{self._store.root} is {head}; start at a version up to {head + 1}, or at latest",
                error_class="DELTA_VERSION_NOT_FOUND",
            )
        return FilePosition(options.starting_version)

    def head(self, at_least: int = -1) -> int:
        """Return the newest version. Raises: InvalidRequest (`NotADeltaTable`); Unavailable."""
        head = head_version(self._store, at_least)
        if head is None:
            raise InvalidRequest(
                f"{self._store.root} is no Delta table: check the path",
                error_class="NotADeltaTable",
            )
        return head

    def noted(self, position: FilePosition) -> FilePosition:
        """Return a position with the identity of what it has read."""
        return position._replace(table_id=self.metadata.id, commit=self._digest(position.last_read))

    def check(self, position: FilePosition, head: int) -> None:
        """Refuse a position of another table, or of versions that others have replaced.

        A version that was cleaned out of the log can't be compared, and with failOnDataLoss=false
        none is.
        Raises: InvalidRequest; Unavailable.
        """
        root = self._store.root
        if position.table_id not in (None, self.metadata.id):
            raise InvalidRequest(
                f"{root} is another table than the stream has read: its id is {self.metadata.id}, "
                f"and was {position.table_id}; {_NEW_CHECKPOINT}",
                error_class="DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE",
            )
        last = position.last_read
        now = self._digest(last)
        is_replaced = position.commit is not None and now not in (None, position.commit)
        if self._options.fail_on_data_loss and (last > head or is_replaced):
            raise InvalidRequest(
                f"version {last} of {root}, which the stream has read, "
                + ("is another one now" if is_replaced else f"is gone: the newest is {head}")
                + f": the table's log was restored or written anew; {_NEW_CHECKPOINT}",
                error_class="DELTA_STREAMING_DATA_LOSS",
            )
        first = min(position.version, head)
        if not self._columns_are_checked and self._digest(first) is not None:
            self._check_columns(first, open_keys(self._store, first).metadata)
        self._columns_are_checked = True

    def files_from(
        self, start: FilePosition, until: int
    ) -> Iterator[tuple[FilePosition, Mapping[str, Any]]]:
        """Yield the files from a position to the end of version `until`, each with the position
        behind it.

        Raises: InvalidRequest, for a version that the stream may not pass; BrokenLog; Unavailable.
        """
        version, index = start.place
        if start.is_snapshot:
            files = self._opened(version)
            for place in range(index, len(files)):
                if self._is_wanted(files[place]):
                    yield FilePosition(version, place + 1, is_snapshot=True), files[place]
            version, index = version + 1, 0
        while version <= until:
            files = self._kept(version)
            for place in range(index, len(files)):
                if self._is_wanted(files[place]):
                    yield FilePosition(version, place + 1), files[place]
            version, index = version + 1, 0

    def up_to(
        self, start: FilePosition, until: int, files_max: int | None, bytes_max: int | None
    ) -> FilePosition:
        """Return the position behind as many files as a batch may have, at least one if there is
        one. Units: `bytes_max` in bytes.
        """
        count, size = 0, 0
        for after, file in self.files_from(start, until):
            before = after._replace(number=after.number - 1)
            count, size = count + 1, size + int(file["size"] or 0)
            is_full = files_max is not None and count > files_max
            may_end = self.splits_versions or before.is_snapshot or before.number == 0
            is_over = is_full or (bytes_max is not None and size > bytes_max)
            if count > 1 and is_over and may_end and before.place > start.place:
                return before
        return FilePosition(max(until + 1, start.version + start.is_snapshot))

    def between(self, start: FilePosition, end: FilePosition) -> list[Mapping[str, Any]]:
        """Return the files of a batch."""
        until = end.version if end.number and not end.is_snapshot else end.version - 1
        files = []
        for after, file in self.files_from(start, until):
            if after.place > end.place:
                break
            files.append(file)
        return files

    def _is_wanted(self, file: Mapping[str, Any]) -> bool:
        excluded = self._options.exclude_regex
        return excluded is None or excluded.search(str(file["path"])) is None

    def _live(self, version: int) -> Files:
        snapshot = open_snapshot(self._store, version)
        self._check_columns(version, snapshot.metadata)
        order = [("modificationTime", "ascending"), ("path", "ascending")]
        return list(rows_of(snapshot.files.sort_by(order)))

    def _added(self, version: int) -> Files:
        """Return the files with new rows of a version, after checking that the stream may pass."""
        commit = self._commit(version)
        if commit is None:
            return []
        adds = [add for add in commit.of(Add) if add.data_change]
        if any(remove.data_change for remove in commit.of(Remove)):
            if self._options.skip_change_commits:
                return []
            self._check_change(version, commit.info.operation if commit.info else None, adds)
        return [_row(add) for add in adds]

    def _digest_of(self, version: int) -> str | None:
        """Return what tells a version's bytes from others, None where it is not in the log."""
        entry = read_commit(self._store, version) if version >= 0 else None
        return None if entry is None else sha256(entry[1]).hexdigest()[:_DIGEST_CHARS]

    def _commit(self, version: int) -> Commit | None:
        """Return a version whose columns the stream has; None if it is lost and may be."""
        entry = read_commit(self._store, version)
        if entry is None and not self._options.fail_on_data_loss:
            return None
        if entry is None:
            raise InvalidRequest(
                f"version {version} of {self._store.root} is gone from the log, and the stream has "
                "not read it: rows may be missing; set failOnDataLoss=false to go on without them, "
                "or start a new stream with a new checkpoint, and give the table a longer "
                "delta.logRetentionDuration",
                error_class="DELTA_STREAMING_DATA_LOSS",
            )
        commit = entry[0]
        if commit.metadata is not None:
            self._check_columns(version, commit.metadata)
        if commit.protocol is not None:
            check_readable(commit.protocol, self.metadata, self._store.root)
        return commit

    def _check_change(self, version: int, operation: str | None, adds: Sequence[Add]) -> None:
        """Stop at a version that removes rows, unless the options let it pass."""
        options = self._options
        if options.ignore_changes or (options.ignore_deletes and not adds):
            return
        version_text = (
            f"version {version} of {self._store.root} ({operation or 'by another writer'})"
        )
        if adds:
            raise InvalidRequest(
                f"{version_text} changes rows that the stream may have read, and a stream of rows "
                "can't take them back: set skipChangeCommits=true to leave such versions out, or "
                "follow the table's change topic, which has the changes",
                error_class="DELTA_SOURCE_TABLE_IGNORE_CHANGES",
            )
        raise InvalidRequest(
            f"{version_text} deletes rows that the stream may have read: set ignoreDeletes=true to "
            "go on, or follow the table's change topic, which has the deletes",
            error_class="DELTA_SOURCE_IGNORE_DELETE",
        )

    def _check_columns(self, version: int, metadata: Metadata) -> None:
        """Stop at a version whose columns are not all among the stream's."""
        version_schema = parse_schema(metadata.schema_string)
        lost = _lacking(version_schema, self._schema)
        if lost is None:
            return
        raise InvalidRequest(
            f"version {version} of {self._store.root} has the column {lost}, which is not among "
            f"the stream's columns ({', '.join(self._schema.names)}): start the query again, and "
            "it reads with the table's newest columns; a column that was renamed or dropped needs "
            "a new checkpoint, too",
            error_class="DELTA_SCHEMA_CHANGED_WITH_VERSION",
        )


def _lacking(version_schema: StructType, stream_schema: StructType) -> str | None:
    """Return the first column that the stream's can't hold, or None.

    A mapped column is the same only under the same physical name, whatever it is called: one that
    was dropped and added again is another.
    """
    for field in version_schema.fields:
        stream_field = find_field(stream_schema, field.name)
        if stream_field is None or not _is_held(field, stream_field):
            return f"{field.name!r} of type {field.kind}"
    return None


def _is_held(field: StructField, stream_field: StructField) -> bool:
    names = (each.metadata.get(PHYSICAL_NAME) for each in (field, stream_field))
    if len({name for name in names if name is not None}) > 1:
        return False
    if field.nullable and not stream_field.nullable:
        return False
    return _is_kind_held(field.kind, stream_field.kind)


def _is_kind_held(kind: DataType, stream_kind: DataType) -> bool:
    """Return whether values of a type are read as another: it is wider, has more fields, or takes
    null, too.
    """
    match kind, stream_kind:
        case StructType(), StructType():
            return _lacking(kind, stream_kind) is None
        case ArrayType(), ArrayType():
            takes_nulls = stream_kind.contains_null or not kind.contains_null
            return takes_nulls and _is_kind_held(kind.element, stream_kind.element)
        case MapType(), MapType():
            takes_nulls = stream_kind.value_contains_null or not kind.value_contains_null
            is_key_held = _is_kind_held(kind.key, stream_kind.key)
            return takes_nulls and is_key_held and _is_kind_held(kind.value, stream_kind.value)
    return kind == stream_kind or holds(kind, stream_kind)


def _row(add: Add) -> Mapping[str, Any]:
    vector = add.deletion_vector
    return {
        "path": add.path,
        "partitionValues": dict(add.partition_values),
        "size": add.size,
        "deletionVector": vector and vector.model_dump(by_alias=True),
        "baseRowId": add.base_row_id,
        "defaultRowCommitVersion": add.default_row_commit_version,
    }


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a table as a stream of rows."""

    def __init__(self, options: StreamReadOptions, schema: SparkSchema) -> None:
        self._options = options
        self._arrow = arrow_of(schema)
        source = self._new_source(store_for(options.place), options)
        self._source: StreamSource | None = source
        self._metadata = source.metadata
        self._last: int | None = None
        check_schema(schema, self._columns(self._metadata), options.place.root)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the reader without what only the driver needs."""
        return {**self.__dict__, "_source": None}

    @plain_errors
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        """Return where a new query begins."""
        return self._reading.noted(self._reading.first()).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 (Spark's name)
        """Return the limit of a batch; latestOffset heeds the other one, too."""
        if self._options.bytes_max is not None and self._options.files_max is None:
            return ReadMaxBytes(self._options.bytes_max)
        return ReadMaxFiles(self._options.files_of_batch)

    @plain_errors
    def latestOffset(  # noqa: N802 (Spark's name)
        self, start: Mapping[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        """Return the end of the next batch; `start` itself if there is nothing new.

        Raises: InvalidRequest, for a version that the stream may not pass; BrokenLog; Unavailable.
        """
        position = FilePosition.from_json(start)
        head = self._reading.head(position.version - 1) if self._last is None else self._last
        self._reading.check(position, head)
        files_max, bytes_max = self._options.files_max, self._options.bytes_max
        if isinstance(limit, ReadMaxFiles):
            files_max = limit.max_files
        elif isinstance(limit, ReadMaxBytes):
            bytes_max = limit.max_bytes
        elif isinstance(limit, ReadAllAvailable):
            files_max, bytes_max = None, None
        if head < position.version and not position.is_snapshot:
            return dict(start)
        end = self._reading.up_to(position, head, files_max, bytes_max)
        return self._reading.noted(end).to_json()

    @plain_errors
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's name)
        """Read no further than the version that is newest now."""
        self._last = self._reading.head()

    @plain_errors
    def partitions(
        self, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> Sequence[InputPartition]:
        """Return the files of a batch, in bins of about equal size."""
        first, last = FilePosition.from_json(start), FilePosition.from_json(end)
        self._reading.check(last, self._reading.head(last.version - 1))
        files = self._reading.between(first, last)
        return binned(iter(files)) or [TaskFiles(())]

    @plain_errors_of_rows
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a bin, in exactly the schema that Spark expects."""
        assert isinstance(partition, TaskFiles), "Spark hands back what `partitions` returned"
        yield from partition.read(store_for(self._options.place), self._metadata, self._arrow)

    def _new_source(self, store: LogStore, options: StreamReadOptions) -> StreamSource:
        return StreamSource(store, options)

    def _columns(self, metadata: Metadata) -> StructType:
        return parse_schema(metadata.schema_string)

    @property
    def _reading(self) -> StreamSource:
        if self._source is None:
            self._source = self._new_source(store_for(self._options.place), self._options)
        return self._source

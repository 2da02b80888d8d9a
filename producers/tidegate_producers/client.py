"""`Client`: writes Arrow tables to Delta tables through the committer, without Spark.

It is a client for proposals, too: `propose`, `cancel` and `app_versions` are those of
`tidegate_runtime.client.client`, for programs that draft proposals of their own.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa

from tidegate_delta.errors import InvalidRequest
from tidegate_delta.schema.arrow_types import from_arrow
from tidegate_messages.outcome import Outcome
from tidegate_producers.cached_clients import CLIENT_ID, clock, store_for
from tidegate_producers.options import WriteOptions, for_writing, kafka_settings
from tidegate_producers.parquet.data_file_writer import FileWriter
from tidegate_producers.writing import row_delete, table_requests
from tidegate_producers.writing.evaluated_constraints import (
    ConstraintCheck,
    evaluable_constraints,
)
from tidegate_producers.writing.once import (
    NO_POSITIONS,
    Positions,
    Verb,
    app_txn_of_batch,
    moving,
    once,
)
from tidegate_producers.writing.replace_table import NewTable, create_table
from tidegate_producers.writing.rerun import rerun
from tidegate_producers.writing.table_write import (
    WriteRequest,
    check_mode,
    check_served,
    commit,
    plan,
)
from tidegate_runtime.client import client as proposals
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.table_io.open_table import head_version, open_keys

NO_OPTIONS: Final[Mapping[str, str]] = {}


class Client(proposals.Client):
    """Appends, deletes, creates and registers, each call as one proposal, and returns its outcome.

    `kafka` is the brokers' address; without it, that of the environment. `options` are further ones
    of `format("tidegate")` for every call: `kafka.*`, `storage.*` and the others in
    docs/writing-from-spark.md. `application` is whose batches `batch_id` numbers. Not thread-safe:
    use one for each thread, and close it, or use it in a `with`.
    Raises: Misconfigured.
    """

    def __init__(
        self,
        kafka: str | None = None,
        options: Mapping[str, str] = NO_OPTIONS,
        *,
        application: str | None = None,
        producer: str | None = None,
    ) -> None:
        brokers = {} if kafka is None else {"kafka.bootstrap.servers": kafka}
        named = {} if application is None else {"txnAppId": application}
        self._options = {**options, **brokers, **named}
        self._kafka = kafka_settings(self._options)
        bus = KafkaBus(self._kafka, CLIENT_ID)
        super().__init__(bus, self._kafka.topics, clock(), producer=producer)

    def append(
        self,
        root: str,
        rows: pa.Table | pa.RecordBatchReader,
        *,
        batch_id: int | None = None,
        positions: Positions = NO_POSITIONS,
        options: Mapping[str, str] = NO_OPTIONS,
    ) -> Outcome | None:
        """Append rows; the table is created if there is none. None if nothing was to be done.

        With `batch_id` the rows come once for each batch of `application`, and with `positions`
        once for each move of the applications that it names, whatever dies or is repeated: a write
        that is in the table already returns None. CHECK constraints and invariants are evaluated
        here, as far as that needs no Spark.
        Raises: InvalidRequest, naming the column, constraint or option; UnsupportedFeature, for a
        table that needs Spark to compute or check a column; Rejected, with the rule;
        OutcomeUnknown; Misconfigured; Unavailable.
        """
        write = self._write_options(root, options, batch_id, positions)
        check_mode(write, "append")
        store = store_for(write.place)
        check: ConstraintCheck | None = None
        if head_version(store) is not None:
            table = open_keys(store)
            check, enforced = evaluable_constraints(table.metadata, table.protocol)
            write = replace(write, constraints_enforced=(*write.constraints_enforced, *enforced))

        def appended(request: WriteRequest) -> Outcome | None:
            planned = plan(self, from_arrow(rows.schema), "append", write)
            check_served(self, planned, write.kafka.bootstrap_servers)
            files = FileWriter(store, planned.layout, self.clock)
            for batch in _batches(rows):
                files.write(batch, check)
            outcome = commit(self, planned, files.finish(), request)
            # A batch that another process brought meanwhile comes back as a rejection.
            return outcome if outcome is not None and outcome.status == "committed" else None

        return self._once(write, batch_id, positions, "WRITE", appended)

    def delete(
        self,
        root: str,
        condition: str,
        *,
        batch_id: int | None = None,
        positions: Positions = NO_POSITIONS,
        options: Mapping[str, str] = NO_OPTIONS,
    ) -> Outcome | None:
        """Delete the rows for which a SQL condition is true; None if there is none.

        Files are rewritten in this process, or rows marked where the table has deletion vectors. If
        another commit overtakes it, it runs again on the newest version. Timestamps without a zone
        are in UTC.
        Raises: as `append`; UnsupportedFeature, for a condition that only Spark evaluates.
        """
        write = self._write_options(root, options, batch_id, positions)

        def deleted(request: WriteRequest) -> Outcome | None:
            def run() -> Outcome | None:
                return row_delete.delete(
                    self, write.place, condition, request, row_delete.rewrite_here
                )

            return rerun(run, write.place.root, self.clock, request.timeout_s)

        return self._once(write, batch_id, positions, "DELETE", deleted)

    def create(
        self,
        root: str,
        schema: pa.Schema,
        *,
        partition_by: Sequence[str] = (),
        properties: Mapping[str, str] = NO_OPTIONS,
        name: str | None = None,
        options: Mapping[str, str] = NO_OPTIONS,
    ) -> Outcome:
        """Create an empty table and register it, under a name if one is given.

        Raises: InvalidRequest, naming the column or property; Rejected (`table_exists`);
        OutcomeUnknown; Misconfigured; Unavailable.
        """
        named = {} if name is None else {"name": name}
        write = replace(self._write_options(root, {**options, **named}), txn_app_id=None)
        new = NewTable(from_arrow(schema), partition_by, properties)
        outcome = create_table(self, write, new)
        assert outcome is not None, "a creation proposes the table's definition"
        return outcome

    def register(
        self, root: str, name: str | None = None, options: Mapping[str, str] = NO_OPTIONS
    ) -> Outcome:
        """Register an existing Delta table; registering it again is no error.

        Raises: InvalidRequest (`NotADeltaTable`, `TableHasName`); UnsupportedFeature; Rejected;
        OutcomeUnknown; Misconfigured; Unavailable.
        """
        write = self._write_options(root, options)
        return table_requests.register(self, write.place, name, write.outcome_timeout_s)

    def _write_options(
        self,
        root: str,
        options: Mapping[str, str],
        batch_id: int | None = None,
        positions: Positions = NO_POSITIONS,
    ) -> WriteOptions:
        if positions and batch_id is not None:
            raise InvalidRequest(
                "batch_id and positions: each says which work was done before; give one of the "
                "two; nothing was proposed",
                error_class="DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS",
            )
        write = for_writing({**self._options, **options, "path": root})
        if write.kafka != self._kafka:
            raise InvalidRequest(
                "options: the client is connected to other brokers or topics than these kafka.* "
                "options and topicPrefix name: give them to Client; nothing was proposed",
                error_class="DELTA_ILLEGAL_OPTION",
            )
        return write

    def _once(
        self,
        write: WriteOptions,
        batch_id: int | None,
        positions: Positions,
        operation: str,
        verb: Verb,
    ) -> Outcome | None:
        if positions:
            return moving(self, write, positions, operation, verb)
        if head_version(store_for(write.place)) is not None:
            return once(self, write, batch_id, operation, verb)
        named = write.txn_app_id is not None or batch_id is not None
        txn = app_txn_of_batch(write, batch_id) if named else None
        return verb(WriteRequest.of(write, txn))


def _batches(rows: pa.Table | pa.RecordBatchReader) -> Iterator[pa.Table | pa.RecordBatch]:
    return iter((rows,)) if isinstance(rows, pa.Table) else iter(rows)

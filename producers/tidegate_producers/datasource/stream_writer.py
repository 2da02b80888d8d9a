"""The stream writer: each micro-batch is one proposal, and is committed exactly once.

Spark repeats a batch whose commit failed or was not recorded, with the same batch id and new
files. The committer recognises the repeat by its app transaction (query id, batch id) and rejects
it; the new files then belong to no version.
"""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from tidegate_delta.errors import InvalidRequest
from tidegate_delta.schema.types import StructType
from tidegate_producers.cached_clients import client_for
from tidegate_producers.datasource.batch_writer import Written, adds_of, write_files
from tidegate_producers.datasource.outcome_logging import log_outcome
from tidegate_producers.datasource.plain_errors import plain_errors
from tidegate_producers.datasource.spark_tasks import check_no_to_table, query_id
from tidegate_producers.options import WriteOptions
from tidegate_producers.writing.table_write import WriteMode, WriteRequest, check_mode, commit, plan
from tidegate_runtime.client.proposal_builders import StreamBatch
from tidegate_runtime.observability.tracing import continued


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes one micro-batch; Spark makes a new writer for each."""

    def __init__(self, options: WriteOptions, frame: StructType, mode: WriteMode) -> None:
        super().__init__()
        if options.txn_version is not None:
            raise InvalidRequest(
                "a stream's txnVersion is its batch id: leave the option txnVersion out",
                error_class="DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS",
            )
        if options.read_version is not None:
            raise InvalidRequest(
                "the batches of a stream are not all made from one version of the table: leave "
                "the option readVersion out",
                error_class="DELTA_ILLEGAL_OPTION",
            )
        check_mode(options, mode)
        if options.replace_where is not None or options.overwrite_mode == "dynamic":
            raise InvalidRequest(
                "a stream's batch replaces every row of the table or none: leave replaceWhere and "
                "partitionOverwriteMode=dynamic out, or write with foreachBatch",
                error_class="DELTA_ILLEGAL_OPTION",
            )
        self._options = options
        self._plan = plan(client_for(options.kafka), frame, mode, options)
        if self._plan.creation is not None and options.partition_columns is None:
            # Spark passes a stream's partitionBy to no Python data source: it would be ignored.
            raise InvalidRequest(
                f"{options.place.root} is no table yet, and Spark does not tell a Python data "
                "source a stream's partitionBy: name the columns in the option partitionColumns "
                "(an empty one for a table without partitions), or make the table first with "
                "Table.create; nothing was proposed",
                error_class="DELTA_PARTITION_COLUMN_NOT_FOUND",
            )

    @plain_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of one task.

        Raises: InvalidRequest, for a row that violates the schema.
        """
        check_no_to_table(self._plan.place.root)
        adds = write_files(self._plan, iterator)
        return Written(adds, plan=self._plan, query_id=query_id())

    @plain_errors
    def commit(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 (Spark's name)
    ) -> None:
        """Propose the files of all tasks, and wait. Raises: Rejected, OutcomeUnknown."""
        written = [message for message in messages if isinstance(message, Written)]
        stream = next((message.query_id for message in written if message.query_id), None)
        if stream is None and self._options.txn_app_id is None:
            if written:
                raise InvalidRequest(
                    f"batch {batchId} does not say which stream it belongs to; "
                    "give the stream the option txnAppId",
                    error_class="DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS",
                )
            return
        batch = StreamBatch(stream or str(self._options.txn_app_id), batchId)
        saying = WriteRequest.of_batch(self._options, batch)
        chosen = next((message.plan for message in written if message.plan), self._plan)
        client = client_for(self._options.kafka)
        with continued(self._options.traceparent):
            outcome = commit(client, chosen, adds_of(messages), saying)
        log_outcome(chosen.place.root, outcome)

    def abort(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 (Spark's name)
    ) -> None:
        """Keep the files for VACUUM: a proposal that names them may have been sent."""

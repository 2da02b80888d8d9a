"""Copy the rows of a Kafka topic into a Delta table, each row exactly once, through Tidegate.

    python stream_writer.py BROKERS SOURCE_TOPIC TABLE_FOLDER

It needs confluent-kafka and pyarrow, and nothing of Tidegate. A record of the source is a JSON
object `{"id": 17, "text": "..."}`; the table has the columns `id BIGINT, text STRING`. The
positions in the source are kept in the table and nowhere else: kill and restart the program at any
moment, or run several. It runs until it is stopped, or meets what it has no answer to.
"""

import argparse
import hashlib
import json
import os
import time
import uuid
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
Json = dict[str, Any]
say = partial(print, flush=True)


class StreamWriter:
    """Reads batches of rows from the source, and proposes each batch as one append."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.folder = options, Path(options.folder).resolve()
        self.clients = {"bootstrap.servers": options.brokers}
        self.producer = Producer({**self.clients, "acks": "all", "enable.idempotence": True})
        # Records that were deleted before they were read must be an error, not a gap.
        self.source = self.consumer({"auto.offset.reset": "error"})
        # An outcome that was missed comes again, because the same bytes are sent again.
        self.outcomes = self.consumer({"auto.offset.reset": "latest"})
        self.table = self.find_table()
        self.use_partition(self.table["topic_partition"])
        numbers = self.partitions_of(options.source)
        self.app_ids = {number: f"{options.source}/{number}" for number in numbers}
        self.version, self.positions = -1, dict.fromkeys(self.app_ids.values(), -1)
        self.ask_for_positions()

    def run(self) -> None:
        """Copy batch after batch."""
        while True:
            rows, ends = self.read_batch()
            if not rows:
                continue
            steps = [
                {"app_id": app_id, "version": end, "expected": self.positions[app_id]}
                for app_id, end in ends.items()
            ]
            outcome = self.propose(
                table_id=self.table["table_id"],
                read_version=self.version,
                actions=[{"add": self.write_file(rows)}],
                reads={},  # the rows do not depend on what is in the table
                app_txns=steps,
            )
            rejection = outcome.get("rejection", {})
            if outcome["status"] == "committed":
                say(f"committed {len(rows)} rows in version {outcome['version']}")
                self.positions |= ends
                self.version = outcome["version"]
            elif rejection.get("rule") == "app_txn_seen":
                say(f"skipped {len(rows)} rows: {rejection['reason']}")
                self.positions |= ends
            elif rejection.get("rule") == "app_txn_conflict" or outcome["status"] == "expired":
                say(f"asking for the positions: {rejection.get('reason', 'expired')}")
                self.ask_for_positions()
            else:
                raise SystemExit(f"{len(rows)} rows were not committed: {json.dumps(outcome)}")

    def ask_for_positions(self) -> None:
        """Ask the table how far it has each source partition, and read on from there."""
        ids = list(self.app_ids.values())
        outcome = self.propose(kind="app_versions", read_version=-1, app_ids=ids)
        if outcome["status"] != "answered":
            raise SystemExit(f"the table did not tell its positions: {json.dumps(outcome)}")
        self.version, self.positions = outcome["version"], outcome["app_versions"]
        say(f"positions {json.dumps(self.positions)}")
        starts = [TopicPartition(self.options.source, number) for number in self.app_ids]
        for at in starts:
            last = self.positions[self.app_ids[at.partition]]
            first, _ = self.source.get_watermark_offsets(at, timeout=30.0)
            at.offset = first if last < 0 else last + 1
        self.source.assign(starts)

    def read_batch(self) -> tuple[list[Json], dict[str, int]]:
        """Return rows, and for each application the offset of the last row."""
        rows, ends = [], {}
        for message in map(checked, self.source.consume(self.options.batch_rows, timeout=1.0)):
            rows.append(json.loads(message.value()))
            ends[self.app_ids[message.partition()]] = message.offset()
        return rows, ends

    def write_file(self, rows: list[Json]) -> Json:
        """Write a data file, durably: nobody checks later that it is there. Return its `add`."""
        path = self.folder / f"part-{uuid.uuid4()}.parquet"
        with path.open("xb") as file:
            pq.write_table(pa.Table.from_pylist(rows, SCHEMA), file)
            file.flush()
            os.fsync(file.fileno())
        folder = os.open(self.folder, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
        stats = json.dumps({"numRecords": len(rows)})
        size, now_ms = path.stat().st_size, time.time_ns() // 1_000_000
        add = {"path": path.name, "partitionValues": {}, "size": size, "modificationTime": now_ms}
        return {**add, "dataChange": True, "stats": stats}

    def propose(self, **fields: Any) -> Json:
        """Send a proposal, always the same bytes, until an outcome needs another answer."""
        proposal_id, table = str(uuid.uuid4()), self.table["table"]
        body = {"proposal_id": proposal_id, "table": table, "table_root": self.table["table_root"]}
        value = json.dumps({**body, **fields}).encode()
        # The committer keeps the order of each producer: this is one name for all runs.
        name = f"stream-writer {self.options.source}"[:64]
        names = {"proposal_id": proposal_id, "table": table, "producer": name}
        at = {"topic": self.table["proposals_topic"], "headers": {"format": "proposal/1", **names}}
        while True:
            self.producer.produce(**at, partition=self.partition, key=table, value=value)
            if self.producer.flush(self.options.patience) == 0:
                say(f"proposed {proposal_id}")
            outcome = self.wait_for_outcome(proposal_id, hashlib.sha256(value).hexdigest())
            rejection = outcome.get("rejection", {}) if outcome else {}
            if outcome is None:
                say("no outcome in time: sending the same bytes again")
            elif rejection.get("advice") == "resend":
                self.use_partition(rejection["topic_partition"])
            elif outcome["status"] == "denied" and rejection["advice"] == "retry":
                say(f"denied, sending the same bytes again: {rejection['reason']}")
                time.sleep(1.0)
            else:
                return outcome

    def wait_for_outcome(self, proposal_id: str, digest: str) -> Json | None:
        """Return the outcome of exactly these bytes, or None if it does not come in time."""
        ends = time.monotonic() + self.options.patience
        while (left := ends - time.monotonic()) > 0:
            message = checked(self.outcomes.poll(left))
            if message is not None and message.key() == proposal_id.encode():
                outcome: Json = json.loads(message.value())
                if outcome["proposal_sha256"] == digest:
                    return outcome
        return None

    def use_partition(self, number: int) -> None:
        """Send to this topic partition, and read outcomes from behind those that are there now."""
        self.partition = number
        outcomes = TopicPartition(f"{self.options.prefix}outcomes", number)
        outcomes.offset = self.outcomes.get_watermark_offsets(outcomes, timeout=30.0)[1]
        self.outcomes.assign([outcomes])

    def find_table(self) -> Json:
        """Return the table's record, from the registry as it is at its end."""
        topic = f"{self.options.prefix}table-state"
        reader = self.consumer({"enable.partition.eof": True})
        unread = self.partitions_of(topic)
        reader.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in unread])
        values = {}  # the latest of each key in each partition; None if it was deleted
        while unread:
            message: Any = reader.poll(30.0)
            if message is None:
                raise SystemExit(f"{topic}: the brokers do not answer")
            if message.error() and message.error().code() == KafkaError._PARTITION_EOF:
                unread.discard(message.partition())
                continue
            message = checked(message)
            values[message.partition(), message.key()] = message.value()
        reader.close()
        records = [json.loads(value) for value in values.values() if value]
        # Libraries encode different characters of a URI: decoded, it is the folder.
        root = f"file://{self.folder}"
        own = [record for record in records if unquote(record["table_root"]) == root]
        # A dropped table stays so; another one may have been registered in its folder.
        gone = {record["table"] for record in own if record["status"] == "dropped"}
        alive = [record for record in own if record["table"] not in gone]
        served = [record for record in alive if record["status"] != "staged"]
        if not served:
            raise SystemExit(f"no table is registered at {root}")
        return min(served, key=lambda one: one["topic_partition"])

    def partitions_of(self, topic: str) -> set[int]:
        """Return the numbers of a topic's partitions."""
        metadata = self.producer.list_topics(topic, timeout=30.0).topics[topic]
        if metadata.error is not None:
            raise SystemExit(f"{topic}: {metadata.error}")
        return set(metadata.partitions)

    def consumer(self, more: Json) -> Consumer:
        """Return a consumer that joins no group and keeps no offsets in Kafka."""
        alone = {"group.id": "unused", "enable.auto.commit": False}
        return Consumer({**self.clients, **alone, "isolation.level": "read_committed", **more})


def checked(message: Any) -> Any:
    """Return what a consumer returned; an error ends the program, and its next run goes on."""
    if message is not None and message.error() is not None:
        raise SystemExit(f"{message.topic()}: {message.error()}")
    return message


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("brokers", help="such as 127.0.0.1:9092")
    parser.add_argument("source", help="the Kafka topic to copy")
    parser.add_argument("folder", help="the table's root")
    parser.add_argument("--prefix", default="tidegate.", help="of Tidegate's topics")
    parser.add_argument("--batch-rows", type=int, default=10_000, help="most rows of a file")
    parser.add_argument("--patience", type=float, default=10.0, help="seconds, for an outcome")
    StreamWriter(parser.parse_args()).run()

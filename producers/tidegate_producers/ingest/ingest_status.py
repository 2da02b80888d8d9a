"""How far tables are in their topics: from the tables' logs and the topics' ends, without a job."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from tidegate_delta.errors import Misconfigured
from tidegate_producers.cached_clients import store_for
from tidegate_producers.ingest.positions import SourcePartition, source_of
from tidegate_producers.options import TableLocation
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.table_io.open_table import head_version, open_keys

MADE_ANEW: Final = "the topic was made anew since"
GONE: Final = "the topic is gone"


@dataclass(frozen=True)
class PartitionStatus:
    """How far a table is in a partition. `end` and `lag` are None where the topic is another one.

    Units: `updated_ms` since 1970, when the position was committed.
    """

    table_root: str
    source: SourcePartition
    position: int
    end: int | None
    updated_ms: int | None
    note: str = ""

    @property
    def lag(self) -> int | None:
        """How many offsets of the partition the table does not have."""
        return None if self.end is None else max(0, self.end - 1 - self.position)


def statuses(bus: KafkaBus, places: Iterable[TableLocation]) -> Iterator[PartitionStatus]:
    """Yield how far tables are, by partition; tables without a position of an ingest are left out.

    Raises: Unavailable; BrokenLog.
    """
    reader = bus.reader()
    ids: dict[str, str | None] = {}
    try:
        for place in places:
            store = store_for(place)
            if head_version(store) is None:
                continue
            found = open_keys(store).app_transactions
            known = sorted((s, txn) for app_id, txn in found.items() if (s := source_of(app_id)))
            for source, txn in known:
                if source.topic not in ids:
                    ids[source.topic] = _id_of(bus, source.topic)
                current = ids[source.topic]
                end, note = None, GONE if current is None else MADE_ANEW
                if current == source.topic_id:
                    end, note = reader.bounds(source.place)[1], ""
                yield PartitionStatus(place.root, source, txn.version, end, txn.last_updated, note)
    finally:
        reader.close()


def _id_of(bus: KafkaBus, topic: str) -> str | None:
    try:
        return bus.identity([topic]).topic_ids[topic]
    except Misconfigured:
        return None

"""Open Kafka transactions on `proposals`: what they hold back, and for how long.

Consumers read only committed records, and stop at the oldest open transaction of any producer. The
proposals behind it look as if they had not been sent.
"""

import logging
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from tidegate_runtime.kafka.client_protocols import HeldBack, TopicPartition
from tidegate_runtime.observability.logs import log_event
from tidegate_runtime.observability.metrics import OPEN_TRANSACTION_AGE, OPEN_TRANSACTION_OFFSETS

LONG_S: Final = 10.0
"""How long a transaction must be open before it is logged and named by `/readyz`: most are short.
"""

_log = logging.getLogger(__name__)
_shown: Final[set[str]] = set()
"""The topic partitions whose gauges this process exports."""


@dataclass
class _Open:
    """The oldest open transaction of a topic partition. Units: `since_s` by `Clock.boot_s`."""

    held: HeldBack
    since_s: float
    is_logged: bool = False


@dataclass
class OpenTransactions:
    """The oldest open transaction of each topic partition that has one."""

    open: dict[TopicPartition, _Open] = field(default_factory=dict)

    def observe(
        self,
        owned: Collection[TopicPartition],
        held: Mapping[TopicPartition, HeldBack],
        now_s: float,
    ) -> None:
        """Record what is held back on the owned topic partitions, and set the gauges.

        Units: `now_s` by `Clock.boot_s`.
        """
        previous = self.open
        self.open = {
            topic_partition: _Open(held_back, now_s)
            for topic_partition, held_back in held.items()
            if topic_partition in owned
        }
        for topic_partition, transaction in self.open.items():
            earlier = previous.get(topic_partition)
            if earlier is not None and earlier.held.stable == transaction.held.stable:
                transaction.since_s, transaction.is_logged = earlier.since_s, earlier.is_logged
        _show(owned, self.open, now_s)
        for topic_partition, transaction in self.open.items():
            if now_s - transaction.since_s >= LONG_S and not transaction.is_logged:
                transaction.is_logged = True
                fields = {"offset": transaction.held.stable, "behind": transaction.held.offsets}
                level = logging.WARNING
                log_event(
                    _log,
                    "open_transaction",
                    level=level,
                    partition=topic_partition.partition,
                    **fields,
                )

    def summary(self, now_s: float) -> str:
        """Return what `/readyz` says about them; empty if there is nothing to say."""
        return "".join(
            f"; topic partition {topic_partition.partition}: an open Kafka transaction has held "
            f"back {transaction.held.offsets} offsets for {now_s - transaction.since_s:.0f} s"
            for topic_partition, transaction in sorted(self.open.items(), key=_topic_partition_of)
            if now_s - transaction.since_s >= LONG_S
        )


def _topic_partition_of(item: tuple[TopicPartition, _Open]) -> TopicPartition:
    return item[0]


def _show(
    owned: Collection[TopicPartition], transactions: Mapping[TopicPartition, _Open], now_s: float
) -> None:
    labels = {
        str(topic_partition.partition): transactions.get(topic_partition)
        for topic_partition in owned
    }
    for stale in _shown.difference(labels):
        _shown.discard(stale)
        for gauge in (OPEN_TRANSACTION_OFFSETS, OPEN_TRANSACTION_AGE):
            with suppress(KeyError):
                gauge.remove(stale)
    for label, transaction in labels.items():
        _shown.add(label)
        OPEN_TRANSACTION_OFFSETS.labels(label).set(transaction.held.offsets if transaction else 0)
        OPEN_TRANSACTION_AGE.labels(label).set(now_s - transaction.since_s if transaction else 0.0)

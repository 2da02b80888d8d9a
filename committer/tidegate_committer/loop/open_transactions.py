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
        before = self.open
        self.open = {at: _Open(one, now_s) for at, one in held.items() if at in owned}
        for at, one in self.open.items():
            same = before.get(at)
            if same is not None and same.held.stable == one.held.stable:
                one.since_s, one.is_logged = same.since_s, same.is_logged
        _show(owned, self.open, now_s)
        for at, one in self.open.items():
            if now_s - one.since_s >= LONG_S and not one.is_logged:
                one.is_logged = True
                told = {"offset": one.held.stable, "behind": one.held.offsets}
                level = logging.WARNING
                log_event(_log, "open_transaction", level=level, partition=at.partition, **told)

    def told(self, now_s: float) -> str:
        """Return what `/readyz` says about them; empty if there is nothing to say."""
        return "".join(
            f"; topic partition {at.partition}: an open Kafka transaction has held back "
            f"{one.held.offsets} offsets for {now_s - one.since_s:.0f} s"
            for at, one in sorted(self.open.items(), key=_place)
            if now_s - one.since_s >= LONG_S
        )


def _place(item: tuple[TopicPartition, _Open]) -> TopicPartition:
    return item[0]


def _show(
    owned: Collection[TopicPartition], found: Mapping[TopicPartition, _Open], now_s: float
) -> None:
    labels = {str(at.partition): found.get(at) for at in owned}
    for gone in _shown.difference(labels):
        _shown.discard(gone)
        for gauge in (OPEN_TRANSACTION_OFFSETS, OPEN_TRANSACTION_AGE):
            with suppress(KeyError):
                gauge.remove(gone)
    for label, one in labels.items():
        _shown.add(label)
        OPEN_TRANSACTION_OFFSETS.labels(label).set(one.held.offsets if one else 0)
        OPEN_TRANSACTION_AGE.labels(label).set(now_s - one.since_s if one else 0.0)

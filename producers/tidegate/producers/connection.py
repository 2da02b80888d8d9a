"""From options to clients and stores: one client for each thread and broker, never closed.

A structured stream commits all its batches in one long-lived process: a kept client saves it a new
connection for each batch.
"""

import threading
from typing import Final

from tidegate.producers.client import Client
from tidegate.producers.options import Place
from tidegate.runtime.clock import Clock, SystemClock
from tidegate.runtime.kafka.bus import KafkaBus
from tidegate.runtime.kafka.settings import KafkaSettings
from tidegate.runtime.stores.log_store import LogStore
from tidegate.runtime.stores.opening import open_store

CLIENT_ID: Final = "tidegate-producer"


class _Kept(threading.local):
    """The clients of one thread."""

    def __init__(self) -> None:
        self.clients: list[tuple[KafkaSettings, Client]] = []


_kept: Final = _Kept()


def client_for(settings: KafkaSettings) -> Client:
    """Return this thread's client for some brokers; it connects when it is first used."""
    for known, client in _kept.clients:
        if known == settings:
            return client
    client = Client(KafkaBus(settings, CLIENT_ID), settings.topics, clock())
    _kept.clients.append((settings, client))
    return client


def store_for(place: Place) -> LogStore:
    """Return the store of a table."""
    return open_store(place.root, place.storage)


def clock() -> Clock:
    """Return the machine's clock."""
    return SystemClock()

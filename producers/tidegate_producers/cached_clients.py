"""Makes clients and stores from options: one client per thread and broker, never closed.

A structured stream commits all its batches in one long-lived process: keeping the client saves a
new connection for each batch. Once the files of its credentials have changed, it is replaced.
"""

import threading
from collections.abc import Mapping
from typing import Final

from tidegate_producers.options import TableLocation
from tidegate_runtime.client.client import Client
from tidegate_runtime.clock import Clock, SystemClock
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.kafka.settings import KafkaSettings, credentials_digest
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.storage.open_store import open_store

CLIENT_ID: Final = "tidegate-producer"


class _ThreadClients(threading.local):
    """The clients of one thread."""

    def __init__(self) -> None:
        self.clients: list[tuple[KafkaSettings, Mapping[str, bytes], Client]] = []


_thread_clients: Final = _ThreadClients()


def client_for(settings: KafkaSettings) -> Client:
    """Return this thread's client for a Kafka cluster; it connects when it is first used."""
    files = credentials_digest(settings.security)
    for place, (client_settings, files_then, client) in enumerate(_thread_clients.clients):
        if client_settings == settings and files == files_then:
            return client
        if client_settings == settings:
            client.close()
            del _thread_clients.clients[place]
            break
    client = Client(KafkaBus(settings, CLIENT_ID), settings.topics, clock())
    _thread_clients.clients.append((settings, files, client))
    return client


def store_for(place: TableLocation) -> LogStore:
    """Return the store of a table."""
    return open_store(place.root, place.storage)


def clock() -> Clock:
    """Return the machine's clock."""
    return SystemClock()

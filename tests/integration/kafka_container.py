"""Kafka in a container, by testcontainers: the image that KAFKA_IMAGE names, as Compose runs it."""

import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import yaml
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from tests.containers.engine import COMPOSE, missing
from tidegate_delta.errors import Unavailable
from tidegate_runtime.kafka.settings import KafkaSettings
from tidegate_runtime.kafka.topic_admin import missing_topics

START_TIMEOUT_S = 180.0
INSIDE = 29092
MORE = {
    # Tests have sessions of two seconds; the default refuses those under six.
    "KAFKA_GROUP_MIN_SESSION_TIMEOUT_MS": "1000"
}


@contextmanager
def kafka_container() -> Iterator[str]:
    """Yield the address of a broker in a container; skip without an engine."""
    if missing():
        pytest.skip(missing())
    declared = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"]["kafka"]
    default = re.fullmatch(r"\$\{KAFKA_IMAGE:-(.+)\}", declared["image"])
    assert default is not None
    image = os.environ.get("KAFKA_IMAGE") or default[1]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with Network() as network:
        container = DockerContainer(image).with_network(network).with_network_aliases("kafka")
        for name, value in {**declared["environment"], **MORE}.items():
            container.with_env(name, value.replace(f"localhost:{INSIDE}", f"localhost:{port}"))
        with container.with_bind_ports(INSIDE, port):
            _wait(f"localhost:{port}", container)
            yield f"localhost:{port}"


def _wait(bootstrap: str, container: DockerContainer) -> None:
    until_s = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < until_s:
        try:
            missing_topics(KafkaSettings(bootstrap_servers=bootstrap), ())
        except Unavailable:
            time.sleep(0.5)
        else:
            return
    out, err = container.get_logs()
    pytest.fail(f"Kafka did not answer on {bootstrap}:\n{out.decode()}{err.decode()}")

"""A real committer over S3's protocol, with lost and refused responses."""

import secrets
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson
import pyarrow as pa
import pytest

from tests.integration.conftest import Line
from tests.integration.moto_server import moto_server
from tests.integration.proposers import CLOCK, SCHEMA
from tests.integration.s3_relay import Relay, Step
from tests.integration.test_committer_processes import WAIT_S
from tests.integration.waiting import until
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_delta.schema.arrow_types import from_arrow
from tidegate_delta.schema.types import format_schema
from tidegate_messages.outcome import Outcome
from tidegate_messages.published_records import TableRecord
from tidegate_runtime.client import proposal_builders
from tidegate_runtime.client.client import Client
from tidegate_runtime.clock import new_id
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.storage.object_store import ObjectStore
from tidegate_runtime.table_registry import find_table

pytestmark = pytest.mark.broker

VERSION_0 = "_delta_log/00000000000000000000.json"


@pytest.fixture
def relay() -> Iterator[Relay]:
    with moto_server() as port, Relay(port) as relay:
        yield relay


def options(port: int) -> dict[str, str]:
    return {
        "endpoint_url": f"http://127.0.0.1:{port}",
        "region": "us-east-1",
        "access_key_id": "any",
        "secret_access_key": "any",
    }


@pytest.fixture
def root() -> str:
    """Return a unique root, because the emulator's buckets outlive its server."""
    return f"s3://bucket/tables/{secrets.token_hex(6)}"


def create(client: Client, root: str, name: str = "t") -> Outcome:
    schema = format_schema(from_arrow(pa.schema(SCHEMA)))
    metadata = Metadata(id=str(new_id(CLOCK)), schema_string=schema)
    target = proposal_builders.Target(new_id(CLOCK), root, name=name)
    stamp = proposal_builders.Stamp(new_id(CLOCK), CLOCK.now_ms())
    protocol = Protocol(min_reader_version=1, min_writer_version=2)
    return client.propose(
        proposal_builders.create(target, stamp, protocol, metadata), timeout_s=WAIT_S
    )


def versions(relay: Relay, root: str) -> list[str]:
    store = ObjectStore(root, options(relay.port))
    return [item.path for item in store.list_from("_delta_log", "") if item.path.endswith(".json")]


def service_settings(relay: Relay) -> dict[str, Any]:
    committer = {"roots": '["s3://bucket/tables"]', "store_contests": 0}
    return {"committer": committer, "storage": options(relay.front)}


@pytest.mark.parametrize("step", ["lose the answer", "lose the request", 409, 503])
def test_an_ambiguous_put_is_resolved_and_committed_once(
    line: Line, relay: Relay, root: str, step: Step
) -> None:
    line.started("committer", **service_settings(relay))
    relay.script = [step]
    with Client(KafkaBus(line.kafka, "test"), line.kafka.topics) as client:
        assert create(client, root).status == "committed"
    assert versions(relay, root) == [VERSION_0]
    content = ObjectStore(root, options(relay.port)).read(VERSION_0)
    assert content is not None
    info = orjson.loads(content.splitlines()[0])["commitInfo"]
    assert len(info["tidegate"]["accepted"]) == 1


def test_a_committer_killed_while_a_put_is_in_doubt_leaves_it_to_its_successor(
    line: Line, relay: Relay, root: str
) -> None:
    doomed = line.service("committer", "doomed", "before_resolve", **service_settings(relay))
    doomed.start()
    relay.script = [503]
    bus, topics = KafkaBus(line.kafka, "test"), line.kafka.topics
    with ThreadPoolExecutor(1) as pool, Client(bus, topics, patience_s=3.0) as client:
        creation = pool.submit(create, client, root)
        until(lambda: not doomed.child.is_alive(), "the death at before_resolve")
        assert doomed.child.exit_status() == -signal.SIGKILL
        line.started("committer", "successor", **service_settings(relay))
        assert creation.result(WAIT_S).status == "committed"
    assert versions(relay, root) == [VERSION_0]


def test_a_version_that_somebody_overwrote_halts_its_table_though_nobody_writes(
    line: Line, relay: Relay, root: str
) -> None:
    section = service_settings(relay)
    section["committer"] |= {"audit_s": 0.5, "external_probe_s": 600}
    line.started("committer", **section)
    with Client(KafkaBus(line.kafka, "test"), line.kafka.topics) as client:
        other = f"{root}-2"
        for one in (root, other):
            assert create(client, one, one[-8:]).status == "committed"
        store = ObjectStore(root, options(relay.port))
        content = store.read(VERSION_0)
        assert content is not None
        store.put(VERSION_0, content.replace(b"CREATE TABLE", b"create table"))

        def registered(one: str) -> TableRecord:
            result = find_table(client.tables(), one)
            assert result is not None
            return result

        until(lambda: registered(root).status == "halted", "the halt")
        assert "version 0" in str(registered(root).reason)
        assert registered(other).status == "open", "other tables go on"

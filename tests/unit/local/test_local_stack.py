import sys
from pathlib import Path
from unittest import mock

from tidegate_local.child_processes import Command, is_running, probe, service_process
from tidegate_local.local_stack import (
    LocalStack,
    StackSettings,
    read_state,
    start_ended,
    stop_detached,
)
from tidegate_runtime.kafka.settings import KafkaSettings
from tidegate_runtime.service.health import PORT_FILE

READY = f"""
import os, pathlib
from http.server import BaseHTTPRequestHandler, HTTPServer
class Answers(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
server = HTTPServer(("127.0.0.1", 0), Answers)
pathlib.Path(os.environ[{PORT_FILE!r}]).write_text(str(server.server_port))
server.serve_forever()
"""


def test_what_was_killed_and_started_again_is_taken_down_with_the_rest(tmp_path: Path) -> None:
    settings = StackSettings(tmp_path, roots=[], kafka=KafkaSettings(), detached=True)
    stack = LocalStack(settings)
    command = Command("committer", [sys.executable, "-c", READY], tethered=False)
    service = service_process(command, tmp_path / "services")
    stack.services["committer"] = service
    service.start()
    try:
        first = service.child.pid
        stack.kill_and_start("committer")
        state = read_state(tmp_path)
        assert state is not None
        [result] = state.running()
        assert (result.pid, result.address) == (service.child.pid, service.address())
        assert result.pid != first
        assert stop_detached(tmp_path, lambda _: None) == ["committer"]
        assert service.child.wait(10.0) is not None
        assert not is_running(result.pid)
    finally:
        service.child.stop()


def test_what_has_ended_is_started_again_and_the_rest_is_kept(tmp_path: Path) -> None:
    stack = LocalStack(StackSettings(tmp_path, roots=[], kafka=KafkaSettings(), detached=True))
    for name in ("committer", "checkpointer"):
        command = Command(name, [sys.executable, "-c", READY], tethered=False)
        stack.services[name] = service_process(command, tmp_path / "services")
        stack.services[name].start()
        stack.services[name].wait_ready()
    try:
        stack.kill_and_start("committer")
        before = read_state(tmp_path)
        assert before is not None
        stack.services["committer"].child.kill()
        after = start_ended(tmp_path, before, lambda _: None)
        assert after == read_state(tmp_path)
        assert after.running() == after.processes
        assert after.processes[1] == before.processes[1]
        assert after.processes[0].pid != before.processes[0].pid
        assert probe(f"{after.processes[0].address}/readyz")[0] == 200
    finally:
        stop_detached(tmp_path, lambda _: None)
        for service in stack.services.values():
            service.child.stop()


def test_settings_of_topics_hold_for_the_embedded_kafka_too(tmp_path: Path) -> None:
    given = KafkaSettings(partitions=4, topic_prefix="mine.")
    stack = LocalStack(StackSettings(tmp_path, roots=[], embedded=given))
    with mock.patch.object(stack, "_broker", mock.Mock(bootstrap="127.0.0.1:1")):
        kafka = stack.kafka
    assert (kafka.partitions, kafka.topic_prefix) == (4, "mine.")
    assert kafka.bootstrap_servers == "127.0.0.1:1"
    proposals = kafka.topics.proposals
    assert [topic.partitions for topic in kafka.topics.declared() if topic.name == proposals] == [4]

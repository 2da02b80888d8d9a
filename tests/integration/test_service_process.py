"""Services as processes: ready, stopped, killed, and all of them up and down."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.waiting import PATIENCE_S
from tidegate_delta.errors import Unavailable
from tidegate_local.child_processes import (
    Child,
    Command,
    ServiceProcess,
    end_process,
    is_running,
    probe,
    start_time_of,
)

pytestmark = pytest.mark.timeout(180)

PROGRAM = """
import sys
from tidegate_delta.errors import BrokenLog, Fenced, Misconfigured
from tidegate_runtime.service.runner import run
from tidegate_runtime.service.settings import ServiceSettings

def serve(running):
    if sys.argv[1] == "broken":
        raise BrokenLog("a gap at version 3 of file:///t; look at the log")
    if sys.argv[1] == "deaf":
        while True:
            running.clock.sleep(1)
    running.health.ready(sys.argv[1] == "ready", "never will be")
    running.stopping.wait()

sys.exit(run(serve, "program", ServiceSettings()))
"""
ASKING = """
import threading
from concurrent.futures import ThreadPoolExecutor
from tidegate_runtime.cli.command import service_app
from tidegate_runtime.service.settings import ServiceSettings

def serve(settings, running):
    \"\"\"Ask a store that hangs.\"\"\"
    asked = ThreadPoolExecutor(1)
    asked.submit(threading.Event().wait)
    running.health.ready(True)
    running.stopping.wait()
    asked.shutdown(wait=False, cancel_futures=True)

service_app("asking", ServiceSettings, serve)()
"""
Start = Callable[[Command], ServiceProcess]


def program(manner: str) -> Command:
    return Command(manner, [sys.executable, "-c", PROGRAM, manner])


def test_a_service_is_ready_when_it_reports_so_and_stops_on_request(process: Start) -> None:
    service = process(program("ready"))
    service.wait_ready(20)
    assert probe(f"{service.address()}/healthz")[0] == 200
    assert service.child.stop() == 0
    assert json.loads(service.child.tail(1))["event"] == "stopped"


def test_a_service_that_stops_does_not_wait_for_pending_store_requests(process: Start) -> None:
    service = process(Command("asking", [sys.executable, "-c", ASKING]))
    service.wait_ready(20)
    assert service.child.stop() == 0
    last = json.loads(service.child.tail(1))
    assert (last["event"], last["status"]) == ("stopped", 0), "all that it had to say is said"


def test_a_service_that_never_is_ready_is_named_with_its_output(process: Start) -> None:
    service = process(program("unready"))
    until_s = time.monotonic() + PATIENCE_S
    while service.address() is None:
        assert time.monotonic() < until_s, "it never listened"
        time.sleep(0.05)
    with pytest.raises(Unavailable, match="never will be"):
        service.wait_ready(2)


def test_one_that_ends_is_named_with_its_status_and_the_end_of_its_log(process: Start) -> None:
    service = process(program("broken"))
    with pytest.raises(Unavailable, match=r"exit status 3(.|\n)*a gap at version 3"):
        service.wait_ready(20)


def test_one_that_does_not_listen_to_a_stop_is_killed(process: Start) -> None:
    service = process(program("deaf"))
    while service.address() is None:
        time.sleep(0.05)
    assert service.child.stop(timeout_s=1) == -signal.SIGKILL


def test_a_killed_service_starts_again_in_its_place(process: Start) -> None:
    service = process(program("ready"))
    service.wait_ready(20)
    service.child.kill()
    assert service.child.exit_status() == -signal.SIGKILL
    service.start()
    service.wait_ready(20)


def test_a_tethered_child_dies_with_its_parent_and_a_detached_one_does_not(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path;"
        "from tidegate_local.child_processes import Child, Command;"
        "pids = [];\n"
        "for name in ('tethered', 'detached'):\n"
        "    command = Command(name, ['sleep', '300'], tethered=name == 'tethered')\n"
        "    child = Child(command, Path(sys.argv[1]) / name); child.start()\n"
        "    pids.append(str(child.pid))\n"
        "import time; time.sleep(1); sys.stdout.write(' '.join(pids)); sys.stdout.flush()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True, check=False
    )
    tethered, detached = (int(pid) for pid in done.stdout.split())
    birth = start_time_of(detached)
    assert birth is not None
    until = time.monotonic() + 5
    while start_time_of(tethered) is not None and time.monotonic() < until:
        time.sleep(0.05)
    try:
        assert start_time_of(tethered) is None
    finally:
        assert end_process(detached, birth, 5)
    assert start_time_of(detached) is None


def test_a_process_that_took_an_old_id_is_not_ended(tmp_path: Path) -> None:
    child = Child(Command("other", ["sleep", "300"]), tmp_path / "log")
    child.start()
    assert not end_process(child.pid, "another birth", 1)
    assert is_running(child.pid)
    child.kill()


@pytest.mark.broker
def test_up_starts_the_whole_line_and_down_ends_it(tmp_path: Path) -> None:
    folder = ["--folder", str(tmp_path / "line")]
    tidegate = [sys.executable, "-c", "from tidegate_runtime.cli.main import main; main()"]
    up = [*tidegate, "up", *folder, "--port", "0", "--json"]
    first = subprocess.run(up, capture_output=True, text=True, check=False)
    try:
        assert first.returncode == 0, first.stderr
        state = json.loads(first.stdout)
        names = [item["name"] for item in state["processes"]]
        assert names == ["kafka", "committer", "checkpointer", "cdc-publisher", "maintain"]
        for one in state["processes"][1:]:
            assert probe(f"{one['address']}/readyz")[0] == 200
        again = subprocess.run(up, capture_output=True, text=True, check=False)
        assert json.loads(again.stdout) == state, "what is up is shown, not started twice"
        broker, killed, *kept = state["processes"]
        for one in (broker, killed):
            os.kill(one["pid"], signal.SIGKILL)
        repaired = subprocess.run(up, capture_output=True, text=True, check=False)
        assert repaired.returncode == 0, repaired.stderr
        state = json.loads(repaired.stdout)
        assert state["processes"][2:] == kept
        for one in state["processes"][1:]:
            assert probe(f"{one['address']}/readyz")[0] == 200
    finally:
        down = subprocess.run(
            [*tidegate, "down", *folder, "--json"], capture_output=True, text=True, check=False
        )
    assert json.loads(down.stdout)["ended"] == names[::-1]
    assert not [one for one in state["processes"] if start_time_of(one["pid"]) == one["birth"]]

"""Health means progress, not only a running process."""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tidegate_delta.errors import Misconfigured
from tidegate_local.child_processes import probe
from tidegate_runtime.service import health as probes
from tidegate_runtime.service.health import (
    CONNECTIONS_MAX,
    PORT_FILE,
    REQUEST_BYTES_MAX,
    Health,
    serving,
)
from tidegate_runtime.service.settings import HttpSettings


class StoppedClock:
    """A clock that tests advance."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def boot_s(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


@pytest.fixture
def clock() -> StoppedClock:
    return StoppedClock()


@pytest.fixture
def health(clock: StoppedClock) -> Health:
    return Health(clock, stalled_s=10)


def test_idleness_is_healthy_however_long(health: Health, clock: StoppedClock) -> None:
    health.work("commits", 0)
    clock.sleep(1000)
    assert not health.stalled()


def test_waiting_work_without_progress_is_not(health: Health, clock: StoppedClock) -> None:
    health.work("commits", 3)
    clock.sleep(9)
    assert not health.stalled()
    clock.sleep(2)
    assert health.stalled() == {"commits": "3 waiting, no progress for 11 s"}


def test_the_time_counts_from_when_work_came_not_from_the_last_progress(
    health: Health, clock: StoppedClock
) -> None:
    health.progress("commits")
    clock.sleep(100)
    health.work("commits", 1)
    clock.sleep(5)
    health.work("commits", 2)
    assert not health.stalled()
    clock.sleep(6)
    assert health.stalled()


def test_progress_cures(health: Health, clock: StoppedClock) -> None:
    health.work("commits", 1)
    clock.sleep(11)
    health.progress("commits")
    assert not health.stalled()


def test_what_is_expected_regularly_stalls_without_any_work(
    health: Health, clock: StoppedClock
) -> None:
    health.expect("loop", within_s=2)
    clock.sleep(1)
    health.progress("loop")
    clock.sleep(1.5)
    assert not health.stalled()
    clock.sleep(1)
    assert list(health.stalled()) == ["loop"]


def test_starting_over_forgets_what_was_watched(health: Health, clock: StoppedClock) -> None:
    health.expect("loop", within_s=2)
    health.ready(True)
    health.forget()
    clock.sleep(100)
    assert not health.stalled()
    assert not health.is_ready()[0]


def test_the_probes_answer_over_http(health: Health, clock: StoppedClock, tmp_path: Path) -> None:
    port_file = tmp_path / "port"
    with serving(health, HttpSettings(port_file=port_file)) as port:
        assert int(port_file.read_text()) == port
        at = f"http://127.0.0.1:{port}"
        assert probe(f"{at}/readyz")[0] == 503
        health.ready(True)
        assert probe(f"{at}/readyz")[0] == 200
        assert probe(f"{at}/healthz")[0] == 200
        health.work("commits", 1)
        clock.sleep(11)
        status, body = probe(f"{at}/healthz")
        assert (status, json.loads(body)["healthy"]) == (503, False)
        assert "process_" in probe(f"{at}/metrics")[1]
        assert probe(f"{at}/else")[0] == 404
    assert probe(f"{at}/healthz")[0] == 0


@pytest.mark.parametrize(
    ("host", "asked"), [("::1", "[::1]"), ("::", "[::1]"), ("::", "127.0.0.1")]
)
def test_the_probes_answer_where_there_is_no_ipv4(health: Health, host: str, asked: str) -> None:
    with socket.socket(socket.AF_INET6) as occupied:
        try:
            occupied.bind(("::1", 0))
        except OSError as error:
            pytest.skip(f"this machine has no IPv6: {error}")
    with serving(health, HttpSettings(host=host)) as port:
        assert probe(f"http://{asked}:{port}/healthz")[0] == 200


def test_the_environment_may_name_the_port_file(
    health: Health, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PORT_FILE, str(tmp_path / "from" / "outside"))
    with serving(health, HttpSettings()) as port:
        assert int((tmp_path / "from" / "outside").read_text()) == port


def test_a_taken_port_is_a_setting_to_fix(health: Health) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        taken = holder.getsockname()[1]
        with (
            pytest.raises(Misconfigured, match=f"http.port {taken}"),
            serving(health, HttpSettings(port=taken)),
        ):
            pytest.fail("it should not serve")


def test_no_port_means_no_server(health: Health) -> None:
    with serving(health, HttpSettings(port=None)) as port:
        assert port is None


def test_a_file_for_the_port_that_cannot_be_written_is_misconfigured(
    health: Health, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    settings = HttpSettings(port_file=tmp_path / "file" / "port")
    with pytest.raises(Misconfigured, match=r"http\.port_file"), serving(health, settings):
        pass


# Misuse of the open port


@contextmanager
def half_sent(
    port: int, count: int, sent: bytes = b"GET /healthz HTT"
) -> Iterator[list[socket.socket]]:
    """Open connections whose requests never end, and close them afterwards."""
    with ExitStack() as stack:
        held = []
        for _ in range(count):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            one.sendall(sent)
            held.append(one)
        yield held


def descriptors() -> int:
    """Return the number of open file descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))


def test_probes_are_answered_beside_more_half_sent_requests_than_there_is_room_for(
    health: Health,
) -> None:
    health.ready(True)
    before = descriptors()
    count = CONNECTIONS_MAX + 200
    with serving(health, HttpSettings()) as port:
        assert port is not None
        with half_sent(port, count):
            for path in ("healthz", "readyz", "metrics"):
                assert probe(f"http://127.0.0.1:{port}/{path}")[0] == 200
            # Our ends are still open; the server keeps at most CONNECTIONS_MAX.
            assert descriptors() - before - count < CONNECTIONS_MAX + 20


def test_the_oldest_connection_makes_room_for_a_new_one(health: Health) -> None:
    with serving(health, HttpSettings()) as port:
        assert port is not None
        with half_sent(port, CONNECTIONS_MAX) as held:
            assert probe(f"http://127.0.0.1:{port}/healthz")[0] == 200
            held[-1].sendall(b"P/1.1\r\n\r\n")
            assert held[-1].recv(12) == b"HTTP/1.1 200"
            assert is_closed(held[0])


def test_a_request_that_does_not_end_in_time_is_closed(
    health: Health, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "CONNECTION_S", 0.0)
    with serving(health, HttpSettings()) as port:
        assert port is not None
        with half_sent(port, 1) as [held]:
            assert is_closed(held)


@pytest.mark.parametrize(
    "sent",
    [b"GET /healthz HTTP/1.1\r\nX: " + b"y" * 2 * REQUEST_BYTES_MAX, b"\0" * 2 * REQUEST_BYTES_MAX],
)
def test_a_request_without_end_is_closed_at_its_limit(health: Health, sent: bytes) -> None:
    with serving(health, HttpSettings()) as port:
        assert port is not None
        with half_sent(port, 1, sent) as [held]:
            assert is_closed(held)


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"POST /healthz HTTP/1.1\r\n\r\n", b"HTTP/1.1 405"),
        (b"GET /healthz?verbose HTTP/1.1\r\nHost: a\r\n\r\n", b"HTTP/1.1 200"),
        (b"\xff\xfe\r\n\r\n", b"HTTP/1.1 405"),
        (b"GET\r\n\r\n", b"HTTP/1.1 404"),
        (b"\r\n\r\n", b"HTTP/1.1 405"),
    ],
)
def test_any_request_has_an_answer(health: Health, sent: bytes, answer: bytes) -> None:
    with serving(health, HttpSettings()) as port:
        assert port is not None
        with half_sent(port, 1, sent) as [held]:
            assert held.recv(len(answer)) == answer


def is_closed(held: socket.socket) -> bool:
    """Wait for the server to close a connection; return whether it closed without an answer."""
    held.settimeout(60)
    try:
        return held.recv(1) == b""
    except ConnectionError:
        return True

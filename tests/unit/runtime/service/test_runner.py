"""The runner's mapping from an error to an action."""

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tidegate_delta.errors import (
    BrokenLog,
    Contended,
    Fenced,
    MalformedRecord,
    Misconfigured,
    TidegateError,
    Unavailable,
    UnsupportedFeature,
)
from tidegate_runtime.clock import SystemClock
from tidegate_runtime.kafka.librdkafka import LOGIN_REFUSED
from tidegate_runtime.kafka.settings import KafkaSecurity
from tidegate_runtime.service import runner as module
from tidegate_runtime.service.health import Health
from tidegate_runtime.service.runner import (
    Renewal,
    Running,
    exit_status,
    run,
    stop_on_signals,
    supervise,
)
from tidegate_runtime.service.settings import HttpSettings, ServiceSettings


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> Running:
    monkeypatch.setattr(module, "PAUSE_MIN_S", 0.001)
    clock = SystemClock()
    return Running(clock, Health(clock))


def raising(error: BaseException) -> Callable[[Running], None]:
    def service(_: Running) -> None:
        raise error

    return service


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Fenced("another owns it"), 0),
        (RuntimeError("ours"), 1),
        (Misconfigured("wrong"), 2),
        (BrokenLog("a gap"), 3),
        (UnsupportedFeature("no"), 3),
        (Contended("again"), 3),
        (MalformedRecord("not set aside where it was read"), 3),
    ],
)
def test_an_error_ends_a_service_with_the_status_of_its_advice(
    running: Running, error: BaseException, status: int
) -> None:
    assert supervise(raising(error), running) == status


def test_a_service_that_returns_ends_well(running: Running) -> None:
    assert supervise(lambda _: None, running) == 0


def test_what_is_away_is_tried_again_from_the_start(running: Running) -> None:
    seen: list[bool] = []

    def service(now: Running) -> None:
        seen.append(now.health.is_ready()[0])
        now.health.ready(True)
        if len(seen) < 3:
            raise Unavailable("away")

    assert supervise(service, running) == 0
    assert seen == [False, False, False], "unready until it has started again"


def test_a_stop_ends_the_trying(running: Running) -> None:
    def service(now: Running) -> None:
        now.stopping.set()
        raise Unavailable("away")

    assert supervise(service, running) == 0


def test_a_signal_requests_a_stop_and_does_not_interrupt() -> None:
    stopping = threading.Event()
    former = signal.getsignal(signal.SIGTERM)
    with stop_on_signals(stopping):
        os.kill(os.getpid(), signal.SIGTERM)
        assert stopping.wait(5)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, "the second one kills"
    assert signal.getsignal(signal.SIGTERM) is former


def test_the_frame_gives_a_service_its_doors_and_returns_its_status(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = ServiceSettings(http=HttpSettings(port=None))
    seen: list[Running] = []
    assert run(seen.append, "committer", settings) == 0
    assert not seen[0].stopping.is_set()


def test_a_verb_ends_with_the_exit_status_of_its_error() -> None:
    errors: list[TidegateError] = [Unavailable(""), Misconfigured(""), BrokenLog(""), Fenced("")]
    assert [exit_status(error) for error in errors] == [4, 2, 3, 0]


def by_password(file: Path) -> KafkaSecurity:
    return KafkaSecurity(
        protocol="SASL_PLAINTEXT", mechanism="PLAIN", username="ann", password_location=str(file)
    )


@pytest.mark.parametrize("fails", [False, True])
def test_a_service_restarts_once_a_new_password_is_stable(
    running: Running, tmp_path: Path, fails: bool
) -> None:
    file = tmp_path / "password"
    file.write_text("old", encoding="utf-8")
    renewal, seen = Renewal(by_password(file), running), []

    def service(now: Running) -> None:
        seen.append(file.read_text(encoding="utf-8"))
        renewal.look()
        if len(seen) > 1:
            return
        assert not now.stopping.is_set(), "nothing is new"
        file.write_text("new", encoding="utf-8")
        renewal.look()
        assert not now.stopping.is_set(), "it may still be written"
        renewal.look()
        assert now.stopping.is_set()
        if fails:
            raise Unavailable("the brokers refuse the old one")

    assert supervise(service, running, renewal) == 0
    assert seen == ["old", "new"]


def test_a_password_that_is_being_replaced_does_not_start_a_service_over(
    running: Running, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    file.write_text("old", encoding="utf-8")
    renewal = Renewal(by_password(file), running)
    file.unlink()
    for _ in range(3):
        renewal.look()
    assert not running.stopping.is_set()


def test_a_signal_ends_a_service_that_would_start_over(running: Running, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("old", encoding="utf-8")
    renewal, starts = Renewal(by_password(file), running), []

    def service(now: Running) -> None:
        starts.append(1)
        file.write_text("new", encoding="utf-8")
        renewal.look()
        renewal.look()
        now.ended.set()
        now.stopping.set()

    assert supervise(service, running, renewal) == 0
    assert starts == [1]


def test_a_refused_login_is_tried_again_if_its_secret_is_in_a_file(
    running: Running, tmp_path: Path
) -> None:
    refused = Misconfigured("the password is wrong", error_class=LOGIN_REFUSED)
    assert supervise(raising(refused), running) == 2
    file = tmp_path / "password"
    file.write_text("new", encoding="utf-8")
    attempts: list[int] = []

    def service(_: Running) -> None:
        attempts.append(1)
        if len(attempts) < 3:
            raise refused

    assert supervise(service, running, Renewal(by_password(file), running)) == 0
    assert len(attempts) == 3

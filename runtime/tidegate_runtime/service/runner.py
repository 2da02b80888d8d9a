"""Runs a service: logs, signals, probes, and the reaction to each error, by its `advice`.

| error's advice       | the service                            | exit status  |
|----------------------|----------------------------------------|--------------|
| retry                | starts over after a pause              | a command: 4 |
| fix: LoginRefused,   | starts over after a pause: the files   | a command: 2 |
|  credentials in files|  may be about to be replaced           |              |
| leave                | ends: another instance has taken over  | 0            |
| fix                  | ends: a person has to change something | 2            |
| stop, or another one | ends: a person has to look             | 3            |
| not an error of ours | ends: a fault of ours                  | 1            |
"""

import _thread
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Final

from tidegate_delta.errors import Misconfigured, TidegateError
from tidegate_runtime.clock import Clock, SystemClock
from tidegate_runtime.kafka.librdkafka import LOGIN_REFUSED
from tidegate_runtime.kafka.settings import KafkaSecurity, credentials_digest
from tidegate_runtime.observability import logs
from tidegate_runtime.observability.logs import log_event
from tidegate_runtime.observability.tracing import exporting
from tidegate_runtime.service import arrow_setup
from tidegate_runtime.service.health import Health, serving
from tidegate_runtime.service.settings import ServiceSettings

EXIT_OK: Final = 0
EXIT_FAULT: Final = 1
EXIT_FIX: Final = 2
EXIT_STOP: Final = 3
EXIT_RETRY: Final = 4
PAUSE_MIN_S: Final = 0.5
PAUSE_MAX_S: Final = 30.0
STEADY_S: Final = 60.0
"""A run that lasted this long counts as healthy: after its failure the pause is short again."""
SWITCH_S: Final = 0.0002
"""How long a thread may hold the interpreter (the GIL) while another one waits for it.

A request to a store releases the GIL a dozen times, once at each system call. With Python's default
of 5 ms a busy thread would delay it by sixty milliseconds.
"""
RENEWAL_LOOK_S: Final = 1.0
"""How often the files of the credentials are read."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Running:
    """The clock of a service, the health that it reports, and the event that stops it.

    `ended` is set before `stopping` if the process is to end, and not only to start over.
    """

    clock: Clock
    health: Health
    stopping: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)


class Renewal:
    """Stops a service once the files of its credentials have changed, so that it starts over.

    Clients read passwords and certificates when they are made. Brokers refuse the old ones from
    some time on, which a connection that lasts does not notice until it breaks.
    """

    def __init__(self, security: KafkaSecurity, running: Running) -> None:
        self._security = security
        self._running = running
        self._known = credentials_digest(security)
        self._seen = self._known
        self._is_due = threading.Event()

    def look(self) -> None:
        """Stop the service if all files are there, and new, and were the same at the last look.

        Certificate and key are two files, which are not replaced at the same moment.
        """
        digest = credentials_digest(self._security)
        is_settled = digest == self._seen
        self._seen = digest
        if digest == self._known or not is_settled or len(digest) < len(self._known):
            return
        self._known = digest
        files = sorted(self._security.credential_files)
        log_event(_log, "new_credentials", files=", ".join(files))
        # `stopping` comes last: a thread that sees it may already ask for the reason.
        self._is_due.set()
        self._running.stopping.set()

    def take(self) -> bool:
        """Return whether the service was stopped for new credentials, once."""
        is_due = self._is_due.is_set()
        self._is_due.clear()
        return is_due


def run(service: Callable[[Running], None], name: str, settings: ServiceSettings) -> int:
    """Set up logs, signals and probes, run a service until it ends, and return the exit status."""
    logs.configure(name, settings.log.level, settings.log.format)
    clock = SystemClock()
    running = Running(clock, Health(clock, settings.http.stalled_s))
    sys.setswitchinterval(SWITCH_S)
    arrow_setup.leave_out_pandas()
    log_event(_log, "starting", name=name, arrow_memory=arrow_setup.choose_memory_pool())
    try:
        if settings.tracing.otlp_endpoint is not None:
            log_event(_log, "exporting_spans", to=settings.tracing.otlp_endpoint)
        with (
            stop_on_signals(running.stopping, running.ended),
            renewing(settings.kafka.security, running) as renewal,
            exporting(name, settings.tracing.otlp_endpoint),
            serving(running.health, settings.http),
        ):
            status = supervise(service, running, renewal)
    except Misconfigured as error:
        log_event(_log, "misconfigured", level=logging.ERROR, why=error)
        status = EXIT_FIX
    log_event(_log, "stopped", name=name, status=status)
    return status


def supervise(
    service: Callable[[Running], None], running: Running, renewal: Renewal | None = None
) -> int:
    """Run a service, restart it after errors that may pass and after new credentials, and return
    the exit status.
    """
    pause_s = PAUSE_MIN_S
    while not running.stopping.is_set():
        began_s = running.clock.boot_s()
        try:
            service(running)
        except TidegateError as error:
            # Brokers may know the new password, and the file not yet.
            is_renewed = renewal is not None and error.error_class == LOGIN_REFUSED
            if error.advice != "retry" and not is_renewed:
                return _leave(error)
            if running.clock.boot_s() - began_s > STEADY_S:
                pause_s = PAUSE_MIN_S
            running.health.forget()
            running.health.ready(False, str(error))
            log_event(_log, "retrying", level=logging.WARNING, after_s=pause_s, why=error)
            running.stopping.wait(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)
            is_over = False
        except Exception:
            # An unforeseen exception ends the process, with its traceback in the log.
            _log.exception("fault")
            return EXIT_FAULT
        else:
            is_over = True
        if renewal is not None and renewal.take():
            running.health.forget()
            running.stopping.clear()
            is_over = running.ended.is_set()
        if is_over:
            break
    return EXIT_OK


def exit_status(error: TidegateError) -> int:
    """Return the exit status of a process that ends with this error."""
    known = {"leave": EXIT_OK, "fix": EXIT_FIX, "retry": EXIT_RETRY}
    return known.get(error.advice, EXIT_STOP)


def _leave(error: TidegateError) -> int:
    status = exit_status(error)
    level = logging.WARNING if status == EXIT_OK else logging.ERROR
    _log.log(level, "%s", error.error_class, exc_info=status == EXIT_STOP)
    log_event(_log, "leaving", level=level, advice=error.advice, why=error)
    return status


@contextmanager
def renewing(security: KafkaSecurity, running: Running) -> Iterator[Renewal | None]:
    """Look at the files of the credentials from time to time, if there are any."""
    if not security.credential_files:
        yield None
        return
    renewal, over = Renewal(security, running), threading.Event()

    def watch() -> None:
        while not over.wait(RENEWAL_LOOK_S):
            renewal.look()

    thread = threading.Thread(target=watch, name="credentials", daemon=True)
    thread.start()
    try:
        yield renewal
    finally:
        over.set()
        thread.join()


@contextmanager
def stop_on_signals(
    stopping: threading.Event, ended: threading.Event | None = None
) -> Iterator[None]:
    """Make the first SIGTERM or SIGINT request a stop, and a second one end the process at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = {sign: signal.getsignal(sign) for sign in (signal.SIGTERM, signal.SIGINT)}

    def stop() -> None:
        if ended is not None:
            ended.set()
        stopping.set()

    def ask(number: int, _frame: FrameType | None) -> None:
        # Setting the event here could deadlock: the interrupted thread may hold its lock.
        _thread.start_new_thread(stop, ())
        signal.signal(number, signal.SIG_DFL)

    for sign in former:
        signal.signal(sign, ask)
    try:
        yield
    finally:
        for sign, handler in former.items():
            signal.signal(sign, handler)

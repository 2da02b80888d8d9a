"""Runs a service: logs, signals, probes, and the reaction to each error, by its `advice`.

| error's advice       | the service                            | exit status  |
|----------------------|----------------------------------------|--------------|
| retry                | starts over after a pause              | a command: 4 |
| leave                | ends: another instance has taken over  | 0            |
| fix                  | ends: a person has to change something | 2            |
| stop, or another one | ends: a person has to look             | 3            |
| not an error of ours | ends: a fault of ours                  | 1            |
"""

import _thread
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Final

from tidegate_delta.errors import Misconfigured, TidegateError
from tidegate_runtime.clock import Clock, SystemClock
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
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Running:
    """The clock of a service, the health that it reports, and the event that stops it."""

    clock: Clock
    health: Health
    stopping: threading.Event = field(default_factory=threading.Event)


def run(service: Callable[[Running], None], name: str, settings: ServiceSettings) -> int:
    """Set up logs, signals and probes, run a service until it ends, and return the exit status."""
    logs.configure(name, settings.log.level, settings.log.format)
    clock = SystemClock()
    running = Running(clock, Health(clock, settings.http.stalled_s))
    arrow_setup.leave_out_pandas()
    log_event(_log, "starting", name=name, arrow_memory=arrow_setup.choose_memory_pool())
    try:
        if settings.tracing.otlp_endpoint is not None:
            log_event(_log, "exporting_spans", to=settings.tracing.otlp_endpoint)
        with (
            stop_on_signals(running.stopping),
            exporting(name, settings.tracing.otlp_endpoint),
            serving(running.health, settings.http),
        ):
            status = supervise(service, running)
    except Misconfigured as error:
        log_event(_log, "misconfigured", level=logging.ERROR, why=error)
        status = EXIT_FIX
    log_event(_log, "stopped", name=name, status=status)
    return status


def supervise(service: Callable[[Running], None], running: Running) -> int:
    """Run a service, restart it after errors that may pass, and return the exit status."""
    pause_s = PAUSE_MIN_S
    while not running.stopping.is_set():
        began_s = running.clock.boot_s()
        try:
            service(running)
        except TidegateError as error:
            if error.advice != "retry":
                return _leave(error)
            if running.clock.boot_s() - began_s > STEADY_S:
                pause_s = PAUSE_MIN_S
            running.health.forget()
            running.health.ready(False, str(error))
            log_event(_log, "retrying", level=logging.WARNING, after_s=pause_s, why=error)
            running.stopping.wait(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)
        except Exception:
            # An unforeseen exception ends the process, with its traceback in the log.
            _log.exception("fault")
            return EXIT_FAULT
        else:
            return EXIT_OK
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
def stop_on_signals(stopping: threading.Event) -> Iterator[None]:
    """Make the first SIGTERM or SIGINT request a stop, and a second one end the process at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = {sign: signal.getsignal(sign) for sign in (signal.SIGTERM, signal.SIGINT)}

    def ask(number: int, _frame: FrameType | None) -> None:
        # Setting the event here could deadlock: the interrupted thread may hold its lock.
        _thread.start_new_thread(stopping.set, ())
        signal.signal(number, signal.SIG_DFL)

    for sign in former:
        signal.signal(sign, ask)
    try:
        yield
    finally:
        for sign, handler in former.items():
            signal.signal(sign, handler)

"""Child processes, tethered to this one or detached, with their output in log files."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tidegate_delta.errors import Unavailable
from tidegate_runtime.service.health import PORT_FILE

_POLL_S: Final = 0.05
_TAIL_BYTES: Final = 64 * 1024
_TETHER: Final = """
import ctypes, os, signal, sys
if sys.platform.startswith("linux"):
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent has gone")
os.execvp(sys.argv[2], sys.argv[2:])
"""


@dataclass(frozen=True)
class Command:
    """What to start: a name for messages, the command line, and additions to the environment.

    A tethered child is killed when the thread that started it ends, so start it from a thread that
    lives as long as the process. A detached child outlives this process.
    """

    name: str
    argv: Sequence[str]
    environ: Mapping[str, str] = field(default_factory=dict)
    tethered: bool = True


class Child:
    """A process that we started."""

    def __init__(self, command: Command, log: Path) -> None:
        self.name = command.name
        self.log = log
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def argv(self) -> tuple[str, ...]:
        """Its command line."""
        return tuple(self._command.argv)

    @property
    def pid(self) -> int:
        """The process id of the latest start."""
        assert self._process is not None, "started"
        return self._process.pid

    def start(self) -> None:
        """Start or restart the process; its output is appended to the log file."""
        assert not self.is_alive(), "one process at a time"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        argv = list(self._command.argv)
        if self._command.tethered:
            argv = [sys.executable, "-I", "-S", "-c", _TETHER, str(os.getpid()), *argv]
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self._command.environ},
                start_new_session=True,
            )

    def is_alive(self) -> bool:
        """Return whether it runs."""
        return self._process is not None and self._process.poll() is None

    def exit_status(self) -> int | None:
        """Return the exit status, -9 after a SIGKILL, None while it runs."""
        return None if self._process is None else self._process.poll()

    def wait(self, timeout_s: float) -> int | None:
        """Return the exit status, or None if it still runs after the timeout."""
        assert self._process is not None, "started"
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        return self._process.poll()

    def signal(self, sign: signal.Signals) -> None:
        """Send a signal, if it runs."""
        if self._process is not None:
            self._process.send_signal(sign)

    def kill(self) -> None:
        """Kill it with SIGKILL, as a crash of the machine would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self, timeout_s: float = 30.0) -> int | None:
        """Send SIGTERM, then SIGKILL after the timeout, and return the exit status."""
        if self.is_alive() and self._process is not None:
            self._process.terminate()
            if self.wait(timeout_s) is None:
                self.kill()
        return self.exit_status()

    def tail(self, lines_max: int = 20) -> str:
        """Return the last lines of the log file."""
        if not self.log.exists():
            return ""
        with self.log.open("rb") as source:
            source.seek(max(0, self.log.stat().st_size - _TAIL_BYTES))
            lines = source.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-lines_max:])


class ServiceProcess:
    """A service as a child process, with log file, port file and probes."""

    def __init__(self, child: Child, port_file: Path) -> None:
        self.child = child
        self.port_file = port_file

    def start(self) -> None:
        """Start or restart the service."""
        self.port_file.unlink(missing_ok=True)
        self.child.start()

    def address(self) -> str | None:
        """Return the address of its probes, or None before it listens."""
        text = self.port_file.read_text(encoding="utf-8") if self.port_file.exists() else ""
        return f"http://127.0.0.1:{int(text)}" if text.strip() else None

    def wait_ready(self, timeout_s: float = 60.0) -> None:
        """Wait until `/readyz` answers 200.

        Raises: Unavailable, with the end of its log, if it ends or the timeout passes.
        """
        until_s = time.monotonic() + timeout_s
        response = "it does not listen"
        while time.monotonic() < until_s:
            if not self.child.is_alive():
                status = self.child.exit_status()
                raise Unavailable(self._trouble(f"ended with exit status {status}"))
            address = self.address()
            if address is not None:
                status, response = probe(f"{address}/readyz")
                if status == 200:
                    return
            time.sleep(_POLL_S)
        raise Unavailable(self._trouble(f"was not ready after {timeout_s:g} s: {response}"))

    def _trouble(self, problem: str) -> str:
        return (
            f"{self.child.name} {problem}; see {self.child.log}, which ends:\n{self.child.tail()}"
        )


def service_process(command: Command, folder: Path) -> ServiceProcess:
    """Return a service, not started, that logs to `<folder>/<name>.log`."""
    port_file = folder / f"{command.name}.port"
    environ = {**command.environ, PORT_FILE: str(port_file)}
    with_port_file = Command(command.name, command.argv, environ, command.tethered)
    return ServiceProcess(Child(with_port_file, folder / f"{command.name}.log"), port_file)


def service_argv(
    module: str, config: Path | None = None, overrides: Mapping[str, str] | None = None
) -> list[str]:
    """Return the command line that runs a service's module with its settings."""
    argv = [sys.executable, "-m", f"tidegate_{module}"]
    if config is not None:
        argv += ["--config", str(config)]
    for name, value in (overrides or {}).items():
        argv += ["--set", f"{name}={value}"]
    return argv


def probe(url: str, timeout_s: float = 5.0) -> tuple[int, str]:
    """Return the status and the body of a probe; status 0 if nothing answers."""
    try:
        with urllib.request.urlopen(url, timeout=timeout_s) as answer:
            return answer.status, answer.read().decode(errors="replace")
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace")
    except OSError as error:
        return 0, str(error)


def start_time_of(pid: int) -> str | None:
    """Return a process's start time, or None if it ended.

    It tells the process from a later one with the same id.
    """
    if not is_running(pid):
        return None
    stat = Path(f"/proc/{pid}/stat")
    if not stat.exists():
        return "unknown"
    state, *fields = stat.read_text(encoding="utf-8").rpartition(")")[2].split()
    return None if state == "Z" else fields[18]


def is_running(pid: int) -> bool:
    """Return whether a process with this id exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def end_process(pid: int, birth: str, timeout_s: float) -> bool:
    """End a process that an earlier run started, and return whether it was running."""
    if start_time_of(pid) != birth:
        return False
    os.kill(pid, signal.SIGTERM)
    until_s = time.monotonic() + timeout_s
    while start_time_of(pid) == birth:
        if time.monotonic() > until_s:
            os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL_S)
    return True

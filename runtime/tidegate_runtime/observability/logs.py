"""Logs: each line is an event name and fields, as JSON for machines or as text in a terminal."""

import json
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, Literal, TextIO

import orjson

LogFormat = Literal["auto", "json", "text"]
_AS_TEXT: Final = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
_KINDS_MAX: Final = 1_000
QUIET_S: Final = 60.0
"""How long further messages of a kind are held back after one was logged."""
_OURS: Final = "tidegate"
_NOISY: Final = ("faust", "mode", "aiokafka", "kafka", "s3fs", "botocore", "asyncio", "urllib3")
_log = logging.getLogger(__name__)


def log_event(
    logger: logging.Logger,
    event: str,
    /,
    *,
    level: int = logging.INFO,
    fault: object = None,
    **fields: object,
) -> None:
    """Log an event under its name, with its fields.

    If `fault` is an exception, its traceback is logged too.
    """
    if not logger.isEnabledFor(level):
        return
    # Made here and not by `logger.log`, which walks the stack for a source line that is not logged.
    message = _Event(event, fields)
    error = fault if isinstance(fault, BaseException) else None
    trace = None if error is None else (type(error), error, error.__traceback__)
    logger.handle(logger.makeRecord(logger.name, level, "", 0, message, (), trace))


class Repeats:
    """The kinds of messages that were logged a moment ago. Thread-safe."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._lock = threading.Lock()
        self._logged: dict[Hashable, tuple[float, int]] = {}

    def held_back(self, kind: Hashable) -> int | None:
        """Return None if a message is to be held back, else how many of its kind were."""
        with self._lock:
            now_s = self._now_s()
            at_s, held_back = self._logged.get(kind, (now_s - QUIET_S, 0))
            if now_s - at_s < QUIET_S:
                self._logged[kind] = (at_s, held_back + 1)
                return None
            if kind not in self._logged and len(self._logged) >= _KINDS_MAX:
                self._logged.clear()
            self._logged[kind] = (now_s, 0)
            return held_back


class _Foreign(logging.Filter):
    """Passes one message of each kind a minute from libraries.

    Without brokers, for example, they log each attempt to connect, sixty times a second.
    """

    def __init__(self) -> None:
        super().__init__()
        self._repeats = Repeats()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is logged."""
        if record.name.startswith(_OURS):
            return True
        held_back = self._repeats.held_back((record.name, str(record.msg)))
        if held_back:
            record.msg, record.args = _Event(record.getMessage(), {"held_back": held_back}), ()
        return held_back is not None


@dataclass(frozen=True)
class _Event:
    """The content of a log record. A program with its own logging setup gets it as text."""

    name: str
    fields: dict[str, object]

    def __str__(self) -> str:
        return self.name + "".join(
            f" {key}={_field_text(value)}" for key, value in self.fields.items()
        )


def configure(service: str, level: str, style: LogFormat, stream: TextIO | None = None) -> None:
    """Send all loggers' lines to one stream (standard error by default) in one format."""
    out = stream or sys.stderr
    readable = style == "text" or (style == "auto" and out.isatty())
    handler = logging.StreamHandler(out)
    handler.setFormatter(TextFormatter() if readable else JsonFormatter(service))
    if logging.getLevelName(level) > logging.DEBUG:
        handler.addFilter(_Foreign())
    threading.excepthook = _thread_failed
    root = logging.getLogger()
    for former in list(root.handlers):
        root.removeHandler(former)
    root.addHandler(handler)
    root.setLevel(level)
    # These are looked up for every record, and no line shows them.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    for name in _NOISY:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLevelName(level)))


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, Any] = {
            "time": _spelled_in_utc(record.created),
            "level": record.levelname,
            "service": self._service,
            "logger": record.name,
            **_fields_of(record),
        }
        if record.exc_info:
            line["exception"] = "".join(traceback.format_exception(*record.exc_info))
        return _json(line)


class TextFormatter(logging.Formatter):
    """Time, level unless it is INFO, event, fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        time = _moment(record).astimezone().strftime("%H:%M:%S")
        level = "" if record.levelno == logging.INFO else f" {record.levelname}"
        line = f"{time}{level} {record.getMessage()}"
        if record.exc_info:
            line += "\n" + "".join(traceback.format_exception(*record.exc_info)).rstrip()
        return line


def _thread_failed(failure: threading.ExceptHookArgs) -> None:
    """Log an exception that ended a thread; Python would print it, over many lines."""
    if failure.exc_value is not None and failure.exc_type is not SystemExit:
        trace = (failure.exc_type, failure.exc_value, failure.exc_traceback)
        _log.error("thread_failed", exc_info=trace)


def _json(line: dict[str, Any]) -> str:
    try:
        return orjson.dumps(line, str, _AS_TEXT).decode()
    except TypeError:
        # For numbers past 64 bits and lone surrogates: they are rare, and no line may be lost.
        return json.dumps(line, default=str, ensure_ascii=False)


def _fields_of(record: logging.LogRecord) -> dict[str, object]:
    message: object = record.msg
    if isinstance(message, _Event):
        return {"event": message.name, **message.fields}
    return {"event": record.getMessage()}


def _spelled_in_utc(moment_s: float) -> str:
    """Return a time as it is logged: cut to the millisecond, as `isoformat` does."""
    second = int(moment_s)
    return f"{_second_text(second)}.{int((moment_s - second) * 1000):03d}+00:00"


@lru_cache(maxsize=2)
def _second_text(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _moment(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _field_text(value: object) -> str:
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if " " in text or not text else text

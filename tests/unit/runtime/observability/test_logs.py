"""A log line is an event's name and its fields, for machines and for people."""

import io
import json
import logging
import threading
from collections.abc import Iterator

import pytest

from tidegate_runtime.observability import logs
from tidegate_runtime.observability.logs import LogFormat, log_event

_log = logging.getLogger("tidegate.test")


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, hook = list(root.handlers), root.level, threading.excepthook
    yield
    threading.excepthook = hook
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(style: LogFormat, level: str = "INFO") -> io.StringIO:
    out = io.StringIO()
    logs.configure("committer", level, style, out)
    return out


def test_a_json_line_holds_the_event_and_its_fields() -> None:
    out = lines("json")
    log_event(_log, "committed", table="flights", version=3)
    line = json.loads(out.getvalue())
    assert line["event"] == "committed"
    assert (line["service"], line["level"]) == ("committer", "INFO")
    assert (line["table"], line["version"]) == ("flights", 3)


def test_a_stream_that_is_no_terminal_gets_json() -> None:
    out = lines("auto")
    log_event(_log, "committed")
    assert json.loads(out.getvalue())["event"] == "committed"


def test_a_readable_line_quotes_what_has_spaces() -> None:
    out = lines("text")
    log_event(_log, "rejected", level=logging.WARNING, rule="append", why="a b")
    assert out.getvalue().endswith('WARNING rejected rule=append why="a b"\n')


def test_what_is_below_the_level_is_not_written() -> None:
    out = lines("json", "WARNING")
    log_event(_log, "committed")
    assert out.getvalue() == ""


def test_an_exception_is_one_line_of_json_with_its_trace() -> None:
    out = lines("json")
    try:
        raise ValueError("odd")
    except ValueError:
        _log.exception("fault")
    (line,) = out.getvalue().splitlines()
    assert "ValueError: odd" in json.loads(line)["exception"]


def test_a_field_that_is_no_json_is_written_as_text() -> None:
    out = lines("json")
    log_event(_log, "stopped", why=ValueError("odd"))
    assert json.loads(out.getvalue())["why"] == "odd"


def test_a_program_that_logs_by_itself_sees_the_fields_too() -> None:
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    logging.getLogger().handlers[:] = [handler]
    log_event(_log, "librdkafka", level=logging.WARNING, why="Connection refused")
    assert out.getvalue() == 'librdkafka why="Connection refused"\n'


def test_what_libraries_repeat_is_logged_once_a_minute_of_each_kind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out, library = lines("json"), logging.getLogger("aiokafka")
    for port in range(100):
        library.error("Unable connect to node with id %s: %s", 1, f"port {port}")
    library.error("Unable to update metadata from %s", [1])
    for _ in range(2):
        log_event(_log, "resting")
    monkeypatch.setattr(logs, "QUIET_S", 0.0)
    library.error("Unable connect to node with id %s: %s", 1, "port 100")
    result = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [item["event"].rpartition(":")[0] or item["event"] for item in result] == [
        "Unable connect to node with id 1",
        "Unable to update metadata from [1]",
        *("resting", "resting"),
        "Unable connect to node with id 1",
    ]
    assert [one.get("held_back") for one in result] == [None, None, None, None, 99]


def test_the_debug_level_shows_all_logs_of_libraries() -> None:
    out = lines("json", "DEBUG")
    for _ in range(3):
        logging.getLogger("aiokafka").error("Unable to update metadata")
    assert len(out.getvalue().splitlines()) == 3


def test_what_a_thread_ends_over_is_one_line_of_json() -> None:
    out = lines("json")

    def fail() -> None:
        raise RuntimeError("nobody caught it")

    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    [line] = out.getvalue().splitlines()
    assert json.loads(line)["event"] == "thread_failed"
    assert "nobody caught it" in json.loads(line)["exception"]

"""A line is an event's name and fields, for machines and for people."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from tidegate.runtime import logs
from tidegate.runtime.logs import Format, log_event

_log = logging.getLogger("tidegate.test")


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(style: Format, level: str = "INFO") -> io.StringIO:
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

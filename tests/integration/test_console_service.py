"""The operations page against a real broker and a real table, as its command serves it."""

import re
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.parse import urlencode

import deltalake
import pyarrow as pa
import pytest

from tests.integration.conftest import Line, free_port
from tests.integration.waiting import until
from tidegate_local.child_processes import Command, service_process
from tidegate_producers.options import TableLocation
from tidegate_producers.writing.table_requests import register
from tidegate_runtime.client.client import Client
from tidegate_runtime.kafka.confluent_bus import KafkaBus

pytestmark = pytest.mark.broker

TOKEN = "a-token-of-an-operator"


class Browser:
    """Gets pages, sends forms, and keeps cookies; it runs no scripts."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))

    def page(self, path: str, form: Mapping[str, str] | None = None) -> str:
        """Return a page, where a form leads to, or the text of an error."""
        body = urlencode(form).encode() if form is not None else None
        try:
            with self._opener.open(self.address + path, body, timeout=60) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            return error.read().decode()
        except urllib.error.URLError as error:
            return f"no answer: {error}"


def test_the_page_shows_a_table_and_an_operator_halts_it(line: Line, tmp_path: Path) -> None:
    line.started("committer", "committer")
    deltalake.write_deltalake(line.tables / "shop", pa.table({"k": [1, 2]}))
    root = (line.tables / "shop").as_uri()
    with Client(KafkaBus(line.kafka, "test"), line.kafka.topics) as client:
        register(client, TableLocation(root, {}), "shop", 60.0)
    token, port = tmp_path / "token", free_port()
    token.write_text(TOKEN, encoding="utf-8")
    own = {
        **line.settings,
        "console.port": str(port),
        "console.refresh_s": "1",
        "console.operator_token_location": str(token),
    }
    argv = [
        sys.executable,
        "-m",
        "tidegate_console.web.command",
        *(f"--set={k}={v}" for k, v in own.items()),
    ]
    console = service_process(Command("console", argv), tmp_path)
    console.start()
    try:
        console.wait_ready()
        browser = Browser(f"http://127.0.0.1:{port}")
        until(lambda: ">shop</a>" in browser.page("/tables"), "the table")
        (table,) = set(re.findall(r'href="/tables/([0-9a-f-]{36})"', browser.page("/tables")))
        assert "WRITE" in browser.page(f"/tables/{table}/history")
        assert "no checkpoint" in browser.page(f"/tables/{table}/shape")
        assert "the committer, which publishes" in browser.page(f"/tables/{table}/holders")
        # The registration is a proposal, too.
        (proposal,) = set(
            re.findall(r'href="/proposals/([0-9a-f-]{36})"', browser.page("/proposals"))
        )
        assert "committed" in browser.page(f"/proposals/{proposal}")
        assert "cdc-publisher" in browser.page("/")
        assert "0 in the topic" in browser.page("/dead-letters")

        browser.page("/sign-in", {"token": TOKEN})
        csrf = re.findall(r'name="csrf" value="([^"]+)"', browser.page(f"/tables/{table}"))[0]
        halt = {"csrf": csrf, "why": "a restore"}
        assert "shop is halted" in browser.page(f"/tables/{table}/halt", halt)
        with Client(KafkaBus(line.kafka, "test"), line.kafka.topics) as client:
            assert client.require(root).halted_by_hand == "a restore"
        assert "halted by hand" in browser.page("/tables?state=halted+by+hand")
        assert "shop is open again" in browser.page(f"/tables/{table}/reopen", {"csrf": csrf})
    finally:
        console.child.stop()
    log = console.child.log.read_text(encoding="utf-8")
    assert console.child.exit_status() == 0, log
    assert "operator_action" in log
    assert TOKEN not in log

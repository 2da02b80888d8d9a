"""The operations page: what it shows, to whom, and that nobody changes anything by accident."""

import re
from html.parser import HTMLParser
from pathlib import Path
from uuid import UUID

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from tests.builders import StillClock
from tests.unit.console.installation import (
    ASIDE,
    BY_HAND,
    HALTED,
    HOSTILE,
    REJECTED,
    WELL,
    MadeUp,
    overview,
)
from tests.unit.console.test_attention import NOW_MS
from tidegate_console.overview import Overview
from tidegate_console.web.app import Pages, console_app
from tidegate_console.web.overview_keeper import OverviewKeeper
from tidegate_console.web.page_values import age, size
from tidegate_console.web.sign_in import COOKIE, SESSION_S, Operators
from tidegate_delta.errors import Misconfigured, Unavailable

TOKEN = "a-token-of-an-operator"
PAGES = (
    "/",
    "/tables",
    "/tables?state=halted",
    f"/tables/{HALTED}",
    f"/tables/{WELL}/history",
    f"/tables/{WELL}/shape",
    f"/tables/{WELL}/ingest",
    f"/tables/{WELL}/maintenance",
    f"/tables/{HALTED}/maintenance",
    f"/tables/{WELL}/holders",
    "/proposals",
    f"/proposals?table={WELL}",
    f"/proposals/{REJECTED}",
    "/streams",
    "/streams?state=stopped",
    "/dead-letters",
    "/sign-in",
)


class Site:
    """The application over a made-up installation, and somebody's browser."""

    def __init__(self, folder: Path, *, with_operators: bool, tables: int = 12) -> None:
        token = folder / "token"
        token.write_text(TOKEN + "\n", encoding="utf-8")
        self.clock, self.made_up = StillClock(epoch_ms=NOW_MS), MadeUp(tables)
        self.operators = Operators(str(token) if with_operators else None, self.clock)
        self.keeper = OverviewKeeper(self.made_up.overview, 5.0)
        self.keeper.read_now()
        pages = Pages(self.keeper, self.made_up, self.operators, self.clock)
        self.app: FastAPI = console_app(pages, self.made_up)
        self.browser = TestClient(self.app, "http://console", follow_redirects=False)

    def signed_in(self) -> str:
        """Sign in, and return the CSRF token of a table's page."""
        answer = self.browser.post("/sign-in", data={"token": TOKEN})
        assert answer.status_code == 303
        page = self.browser.get(f"/tables/{WELL}").text
        return str(re.findall(r'name="csrf" value="([^"]+)"', page)[0])


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path, with_operators=True)


class Page(HTMLParser):
    """Collects what tests ask of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.scripts: list[str | None] = []
        self.ids: list[str] = []
        self.handlers: list[str] = []
        self.labelled, self.fields, self._depth = 0, 0, 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.handlers += [name for name in given if name.startswith("on") or name == "style"]
        if "id" in given:
            self.ids.append(str(given["id"]))
        if tag == "script":
            self.scripts.append(given.get("src"))
        if tag == "a":
            self.links.append(str(given["href"]))
        if tag == "label":
            self._depth += 1
        if tag in ("input", "select") and "hidden" not in (*given, given.get("type")):
            self.fields += 1
            self.labelled += self._depth > 0

    def handle_endtag(self, tag: str) -> None:
        self._depth -= tag == "label"


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_whole_without_scripts_and_runs_none_of_its_data(site: Site, path: str) -> None:
    answer = site.browser.get(path)
    assert answer.status_code == 200, answer.text
    page = Page(answer.text)
    assert HOSTILE not in answer.text
    assert all(source and source.startswith("/static/") for source in page.scripts)
    assert not page.handlers, "the policy would ignore them"
    assert page.labelled == page.fields
    assert len(set(page.ids)) == len(page.ids)
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    assert answer.headers["cache-control"] == "no-store"


def test_every_link_of_every_page_leads_somewhere(site: Site) -> None:
    seen: set[str] = set()
    for path in PAGES:
        seen |= {link for link in Page(site.browser.get(path).text).links if link[:1] == "/"}
        seen |= set(re.findall(r'(?:href|src)="(/static/[^"]+)"', site.browser.get(path).text))
    assert f"/tables/{HALTED}" in seen
    gone = {link for link in seen if site.browser.get(link).status_code != 200}
    # A winner of the made-up explanation is older than the topic.
    assert gone == {f"/proposals/{UUID(int=76)}", f"/proposals/{UUID(int=78)}"}


def test_what_needs_somebody_stands_first(site: Site) -> None:
    names = re.findall(r"orders_(\d{4})</a>", site.browser.get("/tables").text)
    assert names[:3] == ["0001", "0002", "0003"]
    assert len(names) == 12
    shown = site.browser.get("/").text
    assert shown.index("LogGap") < shown.index("halted by hand")
    assert "tidegate table retry main.sales.orders_0001" in shown


def test_a_filter_is_a_link_that_can_be_sent_to_a_colleague(site: Site) -> None:
    shown = site.browser.get("/tables?q=0007&state=open").text
    assert re.findall(r"orders_(\d{4})</a>", shown) == ["0007"]
    assert 'value="0007"' in shown
    assert "0 tables" in site.browser.get("/tables?q=nothing").text
    assert re.findall(r"orders_(\d{4})</a>", site.browser.get(f"/tables?q={BY_HAND}").text) == [
        "0003"
    ]


def test_a_rejection_says_why_and_what_to_do(site: Site) -> None:
    shown = site.browser.get(f"/proposals/{REJECTED}").text
    for said in ("concurrent_append", "ConcurrentAppendException", "version 44", "day = 2026"):
        assert said in shown
    moved = site.browser.get("/proposals", params={"id": f" {REJECTED} "})
    assert moved.headers["location"] == f"/proposals/{REJECTED}"
    assert site.browser.get("/proposals?id=rubbish").status_code == 400
    missing = site.browser.get(f"/proposals/{WELL}")
    assert missing.status_code == 404
    assert "was never sent" in missing.text


def test_how_far_a_table_is_in_the_topics_that_are_copied_into_it(site: Site) -> None:
    text = site.browser.get(f"/tables/{WELL}/ingest").text
    cells = re.findall(r"<t[hd][^>]*>([^<]+)</t[hd]>", text)
    assert cells[6:10] == ["orders", "0", "41", "3"]
    assert "the topic was made anew since" in cells


def test_what_the_maintainer_did_last_and_why_nothing_is_due(site: Site) -> None:
    text = site.browser.get(f"/tables/{WELL}/maintenance").text
    for said in ("a backfill runs", "nothing: its files are few", "12 files become 1", "maintain"):
        assert said in text
    assert "No maintainer has looked" in site.browser.get(f"/tables/{HALTED}/maintenance").text


def test_without_a_token_nobody_can_change_anything(tmp_path: Path) -> None:
    site = Site(tmp_path, with_operators=False)
    assert "read only" in site.browser.get("/").text
    assert site.browser.post("/sign-in", data={"token": TOKEN}).status_code == 403
    for action in ("halt", "reopen", "retry"):
        assert site.browser.post(f"/tables/{WELL}/{action}").status_code == 403
    assert site.made_up.done == []


def test_an_operator_acts_by_the_forms_of_their_own_pages_only(site: Site) -> None:
    assert '<form method="post"' not in site.browser.get(f"/tables/{WELL}").text
    assert site.browser.post("/sign-in", data={"token": "another"}).status_code == 403
    csrf = site.signed_in()
    path = f"/tables/{WELL}/halt"
    assert site.browser.post(path, data={"why": "no token"}).status_code == 403
    assert site.browser.post(path, data={"why": "w", "csrf": "guessed"}).status_code == 403
    foreign = {"origin": "https://evil.example"}
    form = {"why": "a restore", "csrf": csrf}
    assert site.browser.post(path, data=form, headers=foreign).status_code == 403
    assert site.made_up.done == []
    done = site.browser.post(path, data=form, headers={"origin": "http://console"})
    assert done.status_code == 303
    assert site.made_up.done == [("halt", "main.sales.orders_0004: a restore")]
    assert (
        "halt: main.sales.orders_0004: a restore" in site.browser.get(done.headers["location"]).text
    )
    assert site.browser.post(f"/tables/{WELL}/drop", data=form).status_code == 404


def test_a_session_is_a_cookie_for_this_site_only_and_ends(site: Site) -> None:
    answer = site.browser.post("/sign-in", data={"token": TOKEN})
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"{COOKIE}=")
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert TOKEN not in cookie
    site.clock.boot = SESSION_S + 1
    assert site.browser.post(f"/tables/{WELL}/retry", data={"csrf": "x"}).status_code == 403
    site.clock.boot = 0
    csrf = site.signed_in()
    assert site.browser.post("/sign-out", data={"csrf": csrf}).status_code == 303
    assert "Sign in" in site.browser.get("/").text


def test_a_token_that_could_be_guessed_is_refused(tmp_path: Path) -> None:
    short = tmp_path / "short"
    short.write_text("1234", encoding="utf-8")
    with pytest.raises(Misconfigured, match="fewer than 16 characters"):
        Operators(str(short), StillClock(epoch_ms=NOW_MS))
    with pytest.raises(Misconfigured, match="cannot be read"):
        Operators(str(tmp_path / "absent"), StillClock(epoch_ms=NOW_MS))


def test_a_form_that_is_too_large_is_refused(site: Site) -> None:
    assert site.browser.post("/sign-in", content=b"token=" + b"x" * 70_000).status_code == 413


def test_the_last_reading_is_shown_while_kafka_is_away(site: Site) -> None:
    def away() -> Overview:
        raise Unavailable("no broker answers; look whether they run")

    site.keeper._read = away
    before = site.keeper.newest
    kept = site.keeper.read_now()
    assert kept.change == before.change + 1
    assert site.keeper.read_now().change == kept.change, "it is as away as before"
    shown = site.browser.get("/tables").text
    assert "no broker answers" in shown
    assert "orders_0001" in shown


def test_before_the_first_reading_the_page_shows_that(tmp_path: Path) -> None:
    site = Site(tmp_path, with_operators=False)
    keeper = OverviewKeeper(site.made_up.overview, 5.0)
    pages = Pages(keeper, site.made_up, site.operators, site.clock)
    answer = TestClient(console_app(pages, site.made_up)).get("/tables")
    assert answer.status_code == 503
    assert "Kafka is being read" in answer.text


def test_a_reading_that_is_the_same_is_no_change(site: Site) -> None:
    before = site.keeper.newest
    assert site.keeper.read_now().change == before.change
    site.made_up.count = 13
    assert site.keeper.read_now().change == before.change + 1


def test_a_thousand_tables_are_shown_by_the_page(tmp_path: Path) -> None:
    site = Site(tmp_path, with_operators=False, tables=1_000)
    shown = site.browser.get("/tables?page=5").text
    assert "1000 tables, page 5 of 5" in shown
    assert len(re.findall(r"orders_(\d{4})</a>", shown)) == 200
    assert "page 5 of 5" in site.browser.get("/tables?page=99").text


def test_sizes_and_ages_are_shown_in_one_unit() -> None:
    assert [size(n) for n in (0, 1023, 1024, 5 * 2**30)] == [
        "0 bytes",
        "1023 bytes",
        "1.0 KiB",
        "5.0 GiB",
    ]
    hour = 3_600_000
    assert [age(NOW_MS - ms, NOW_MS) for ms in (0, 59_000, hour, 49 * hour)] == [
        "now",
        "59 s ago",
        "1 h ago",
        "2 d ago",
    ]
    assert age(None, NOW_MS) == ""
    assert overview(12).quarantined.keys() == {ASIDE}

"""The operations page in a real browser: axe's rules, keys, dark colours, live contents.

`SCREENSHOTS=FOLDER` keeps the pictures.
"""

import asyncio
import importlib.resources
import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn

from tests.builders import StillClock
from tests.integration import chromium
from tests.integration.chromium import Tab, browser
from tests.unit.console.installation import HALTED, REJECTED, WELL, MadeUp
from tests.unit.console.test_attention import NOW_MS
from tests.unit.console.test_web import TOKEN
from tidegate_console.web.app import Pages, console_app
from tidegate_console.web.overview_keeper import OverviewKeeper
from tidegate_console.web.sign_in import Operators

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(chromium.chromium() is None, reason=chromium.MISSING),
]

PAGES = {
    "overview": "/",
    "tables": "/tables",
    "table": f"/tables/{HALTED}",
    "table-well": f"/tables/{WELL}",
    "history": f"/tables/{WELL}/history",
    "proposals": "/proposals",
    "proposal": f"/proposals/{REJECTED}",
    "streams": "/streams",
    "dead-letters": "/dead-letters",
    "sign-in": "/sign-in",
    "error": "/proposals?id=rubbish",
}
AXE = """
axe.run({resultTypes: ["violations"]}).then(found => JSON.stringify(
  found.violations.map(one => [one.id, one.nodes.map(node => node.html)])
))
"""


class Site:
    """The application on a port, over a made-up installation."""

    def __init__(self, folder: Path) -> None:
        token = folder / "token"
        token.write_text(TOKEN, encoding="utf-8")
        clock = StillClock(epoch_ms=NOW_MS)
        self.made_up = MadeUp(30)
        self.keeper = OverviewKeeper(self.made_up.overview, 5.0)
        self.keeper.read_now()
        pages = Pages(self.keeper, self.made_up, Operators(str(token), clock), clock)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._server = uvicorn.Server(
            uvicorn.Config(
                console_app(pages, self.made_up), log_config=None, timeout_graceful_shutdown=1
            )
        )
        self._thread = threading.Thread(target=self._server.run, args=([self._listening],))

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Answer no more."""
        self._server.should_exit = True
        self._thread.join()
        self._listening.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    site.start()
    yield site
    site.stop()


def pictures(tmp_path: Path) -> Path:
    """Return the folder for pictures."""
    folder = Path(os.environ.get("SCREENSHOTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def test_the_pages_keep_axes_rules_in_light_and_dark_and_on_a_telephone(
    site: Site, tmp_path: Path
) -> None:
    axe = importlib.resources.files("axe_core_python").joinpath("axe.min.js").read_text()
    program = chromium.chromium()
    assert program is not None

    async def look() -> dict[str, list[object]]:
        result: dict[str, list[object]] = {}
        async with browser(program, tmp_path) as tab:
            for name, path in PAGES.items():
                for style, (dark, width) in {
                    "light": (False, 1280),
                    "dark": (True, 1280),
                    "narrow": (True, 390),
                }.items():
                    await tab.look(dark=dark, width=width)
                    await tab.open(site.address + path)
                    await tab.until("!document.querySelector('.htmx-request')")
                    await tab.picture(pictures(tmp_path) / f"{name}-{style}.png")
                    if await tab.evaluate(
                        "document.documentElement.scrollWidth > window.innerWidth"
                    ):
                        result[f"{name} {style}"] = ["too wide"]
                    if style != "narrow":
                        await tab.evaluate(axe + "; true")
                        violations = json.loads(await tab.evaluate(AXE))
                        result[f"{name} {style}"] = violations
            result["complaints"] = [
                complaint
                for complaint in tab.complaints
                if "rubbish" not in complaint  # the page of an error
            ]
        return result

    result = asyncio.run(look())
    assert [(name, wrong) for name, wrong in result.items() if wrong] == []


async def focused(tab: Tab) -> str:
    """Return the text, or the name, of what has the focus."""
    return str(
        await tab.evaluate("document.activeElement.name || document.activeElement.textContent")
    )


def test_keys_lead_everywhere_and_news_come_without_loading_the_page(
    site: Site, tmp_path: Path
) -> None:
    program = chromium.chromium()
    assert program is not None

    async def use() -> None:
        async with browser(program, tmp_path) as tab:
            await tab.open(site.address)
            await tab.press("Tab")
            assert await focused(tab) == "Skip to content"
            await tab.press("g")
            await tab.press("t")
            await tab.until("location.pathname === '/tables' && !!window.htmx")
            await tab.press("/")
            assert await focused(tab) == "q"
            await tab.evaluate("window.stays = true; document.activeElement.blur(); true")
            # A table more is there: it comes by an event, into the page as it is.
            assert "30 tables" in await tab.evaluate("document.querySelector('main').innerText")
            site.made_up.count = 31
            site.keeper.read_now()
            await tab.until("document.querySelector('main').innerText.includes('31 tables')")
            assert await tab.evaluate("window.stays") is True
            # The parts of a table come by themselves.
            await tab.open(f"{site.address}/tables/{WELL}")
            await tab.until("document.body.innerText.includes('the change publisher needs')")
            await tab.until("document.body.innerText.includes('OPTIMIZE')")
            # An operator signs in, and halts a table.
            await tab.open(f"{site.address}/sign-in")
            await tab.evaluate(
                f"document.querySelector('[name=token]').value = '{TOKEN}';"
                "document.querySelector('main form').requestSubmit(); true"
            )
            await tab.until("location.pathname === '/'")
            await tab.open(f"{site.address}/tables/{WELL}")
            await tab.evaluate(
                "document.querySelector('[name=why]').value = 'a restore';"
                "document.querySelector('form[action$=halt]').requestSubmit(); true"
            )
            await tab.until("!!document.querySelector('.done')")
            await tab.picture(pictures(tmp_path) / "operator.png")
            assert tab.complaints == []

    asyncio.run(use())
    assert site.made_up.done == [("halt", "main.sales.orders_0004: a restore")]

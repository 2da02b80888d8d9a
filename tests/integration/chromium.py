"""A headless Chromium, driven by its DevTools protocol: pages, keys, scripts, pictures."""

import asyncio
import base64
import itertools
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
STARTS_S, ANSWER_S = 60.0, 60.0
MISSING = "there is no Chromium: install it (Debian: `apt-get install chromium`)"


def chromium() -> str | None:
    """Return the path of a Chromium, or None."""
    return next((result for name in PROGRAMS if (result := shutil.which(name))), None)


class Tab:
    """A page of the browser. `complaints` has what the browser says is wrong with it."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._loaded = asyncio.Event()
        self.complaints: list[str] = []
        self._reading = asyncio.create_task(self._read())

    async def call(self, method: str, **params: Any) -> Any:
        """Return the answer to a command of the DevTools protocol."""
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        return await asyncio.wait_for(answer, ANSWER_S)

    async def open(self, address: str) -> None:
        """Go to an address, and wait until it is loaded."""
        self._loaded.clear()
        await self.call("Page.navigate", url=address)
        await asyncio.wait_for(self._loaded.wait(), ANSWER_S)

    async def evaluate(self, script: str) -> Any:
        """Return the value of an expression in the page, a promise's too."""
        answer = await self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    async def until(self, script: str) -> None:
        """Wait until an expression in the page is true."""
        async with asyncio.timeout(ANSWER_S):
            while not await self.evaluate(script):
                await asyncio.sleep(0.1)

    async def press(self, key: str) -> None:
        """Press and release a key."""
        text = {"text": key} if len(key) == 1 else {}
        codes = {"Tab": 9, "Enter": 13}
        if key == "Enter":
            text = {"text": "\r"}
        code = {"windowsVirtualKeyCode": codes[key]} if key in codes else {}
        for kind in ("keyDown", "keyUp"):
            extra = text if kind == "keyDown" else {}
            await self.call("Input.dispatchKeyEvent", type=kind, key=key, **code, **extra)

    async def look(self, *, dark: bool = False, width: int = 1280) -> None:
        """Set the colours that the reader prefers, and the width of the window."""
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        await self.call("Emulation.setEmulatedMedia", features=features)
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )

    async def picture(self, file: Path) -> None:
        """Write a picture of what is seen of the page."""
        answer = await self.call("Page.captureScreenshot", format="png")
        file.write_bytes(base64.b64decode(answer["data"]))

    async def close(self) -> None:
        """Stop listening."""
        self._reading.cancel()
        with suppress(asyncio.CancelledError):
            await self._reading

    async def _read(self) -> None:
        async for message in self._socket:
            told = message.json()
            params = told.get("params", {})
            match told.get("method"):
                case None if "error" in told:
                    self._answers.pop(told["id"]).set_exception(RuntimeError(told["error"]))
                case None:
                    self._answers.pop(told["id"]).set_result(told["result"])
                case "Page.loadEventFired":
                    self._loaded.set()
                case "Log.entryAdded":
                    self.complaints.append(
                        f"{params['entry']['text']} {params['entry'].get('url')}"
                    )
                case "Runtime.exceptionThrown":
                    self.complaints.append(str(params["exceptionDetails"]))


@asynccontextmanager
async def browser(program: str, folder: Path) -> AsyncIterator[Tab]:
    """Yield a tab of a new browser, whose profile is in a folder."""
    log = (folder / "chromium.log").open("wb")
    arguments = [
        "--headless=new",
        "--no-sandbox",  # it sees pages of ours only, and containers have no user namespaces
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--remote-debugging-port=0",
        f"--user-data-dir={folder / 'profile'}",
        "about:blank",
    ]
    process = subprocess.Popen([program, *arguments], stdout=log, stderr=log)
    try:
        port_file = folder / "profile" / "DevToolsActivePort"
        async with asyncio.timeout(STARTS_S):
            while not port_file.exists() or not port_file.read_text().strip():
                assert process.poll() is None, (folder / "chromium.log").read_text()[-2000:]
                await asyncio.sleep(0.1)
        port = int(port_file.read_text().split()[0])
        async with aiohttp.ClientSession() as session:
            address = f"http://127.0.0.1:{port}/json/list"
            async with asyncio.timeout(STARTS_S):
                tabs: list[Any] = []
                while not tabs:
                    async with session.get(address) as answer:
                        tabs = [one for one in await answer.json() if one["type"] == "page"]
            socket = await session.ws_connect(tabs[0]["webSocketDebuggerUrl"], max_msg_size=0)
            tab = Tab(socket)
            for domain in ("Page", "Runtime", "Log"):
                await tab.call(f"{domain}.enable")
            try:
                yield tab
            finally:
                await tab.close()
    finally:
        process.terminate()
        process.wait(30)
        log.close()

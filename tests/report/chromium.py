"""A headless Chromium, driven over its DevTools protocol: pages as a reader sees them."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tornado.httpclient import AsyncHTTPClient
from tornado.websocket import websocket_connect

NAMES = ("chromium", "chromium-browser", "google-chrome")
_OPTIONS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--hide-scrollbars", "--remote-debugging-port=0", "--remote-allow-origins=*"),
)


def executable() -> str | None:
    """Return the path of a Chromium, if there is one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@dataclass(frozen=True)
class Screen:
    """What a page is looked at on."""

    width: int
    height: int = 900
    scheme: str = "light"


@dataclass
class Seen:
    """What came of a page: errors, requests, the answer to a question, a picture."""

    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    answer: Any = None
    picture: bytes = b""


def look_at(page: Path | str, screens: Sequence[Screen], question: str, ready: str) -> list[Seen]:
    """Open a file or URL on each screen; evaluate ``question`` once ``ready`` is true."""
    with _browser() as port:
        return [asyncio.run(_look(port, page, screen, question, ready)) for screen in screens]


@contextmanager
def _browser():
    path = executable()
    assert path is not None
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [path, *_OPTIONS, f"--user-data-dir={folder}", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            port = Path(folder) / "DevToolsActivePort"
            deadline = time.monotonic() + 60
            while not (port.exists() and port.read_text()):
                assert time.monotonic() < deadline, "Chromium did not start"
                assert process.poll() is None, "Chromium ended"
                time.sleep(0.05)
            yield int(port.read_text().split()[0])
        finally:
            process.terminate()
            process.wait(30)
            shutil.rmtree(folder, ignore_errors=True)  # Chromium's children still write to it
            Path(folder).mkdir(exist_ok=True)


async def _look(port: int, page: Path | str, screen: Screen, question: str, ready: str) -> Seen:
    answer = await AsyncHTTPClient().fetch(
        f"http://127.0.0.1:{port}/json/new?about:blank", method="PUT", body=""
    )
    tab = json.loads(answer.body)
    socket = await websocket_connect(tab["webSocketDebuggerUrl"], max_message_size=1 << 27)
    session = _Session(socket)
    size = {"width": screen.width, "height": screen.height, "deviceScaleFactor": 1}
    phone = screen.width < 600
    for method in ("Page.enable", "Runtime.enable", "Log.enable", "Network.enable"):
        await session.ask(method)
    await session.ask("Emulation.setDeviceMetricsOverride", **size, mobile=phone)
    scheme = {"name": "prefers-color-scheme", "value": screen.scheme}
    await session.ask("Emulation.setEmulatedMedia", features=[scheme])
    url = page.as_uri() if isinstance(page, Path) else page
    await session.ask("Page.navigate", url=url)
    deadline = time.monotonic() + 60
    while not await session.value(ready):
        assert time.monotonic() < deadline, session.seen.errors or "the page was never ready"
        await asyncio.sleep(0.1)
    session.seen.answer = await session.value(question)
    await session.ask("Emulation.setDeviceMetricsOverride", **size, mobile=phone)
    await asyncio.sleep(0.3)
    shot = await session.ask("Page.captureScreenshot", format="png")
    session.seen.picture = base64.b64decode(shot["data"])
    socket.close()
    return session.seen


class _Session:
    def __init__(self, socket: Any) -> None:
        self.seen = Seen()
        self._socket = socket
        self._number = 0

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command; note what the page reports until the answer comes."""
        self._number += 1
        request = {"id": self._number, "method": method, "params": params}
        await self._socket.write_message(json.dumps(request))
        while True:
            text = await asyncio.wait_for(self._socket.read_message(), 60)
            message = json.loads(text)
            if message.get("id") == self._number:
                assert "error" not in message, message
                return message["result"]
            self._note(message.get("method"), message.get("params", {}))

    async def value(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript."""
        answer = await self.ask(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def _note(self, method: str | None, params: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.seen.requests.append(params["request"]["url"][:200])
        elif method == "Runtime.exceptionThrown":
            self.seen.errors.append(json.dumps(params["exceptionDetails"])[:2000])
        elif method == "Runtime.consoleAPICalled" and params["type"] in (
            "error",
            "warning",
            "assert",
        ):
            self.seen.errors.append(json.dumps(params["args"])[:2000])
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.seen.errors.append(params["entry"]["text"])

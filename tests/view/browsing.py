"""The page as a reader sees it: Debian's Chromium, headless, and a picture served from a thread of its own.

What a page did that it must not (an error on its console, a request that leaves loopback) is kept and ends the test.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from playwright.sync_api import Browser, Page, expect, sync_playwright
from viewing import Served, served

CHROMIUM = Path("/usr/bin/chromium")
PATIENCE = 20_000  # ms for a text to appear; how long it takes is the benchmark's to say
expect.set_options(timeout=PATIENCE)


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Root has no sandbox to make, and a container little shared memory."""
    with sync_playwright() as library:
        browser = library.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        )
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def opened(browser: Browser, address: str, **context: Any) -> Iterator[Page]:
    """A page at that address, in a window of its own; it has done nothing wrong when it is closed."""
    window = browser.new_context(**context)
    window.set_default_timeout(PATIENCE)
    page = window.new_page()
    wrong: list[str] = []
    page.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", lambda dialog: wrong.append(f"dialog {dialog.message}") or dialog.dismiss())
    page.on("request", lambda request: None if is_ours(request.url) else wrong.append(f"asked {request.url}"))
    try:
        page.goto(address)
        yield page
        assert wrong == []
    finally:
        window.close()


def is_ours(url: str) -> bool:
    return urlsplit(url).scheme == "data" or urlsplit(url).hostname == "127.0.0.1"


class Shown:
    """A picture that a thread serves; it is changed in that thread."""

    def __init__(self, server: Served, loop: asyncio.AbstractEventLoop) -> None:
        self._served, self._loop = server, loop
        self.address, self.source = server.address, server.source

    def node(self, name: str, status: dict[str, Any], *, at: float) -> None:
        self._do(lambda: self._served.picture.status(name, msgspec.json.encode(status), at=at))

    def lost(self, name: str, problem: str) -> None:
        self._do(lambda: self._served.picture.lost(name, problem))

    def router(self, name: str, **content: Any) -> None:
        self._do(lambda: self._served.picture.router(name, msgspec.json.encode({"name": name, **content})))

    def cut(self, *links: str) -> None:
        self._do(lambda: self._served.picture.fabric(links))

    def happened(self, name: str, number: int, **row: Any) -> None:
        self._do(lambda: self._served.picture.happened(name, number, row))

    def _do(self, change: Callable[[], None]) -> None:
        async def done() -> None:
            change()

        asyncio.run_coroutine_threadsafe(done(), self._loop).result(10)


@contextlib.contextmanager
def shown() -> Iterator[Shown]:
    begun: list[Shown] = []
    ready = threading.Event()
    ended: list[Callable[[], None]] = []

    async def serve() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        async with served() as server:
            begun.append(Shown(server, loop))
            ended.append(lambda: loop.call_soon_threadsafe(stop.set))
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield begun[0]
    finally:
        ended[0]()
        thread.join(10)

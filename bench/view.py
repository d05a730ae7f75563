"""The page while much happens: 200 nodes with 2 routers each, 20,000 pods, 1,000 happenings a second.

Agents are played by one process, gathered and served by another as `flockctl view` does it, read by Chromium.  What a
reader does is timed by the browser itself, from the input to the next paint (Event Timing; it does not tell what takes
less than 16 ms, so those count as 16).  And on a lab: from what is done there to its text on the page.
"""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from launching import BenchError
from measuring import Bench, Effort, Outcome, Table, Verdict, percentile, show
from scale import read_memory
from sightings import KINDS, sightings

PAINT_LIMIT, GROWTH_LIMIT, MEMORY_LIMIT, SIGHT_LIMIT = 100.0, 1.25, 150.0, 1.0  # ms, times, MiB, seconds
RATE = 1000  # happenings a second
SETTLED = 0.2  # of the time, after which rings are full and nothing should grow any more
SHORTEST = 16.0  # ms the browser tells of
HERE = Path(__file__).parent
WATCH = """() => { window.took = new Map();
  new PerformanceObserver((list) => { for (const entry of list.getEntries()) if (entry.interactionId)
    took.set(entry.interactionId, Math.max(took.get(entry.interactionId) ?? 0, entry.duration)); }
  ).observe({ type: "event", durationThreshold: 16, buffered: true }); }"""


class View:
    name = "view"
    title = "The page while much happens, and how soon it tells"

    def run(self, bench: Bench) -> Outcome:
        try:
            from playwright.sync_api import Error, sync_playwright
        except ImportError as problem:
            raise BenchError(f"the page needs playwright: {problem}") from None
        raw: dict[str, Any] = {"inputs": [], "heap": [], "rss": [], "sightings": {}}
        with sync_playwright() as library:
            browser = library.chromium.launch(
                executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"]
            )
            try:
                with _played(bench) as (view, address):
                    _use(browser.new_page(), address, view.pid, bench.effort, raw)
                raw["sightings"] = sightings(browser, rounds=bench.effort.sightings)
            except Error as problem:
                raise BenchError(f"the page did not do as it was told: {problem.message.splitlines()[0]}") from None
            finally:
                browser.close()
        return Outcome([_table(raw), _sight_table(raw)], _verdicts(raw), raw)


@contextlib.contextmanager
def _played(bench: Bench) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    sockets = bench.world.scratch / "agents"
    sockets.mkdir()
    nodes, pods = bench.effort.view_cluster
    with contextlib.ExitStack() as ending:
        for script, arguments in (
            ("played_agents", [str(sockets), str(nodes), str(pods), str(RATE)]),
            ("played_view", [str(sockets)]),
        ):
            command = [sys.executable, str(HERE / f"{script}.py"), *arguments]
            started = ending.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            ending.callback(started.terminate)
            assert started.stdout is not None
            said = started.stdout.readline().strip()
        if not said:
            raise BenchError("the view of a played cluster did not start")
        yield started, said


def _use(page: Any, address: str, view: int, effort: Effort, raw: dict[str, Any]) -> None:
    """As an operator might, over and over: another view, a search typed letter by letter, a row, a session."""
    (nodes, _), seconds = effort.view_cluster, effort.view_seconds
    page.set_default_timeout(60_000)
    page.set_viewport_size({"width": 1400, "height": 900})
    page.goto(address)
    page.locator(".tile").nth(nodes - 1).wait_for()
    page.evaluate(WATCH)
    cdp = page.context.new_cdp_session(page)
    cdp.send("Performance.enable")
    began, inputs, sampled = time.monotonic(), 0, 0.0
    while time.monotonic() - began < seconds:
        for step in (_fabric, _pods, _timeline, _policy):
            inputs += step(page)
        if time.monotonic() - sampled > seconds / 20:
            sampled = time.monotonic()
            cdp.send("HeapProfiler.collectGarbage")
            told = (
                {metric["name"]: metric["value"] for metric in cdp.send("Performance.getMetrics")["metrics"]}
                if cdp.send("Performance.enable") is not None
                else {}
            )
            raw["heap"].append((sampled - began, told["JSHeapUsedSize"] / (1 << 20)))
            raw["rss"].append(read_memory(view)["rss"])
    page.wait_for_timeout(500)
    slow = list(page.evaluate("[...took.values()]"))
    raw["inputs"] = slow + [SHORTEST] * max(0, inputs - len(slow))
    raw["happenings"] = RATE
    page.close()


def _open(page: Any, view: str) -> None:
    page.get_by_role("navigation").get_by_role("link", name=view).click()


def _fabric(page: Any) -> int:
    _open(page, "Fabric")
    page.locator("button.port").nth(7).click()
    page.keyboard.press("Escape")
    return 3


def _pods(page: Any) -> int:
    _open(page, "Pods")
    page.get_by_role("searchbox").click()
    for letter in "web-1":
        page.keyboard.press(letter)
    page.get_by_role("searchbox").fill("")
    page.get_by_role("row").nth(3).click()
    for _ in range(5):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("PageDown")
    page.keyboard.press("Escape")
    return 15


def _timeline(page: Any) -> int:
    _open(page, "Timeline")
    page.get_by_role("button", name="5 min", exact=True).click()
    page.get_by_role("slider").click()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Escape")
    return 5


def _policy(page: Any) -> int:
    _open(page, "Policy")
    page.get_by_role("searchbox").click()
    for letter in "shop":
        page.keyboard.press(letter)
    return 6


def _growth(raw: dict[str, Any]) -> float | None:
    """The page's memory at the end, against when its rings were full."""
    if len(raw["heap"]) < 3:
        return None
    end = raw["heap"][-1][0]
    settled = [size for at, size in raw["heap"] if at >= SETTLED * end]
    return float(max(settled[-3:]) / max(settled[:3]))


def _table(raw: dict[str, Any]) -> Table:
    inputs, heap = raw["inputs"], [size for _, size in raw["heap"]]
    rows = [
        [
            "input to paint",
            show(percentile(inputs, 50), " ms"),
            show(percentile(inputs, 95), " ms"),
            show(max(inputs), " ms"),
            str(len(inputs)),
        ],
        ["the page's memory", show(heap[0], " MiB"), show(heap[-1], " MiB"), show(max(heap), " MiB"), str(len(heap))],
        [
            "the aggregator's RSS",
            show(raw["rss"][0], " MiB"),
            show(raw["rss"][-1], " MiB"),
            show(max(raw["rss"]), " MiB"),
            str(len(raw["rss"])),
        ],
    ]
    return Table(["", "p50 / first", "p95 / last", "most", "samples"], rows)


def _sight_table(raw: dict[str, Any]) -> Table:
    rows = [
        [kind, show(percentile(took, 50), " s"), show(max(took), " s"), str(len(took))]
        for kind, took in raw["sightings"].items()
        if took
    ]
    return Table(["from event to text", "p50", "most", "samples"], rows)


def _verdicts(raw: dict[str, Any]) -> list[Verdict]:
    took = [percentile(raw["sightings"][kind], 50) for kind in KINDS if raw["sightings"].get(kind)]
    return [
        Verdict(
            "the page, input to paint p95",
            percentile(raw["inputs"], 95) if raw["inputs"] else None,
            PAINT_LIMIT,
            unit=" ms",
        ),
        Verdict("the page's memory, end against settled", _growth(raw), GROWTH_LIMIT),
        Verdict("the aggregator's RSS", max(raw["rss"], default=None), MEMORY_LIMIT, unit=" MiB"),
        Verdict("from event to text, the slowest kind's p50", max(took, default=None), SIGHT_LIMIT, unit=" s"),
    ]

"""`make screenshots`: the two pictures of the README, of the page about a lab in which something is wrong.

A fabric with pods, an anycast service and policies; then a link is cut and an agent killed, while a guest asks where it
may not.  Everything but the pictures is gone afterwards.
"""

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

from flock.lab.fabric import Lab
from flock.lab.home import Home
from flock.lab.nodes import AGENT

NAME = "datacenter"
TREE = Path(__file__).parent.parent
IMAGES = TREE / "docs" / "images"
BIN = Path(sys.executable).parent
SERVICE = {"flock.fritzlab.net/anycast": "2001:db8:53::53,192.0.2.53"}
WINDOW = {"width": 1280, "height": 760}


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    try:
        lab = Lab.up(name=NAME, nodes=6)
        lab.wait()
        with _viewed() as address:
            _fill(lab)
            for _ in range(3):
                _ask("shop/guest", "shop/db", "2")
                lab.pods.set_ready("infra/dns-2", False)
                _ask("client", "2001:db8:53::53", "2")
                lab.pods.set_ready("infra/dns-2", True)
            lab.cut("n2-r1")
            lab.node("n5").host.stop(AGENT, by=signal.SIGKILL)
            lab.pods.set_ready("infra/dns-3", False)
            _ask("shop/guest", "shop/db", "3")
            with _browser(address) as page:
                _shoot(page)
    finally:
        Lab.down(name=NAME, home=Home.named(NAME))


def _fill(lab: Lab) -> None:
    for number in range(1, 7):
        lab.pods.add(f"web-{number}", node=f"n{number}", namespace="shop", labels={"app": "web"}, ready=True)
    for number in range(1, 4):
        pod = lab.pods.add(f"dns-{number}", node=f"n{number}", namespace="infra", annotations=SERVICE, ready=True)
        lab.pods.serve(pod.key)
    for name, node in {"db": "n2", "front": "n1", "guest": "n3"}.items():
        lab.pods.add(name, node=node, namespace="shop", labels={"app": name}, ready=True)
    for policy in sorted((TREE / "demo" / "policies").glob("*.yaml")):
        (lab.home.manifests / policy.name).write_text(policy.read_text())


def _shoot(page: Page) -> None:
    header = page.locator("header")
    for text in ("1 session down", "1 link cut", "guessing about n5"):
        expect(header).to_contain_text(text)
    page.get_by_role("button", name="session of n2 with r1").click()
    expect(page.get_by_role("complementary")).to_contain_text("BFD session down")
    page.mouse.move(0, 0)
    page.screenshot(path=IMAGES / "fabric.png")
    page.emulate_media(color_scheme="dark")
    address = page.url.partition("#")[0]
    page.goto(f"{address}#timeline?span=60&at={time.time() - 12:.1f}")
    expect(page.get_by_role("table", name="What happened")).to_contain_text("session down peer=r1")
    page.wait_for_timeout(1500)
    page.screenshot(path=IMAGES / "timeline.png")


@contextlib.contextmanager
def _viewed() -> Iterator[str]:
    command = [str(BIN / "flockctl"), "view", "--lab", NAME]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as view:
        assert view.stdout is not None
        try:
            yield view.stdout.readline().strip()
        finally:
            view.terminate()


@contextlib.contextmanager
def _browser(address: str) -> Iterator[Page]:
    with sync_playwright() as library:
        browser = library.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport=WINDOW, device_scale_factor=1.5, color_scheme="light", reduced_motion="reduce")
        page.goto(f"{address}#fabric")
        try:
            yield page
        finally:
            browser.close()


def _ask(source: str, target: str, seconds: str) -> None:
    """Who is not answered says so by its exit code; that is the point of some of these."""
    command = [str(BIN / "flockctl"), "lab", "ask", "--name", NAME, "--for", seconds, source, target]
    subprocess.run(command, capture_output=True)


if __name__ == "__main__":
    main()

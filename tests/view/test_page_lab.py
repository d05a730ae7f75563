"""The page about a running lab: what happens there is on the page, in its own words."""

import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from browsing import chromium, opened
from playwright.sync_api import Browser, expect

from flock.lab.fabric import Lab
from flock.lab.nodes import AGENT
from flock.lab.reach import ping
from harness import BIN

SERVICE = "2001:db8:53::53"
DENY = """
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: deny-all, namespace: default}
spec: {podSelector: {matchLabels: {app: db}}, policyTypes: [Ingress]}
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def address(seen_lab: Lab) -> Iterator[str]:
    command = [str(BIN / "flockctl"), "view", "--lab", seen_lab.name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as view:
        try:
            assert view.stdout is not None
            yield view.stdout.readline().strip()
        finally:
            view.terminate()


@pytest.fixture
def pods(seen_lab: Lab) -> Iterator[Lab]:
    """The lab, whose pods go after the test."""
    yield seen_lab
    for pod in list(seen_lab.pods):
        seen_lab.pods.delete(pod.key)


def test_a_cut_link_is_seen_on_the_fabric_with_the_reason_and_gone_when_mended(
    browser: Browser, address: str, seen_lab: Lab
) -> None:
    with opened(browser, f"{address}#fabric") as page:
        expect(page.locator("header")).to_contain_text("all well")
        expect(page.get_by_role("button", name="client AS")).to_be_visible()
        port = page.get_by_role("button", name="session of n1 with r1")
        expect(port).to_have_attribute("aria-label", re.compile("up, Established"))
        seen_lab.cut("n1-r1")
        try:
            expect(port).to_have_attribute("aria-label", re.compile("link cut"))
            expect(page.locator("header")).to_contain_text("1 session down")
            expect(page.get_by_role("status").first).to_contain_text("n1 session down peer=r1")
            port.click()
            expect(page.get_by_role("complementary")).to_contain_text("BFD session down")
        finally:
            seen_lab.mend("n1-r1")
        expect(page.locator("header")).to_contain_text("all well")
        expect(page.get_by_role("complementary")).to_contain_text("Established")
    seen_lab.wait()


def test_an_address_is_announced_while_its_pod_is_ready(browser: Browser, address: str, pods: Lab) -> None:
    with opened(browser, f"{address}#addresses?q=53") as page:
        pods.pods.add("dns-1", node="n1", annotations={"flock.fritzlab.net/anycast": SERVICE}, ready=True)
        row = page.get_by_role("row", name=SERVICE)
        expect(row).to_contain_text("announced by 1 of 1")
        expect(row).to_contain_text("r1 sends to n1")
        pods.pods.set_ready("dns-1", False)
        expect(row).to_contain_text("announced by 0 of 1")
        expect(row.get_by_role("cell").first).to_contain_text("default/dns-1 the pod is not Ready")


def test_a_pod_is_there_when_it_is_attached_and_turns_unready(browser: Browser, address: str, pods: Lab) -> None:
    with opened(browser, f"{address}#pods?q=web") as page:
        expect(page.get_by_text("no pod is like that")).to_be_visible()
        pod = pods.pods.add("web-1", node="n2", ready=True)
        row = page.get_by_role("row", name="default/web-1")
        expect(row).to_contain_text(pod.addresses[0])
        pods.pods.set_ready("web-1", False)
        expect(row).to_contain_text("not ready")
        page.get_by_label("Leaks and losses of").select_option("n2")
        page.get_by_role("button", name="Check").click()
        expect(page.get_by_text("store, kernel and manifests agree")).to_be_visible()


def test_a_policy_is_seen_asked_about_and_its_drop_told(browser: Browser, address: str, pods: Lab) -> None:
    manifest: Path = pods.home.manifests / "deny.yaml"
    with opened(browser, f"{address}#policy") as page:
        database = pods.pods.add("db", node="n2", labels={"app": "db"}, ready=True)
        pods.pods.add("guest", node="n1", ready=True)
        try:
            manifest.write_text(DENY)
            expect(page.get_by_role("table", name="Policies in force")).to_contain_text("default/deny-all")
            page.get_by_role("textbox", name="From").fill("default/guest")
            page.get_by_role("textbox", name="To").fill("default/db")
            page.get_by_role("textbox", name="Port").fill("80/TCP")
            page.get_by_role("button", name="Ask").click()
            expect(page.get_by_role("article").filter(has_text="no, denied").first).to_contain_text("default/deny-all")
            ping(pods, "default/guest", "default/db")
            drops = page.get_by_role("table", name="Drops by policy")
            expect(drops.get_by_role("row", name="default/deny-all").first).to_contain_text(database.addresses[-1])
        finally:
            manifest.unlink()


def test_the_timeline_tells_what_happened_and_is_filtered_by_its_address(
    browser: Browser, address: str, pods: Lab
) -> None:
    with opened(browser, f"{address}#timeline?q=later-1") as page:
        expect(page.get_by_text("nothing of that kind happened in this time")).to_be_visible()
        pods.pods.add("later-1", node="n1")
        told = page.get_by_role("table", name="What happened")
        expect(told).to_contain_text("attached pod=default/later-1")
        expect(told).not_to_contain_text("started node")
        page.get_by_role("searchbox").fill("started")
        expect(told).to_contain_text("started node=n1")


@pytest.mark.slow
def test_a_killed_agent_is_guessed_about_since_then_and_taken_up_again(
    browser: Browser, address: str, seen_lab: Lab
) -> None:
    node = seen_lab.node("n2")
    with opened(browser, f"{address}#fabric") as page:
        tile = page.get_by_role("button", name=re.compile("^n2"))
        expect(tile).to_contain_text("ready")
        node.host.stop(AGENT, by=signal.SIGKILL)
        try:
            expect(tile).to_contain_text("not reached")
            expect(tile).to_contain_text(re.compile(r"guessing since \d\d:\d\d:\d\d"))
            expect(page.locator("header")).to_contain_text(re.compile(r"guessing about n2 since \d\d:\d\d:\d\d"))
            expect(page.get_by_role("button", name="session of n2 with r1")).to_have_attribute(
                "aria-label", re.compile("up, Established")
            )
        finally:
            node.start_agent()
        expect(tile).to_contain_text("ready")
        expect(page.locator("header")).to_contain_text("all well")
    node.wait_ready()


@pytest.mark.slow
def test_a_dead_node_is_called_dead(browser: Browser, address: str, seen_lab: Lab) -> None:
    with opened(browser, f"{address}#fabric") as page:
        tile = page.get_by_role("button", name=re.compile("^n2"))
        expect(tile).to_contain_text("ready")
        seen_lab.kill("n2")
        try:
            expect(tile).to_contain_text("dead")
        finally:
            seen_lab.revive("n2")
        expect(page.locator("header")).to_contain_text("all well")
    seen_lab.wait()

"""The page in a browser, told by a picture: each view says what it should, whatever names are like."""

import time
from collections.abc import Iterator

import pytest
from browsing import Shown, chromium, opened, shown
from page_parts import claim, drop, pod, session, status
from playwright.sync_api import Browser, Page, expect

FOCUSED = """document.activeElement === document.body ? "" :
  document.activeElement.getAttribute("aria-label") || document.activeElement.innerText"""
# As on a machine that has other things to do: who is quick with the keyboard is ahead of the page.
SLOWLY = "window.requestAnimationFrame = (draw) => setTimeout(draw, 100)"
MOVING = """[...document.querySelectorAll("*")].map((e) => getComputedStyle(e)).filter(
  (style) => parseFloat(style.transitionDuration) > 0 || style.animationName !== "none").length"""
EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def fabric() -> Iterator[Shown]:
    """Two nodes, one of which has a session that is down; a pod that is not Ready behind an anycast address."""
    with shown() as picture:
        now = time.time()
        pods = [pod("web-0", policies=["shop/web-in"]), pod("dns-0", ready=False, anycast=["2001:db8:53::53"])]
        rows = [claim("2001:db8:53::53", "shop/dns-0", reason="the pod is not Ready")]
        policies = [{"kind": "NetworkPolicy", "name": "shop/web-in", "tier": "", "priority": None, "audit": False}]
        policies[0] |= {"pods": 1, "problem": ""}
        services = [
            {"service": "shop/front", "address": "192.0.2.80", "announced": False, "reason": "no endpoint here"}
        ]
        told = {"podList": pods, "addressList": rows, "policyList": policies, "serviceList": services}
        picture.node("n1", status("n1", **told), at=now)
        down = session("tor1", up=False, state="Active", last_error="Error: Hold timer expired", imported=0, bfd="down")
        picture.node("n2", status("n2", sessions=[down], addressList=[claim("2001:db8:53::53", "shop/dns-1")]), at=now)
        picture.happened("n1", 1, **drop("shop/web-0", policies="shop/web-in", time=now))
        said = "session down peer=tor1 state='Active' problem='Error: Hold timer expired'"
        picture.happened("n2", 1, time=now, kind="SessionDown", said=said, peer="tor1", state="Active", problem="")
        yield picture


def go(page: Page, view: str) -> None:
    page.get_by_role("navigation").get_by_role("link", name=view).click()


def test_the_fabric_says_which_session_is_down_and_why(browser: Browser, fabric: Shown) -> None:
    with opened(browser, fabric.address) as page:
        expect(page.locator("header")).to_contain_text("1 session down")
        page.get_by_role("button", name="session of n2 with tor1").click()
        beside = page.get_by_role("complementary")
        for text in ("Active", "Error: Hold timer expired", "2026-11-15 06:00:16", "0 prefixes", "3 prefixes", "down"):
            expect(beside).to_contain_text(text)
        expect(page.get_by_role("status").first).to_contain_text("session down peer=tor1")
        fabric.node("n2", status("n2"), at=time.time())
        expect(page.locator("header")).to_contain_text("all well")
        expect(beside).to_contain_text("Established")


def test_of_a_crowd_only_what_is_not_well_is_shown_if_asked_for(browser: Browser, fabric: Shown) -> None:
    for number in range(3, 201):
        fabric.node(f"n{number}", status(f"n{number}"), at=time.time())
    with opened(browser, fabric.address) as page:
        expect(page.locator(".tile")).to_have_count(200)
        page.get_by_role("button", name="only what is not well").click()
        expect(page.locator(".tile")).to_have_count(1)
        expect(page.locator(".tile")).to_contain_text("session down")
        assert page.url.endswith("#fabric?only=ill")


def test_addresses_say_who_announces_and_why_not(browser: Browser, fabric: Shown) -> None:
    with opened(browser, f"{fabric.address}#addresses?q=53") as page:
        row = page.get_by_role("row", name="2001:db8:53::53")
        expect(row).to_contain_text("announced by 1 of 2")
        expect(row).to_contain_text("the pod is not Ready")
        expect(row.get_by_role("button", name="shop/dns-1")).to_be_visible()
        page.get_by_role("searchbox").fill("service")
        expect(page.get_by_role("row", name="192.0.2.80")).to_contain_text("Service shop/front no endpoint here")
        page.get_by_role("searchbox").fill("nothing like it")
        expect(page.locator("main")).to_contain_text("no address is like that")


def test_pods_are_found_and_told_all_about(browser: Browser, fabric: Shown) -> None:
    with opened(browser, f"{fabric.address}#pods") as page:
        page.get_by_role("searchbox").fill("web-0")
        expect(page.get_by_text("1 of 2 pods")).to_be_visible()
        assert page.url.endswith("#pods?q=web-0")
        page.get_by_role("row", name="shop/web-0").click()
        beside = page.get_by_role("complementary")
        for text in ("2001:db8:1::2", "flock12345678", "shop/web-in", "container-of-web-0", "203.0.113.9"):
            expect(beside).to_contain_text(text)
        page.reload()
        expect(page.get_by_role("complementary")).to_contain_text("container-of-web-0")
        expect(page.get_by_role("searchbox")).to_have_value("web-0")


def test_drops_are_grouped_by_policy_as_they_happen(browser: Browser, fabric: Shown) -> None:
    with opened(browser, f"{fabric.address}#policy?q=web") as page:
        group = page.get_by_role("table", name="Drops by policy").get_by_role("row", name="shop/web-in")
        expect(group).to_contain_text("ingress")
        fabric.happened("n1", 2, **drop("shop/web-0", policies="shop/web-in", time=time.time(), port=4711))
        expect(group).to_contain_text("TCP/4711")
        fabric.happened("n1", 3, **drop("bank/db-0", policies="bank/db-in", time=time.time()))
        expect(page.get_by_text("1 of 2 groups")).to_be_visible()


def test_the_timeline_marks_what_happened_then_in_every_view(browser: Browser, fabric: Shown) -> None:
    with opened(browser, f"{fabric.address}#timeline") as page:
        expect(page.get_by_role("table", name="What happened")).to_contain_text("session down peer=tor1")
        page.get_by_role("slider").focus()
        page.keyboard.press("End")
        then = page.get_by_role("region", name="At the marked time")
        expect(then).to_contain_text("session down peer=tor1")
        go(page, "Fabric")
        expect(then).to_contain_text("session down peer=tor1")
        expect(page.locator(".tile.marked")).to_contain_text(["n1", "n2"])


@pytest.mark.parametrize("pace", ["", SLOWLY], ids=["at once", "slowly"])
def test_everything_is_reached_by_keyboard(browser: Browser, fabric: Shown, pace: str) -> None:
    with opened(browser, "about:blank") as page:
        page.add_init_script(pace)
        page.goto(fabric.address)
        expect(page.locator("header")).to_contain_text("1 session down")

        def tab_to(name: str) -> None:
            for _ in range(60):
                page.keyboard.press("Tab")
                if name in page.evaluate(FOCUSED):
                    return
            raise AssertionError(f"no way to {name!r}")

        tab_to("session of n2 with tor1")
        page.keyboard.press("Enter")
        expect(page.get_by_role("complementary")).to_contain_text("Hold timer expired")
        page.keyboard.press("Escape")
        expect(page.get_by_role("complementary")).to_have_count(0)
        page.keyboard.press("/")
        page.keyboard.type("n1")
        expect(page.locator(".tile")).to_have_count(1)
        page.get_by_role("navigation").get_by_role("link", name="Fabric").focus()
        tab_to("Pods")
        page.keyboard.press("Enter")
        tab_to("shop/dns-0")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        expect(page.get_by_role("complementary")).to_contain_text("container-of-web-0")


def test_who_was_at_something_that_goes_is_still_in_the_view(browser: Browser, fabric: Shown) -> None:
    """Tab goes on from there, and not from the top of the page."""
    with opened(browser, f"{fabric.address}#fabric?sel=session/n2/tor1") as page:
        page.get_by_role("complementary").get_by_role("button", name="Close").focus()
        page.keyboard.press("Escape")
        expect(page.get_by_role("complementary")).to_have_count(0)
        expect(page.get_by_role("main")).to_be_focused()
        page.locator("main").get_by_role("searchbox").focus()
        page.evaluate("location.hash = '#addresses'")
        expect(page.get_by_role("main", name="addresses")).to_be_focused()


def test_who_was_at_a_row_that_goes_is_at_the_next(browser: Browser, fabric: Shown) -> None:
    with opened(browser, f"{fabric.address}#pods") as page:
        page.get_by_role("row", name="shop/dns-0").focus()
        fabric.node("n1", status("n1", podList=[pod("web-0")]), at=time.time())
        expect(page.get_by_role("row", name="shop/web-0")).to_be_focused()
        expect(page.get_by_role("row", name="shop/dns-0")).to_have_count(0)


def test_nothing_moves_for_who_wants_no_motion(browser: Browser, fabric: Shown) -> None:
    with opened(browser, fabric.address, reduced_motion="reduce") as page:
        expect(page.locator("header")).to_contain_text("1 session down")
        assert page.evaluate(MOVING) == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_or_dark_is_chosen_and_kept_by_the_address(browser: Browser, fabric: Shown, scheme: str) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    with opened(browser, fabric.address, color_scheme=scheme) as page:
        given = page.evaluate(paper)
        page.get_by_role("button", name="Light" if scheme == "dark" else "Dark").click()
        expect(page.locator("html")).to_have_attribute("data-theme", "light" if scheme == "dark" else "dark")
        chosen = page.evaluate(paper)
        page.reload()
        expect(page.locator("header")).to_contain_text("1 session down")
        assert page.evaluate(paper) == chosen != given


def test_names_are_never_markup(browser: Browser) -> None:
    with shown() as picture:
        now = time.time()
        evil = pod(EVIL, namespace=EVIL, container=EVIL, ip6=EVIL, ip4=EVIL, addresses=[EVIL], anycast=[EVIL])
        evil |= {"interface": EVIL, "policies": [EVIL], "netns": EVIL, "pending_annotations": [EVIL]}
        told = {key: [EVIL] for key in ("not_ready", "degraded", "announced")} | {"withdrawn": EVIL, "version": EVIL}
        told |= {"ready": False, "podList": [evil], "addressList": [claim(EVIL, EVIL, reason=EVIL, kind=EVIL)]}
        told |= {"sessions": [session(EVIL, up=False, state=EVIL, last_error=EVIL, address=EVIL, since=EVIL, bfd=EVIL)]}
        told |= {"pools": [{"cidr": EVIL, "size": 1, "used": 1, "cooling": 0}], "repairs": {EVIL: 1}}
        told |= {"problems": [{"where": EVIL, "message": EVIL}], "dropList": []}
        told |= {"config": {"problem": EVIL, "spec": {"bgp": {"asn": EVIL}}, "origins": {EVIL: EVIL}}}
        told |= {"policyList": [{"kind": EVIL, "name": EVIL, "tier": EVIL, "priority": 1, "pods": 1, "problem": EVIL}]}
        picture.node(EVIL, status(EVIL, **told), at=now)
        other = {"peer": EVIL, "up": False, "state": EVIL, "bfd": EVIL, "since": EVIL, "last_error": EVIL}
        picture.router(EVIL, asn=1, trouble=EVIL, sessions=[other], routes={EVIL: [EVIL]})
        picture.router("top", asn=1, trouble="", sessions=[other], routes={})
        picture.cut(EVIL)
        picture.happened(EVIL, 1, time=now, kind=EVIL, said=EVIL, peer=EVIL, address=EVIL, policy=EVIL)
        picture.happened(EVIL, 2, **drop(EVIL, policies=EVIL, time=now, source=EVIL, said=EVIL, what=EVIL))
        chosen = EVIL.replace("<", "%253C").replace(">", "%253E").replace(" ", "%2520").replace("=", "%253D")
        with opened(browser, picture.address) as page:
            for view in ("fabric", "addresses", "pods", "policy", "timeline"):
                for kind in ("node", "router", "pod", "session"):
                    page.goto(f"{picture.address}#{view}?at={now}&sel={kind}/{chosen}/{chosen}")
                    expect(page.locator("main")).to_contain_text(EVIL)
                    expect(page.get_by_role("complementary")).to_contain_text(EVIL)
                    assert page.locator("img").count() == 0


def test_a_node_that_is_visited_in_turn_is_shown_with_the_age_of_its_state(browser: Browser, fabric: Shown) -> None:
    with opened(browser, f"{fabric.address}#fabric?sel=node/n3") as page:
        fabric.node("n3", status("n3"), at=time.time() - 40)
        expect(page.locator("header")).to_contain_text("visited in turn, n3 4")
        expect(page.locator("header")).to_contain_text("what is looked at is followed")
        expect(page.get_by_role("complementary")).to_contain_text("as of")
        fabric.node("n3", status("n3"), at=time.time())
        expect(page.get_by_role("complementary")).to_contain_text("now")

"""Coming from the original: its pods, routes and rules are taken over under traffic, and nothing of it stays."""

import json
from pathlib import Path
from typing import Any

import pytest
from anycasting import ANYCAST, announced, granting, ready_pod
from looking import OWN, addresses_of, flockctl, pod_routes, settle, sysctl, undisturbed

from flock.core.naming import host_interface
from harness import Node, eventually


def original_pod(node: Node, container: str, name: str, six: str, four: str, *, scope: str = "link") -> str:
    """A pod as the Go agent made it: random MACs, default metric, protocol boot, resolution instead of neighbours."""
    node.namespace(container)
    link = host_interface(container)
    pod_netns = Path(node.path(container)).name
    node.ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", pod_netns)
    node.ip("link", "set", link, "addrgenmode", "none")
    node.ip("link", "set", link, "up")
    node.ip("addr", "add", "fe80::1/64", "dev", link, "nodad")
    sysctl(node, f"ipv4/conf/{link}/proxy_arp", "1")
    sysctl(node, f"ipv4/conf/{link}/forwarding", "1")
    for command in (
        ("link", "set", "lo", "up"),
        ("link", "set", "eth0", "up"),
        ("addr", "add", six + "/128", "dev", "eth0", "nodad"),
        ("addr", "add", four + "/32", "dev", "eth0"),
        ("-6", "route", "add", "default", "via", "fe80::1", "dev", "eth0"),
        ("route", "add", "169.254.1.1", "dev", "eth0", "scope", "link"),
        ("route", "add", "default", "via", "169.254.1.1", "dev", "eth0"),
    ):
        node.ip(*command, inside=container)
    node.ip("-6", "route", "add", six + "/128", "dev", link, "proto", "boot")
    node.ip("-4", "route", "add", four + "/32", "dev", link, "proto", "boot", "scope", scope)
    return link


def original_file(node: Node, *entries: tuple[str, str, str, str], **more: Any) -> None:
    allocations = [
        {
            "container_id": container,
            "namespace": "default",
            "pod_name": name,
            "owner_uid": "",
            "ip6": six,
            "ip4": four,
            "state": "committed",
            "allocated_at": "2025-03-01T12:00:00.123456789Z",
            **more,
        }
        for container, name, six, four in entries
    ]
    content = {"version": 1, "node": "n1", "allocations": allocations}
    (node.state_dir / "allocations.json").write_text(json.dumps(content, indent=2) + "\n")


@pytest.mark.parametrize("scope", ["link", "global"])
def test_pods_of_the_original_are_adopted_under_traffic(fresh: Node, scope: str) -> None:
    six, four = "2001:db8:1::abcd", "192.0.2.9"
    sysctl(fresh, "ipv6/conf/all/forwarding", "1")
    # the original relies on proxy ARP, which answers for what is routed elsewhere
    fresh.ip("link", "add", "up0", "type", "veth", "peer", "name", "up1")
    fresh.ip("link", "set", "up0", "up")
    fresh.ip("route", "add", "default", "dev", "up0")
    link = original_pod(fresh, "a" * 64, "web", six, four, scope=scope)
    original_file(fresh, ("a" * 64, "web", six, four))
    before = fresh.links()[link]
    eventually(lambda: fresh.ping(six) and fresh.ping(four), what="the original's pod answers")
    with undisturbed(fresh, six, four):
        fresh.start()

        def owned() -> bool:
            mine = [(r["dst"], str(r["protocol"]), r["metric"]) for r in pod_routes(fresh)]
            others = [*fresh.ip_json("-6", "route", "show", "proto", "boot", "dev", link),
                      *fresh.ip_json("-4", "route", "show", "proto", "boot", "dev", link)]  # fmt: skip
            return sorted(mine) == sorted([(six, "133", 20), (four, "133", 20)]) and not others

        eventually(owned, what="the routes are ours now")
        assert (fresh.links()[link]["ifindex"], fresh.links()[link]["address"]) == (
            before["ifindex"],
            before["address"],
        )
        assert "default/web" in fresh.links()[link]["ifalias"]
        assert fresh.cni("STATUS") is None
        fresh.cni("CHECK", "a" * 64)
        assert flockctl(fresh, "check").returncode == 0, flockctl(fresh, "check").stdout
        again = fresh.cni("ADD", "a" * 64, args="K8S_POD_NAMESPACE=default;K8S_POD_NAME=web")
        assert addresses_of(again) == [six, four] and again["interfaces"][0]["name"] == link
        new = addresses_of(fresh.pod("b"))
        assert not set(new) & {six, four}
        assert all(fresh.ping(a, inside="b") for a in (six, four))
        repaired = fresh.ask("status")["repairs"]
        flockctl(fresh, "check", "--repair")
        assert fresh.ask("status")["repairs"] == repaired, "adoption comes to an end"
    fresh.cni("DEL", "a" * 64)
    assert set(fresh.links()) == {host_of(fresh, "b")}
    settle(fresh)


def host_of(node: Node, container: str) -> str:
    name: str = node.allocations()[container]["host_interface"]
    return name


def test_the_file_stays_readable_by_the_original(fresh: Node) -> None:
    """Version 1, the original's keys with the original's meaning, mode 0600, indented."""
    fresh.start()
    fresh.pod("a")
    path = fresh.state_dir / "allocations.json"
    content = json.loads(path.read_text())
    assert content["version"] == 1 and content["node"] == "n1"
    entry = content["allocations"][0]
    assert {"container_id", "namespace", "pod_name", "owner_uid", "ip6", "ip4", "state", "allocated_at"} <= set(entry)
    assert path.stat().st_mode & 0o777 == 0o600 and "\n  " in path.read_text()
    assert entry["allocated_at"].endswith("Z") and entry["state"] == "committed"


def test_a_pending_entry_of_the_original_is_undone(fresh: Node) -> None:
    six, four = "2001:db8:1::abcd", "192.0.2.9"
    original_pod(fresh, "a", "web", six, four)
    original_file(fresh, ("a", "web", six, four))
    path = fresh.state_dir / "allocations.json"
    path.write_text(path.read_text().replace("committed", "pending"))
    fresh.start()
    assert not fresh.links() and not fresh.allocations()


# --- anycast, extra addresses, rules -------------------------------------------------------------------------------

ANYCAST4, EXTRA = "198.51.100.53", "2001:db8:53::7"
PODS = (("a", "2001:db8:1::a", "192.0.2.10"), ("b", "2001:db8:1::b", "192.0.2.11"))
GRANTS = {"allowed": [{"prefixes": ["2001:db8:53::/64", "198.51.100.0/24"]}]}


@pytest.fixture
def original(fresh: Node) -> Node:
    """A node of the original with two pods that share two anycast addresses; one has an extra one as well."""
    fresh.write("nodeconfig", granting(anycast=GRANTS, addresses=GRANTS))
    for switch in ("ipv6/conf/all/forwarding", "ipv4/ip_forward"):
        sysctl(fresh, switch, "1")
    fresh.ip("link", "add", "up0", "type", "veth", "peer", "name", "up1")
    fresh.ip("link", "set", "up0", "up")
    fresh.ip("route", "add", "default", "dev", "up0")
    for name, six, four in PODS:
        original_pod(fresh, name, name, six, four)
        for address in (ANYCAST + "/128", ANYCAST4 + "/32"):
            fresh.ip("addr", "add", address, "dev", "lo", inside=name)
    fresh.ip("addr", "add", EXTRA + "/128", "dev", "eth0", "nodad", inside="a")
    original_file(fresh, *((name, name, six, four) for name, six, four in PODS), anycast=[ANYCAST, ANYCAST4])
    path = fresh.state_dir / "allocations.json"
    content = json.loads(path.read_text())
    content["allocations"][0]["addresses"] = [EXTRA]
    path.write_text(json.dumps(content, indent=2))
    links = [host_interface(name) for name, _, _ in PODS]
    for family, address, column in (("-6", ANYCAST, 1), ("-4", ANYCAST4, 2)):
        hops = [
            part
            for pod, dev in zip(PODS, links, strict=True)
            for part in ("nexthop", "via", pod[column], "dev", dev, "onlink")
        ]
        fresh.ip(family, "route", "add", address, "proto", "boot", *hops)
    fresh.ip("-6", "route", "add", EXTRA, "via", PODS[0][1], "dev", links[0], "proto", "boot", "onlink")
    fresh.execute(
        "nft",
        "add table inet flock_netpol; add chain inet flock_netpol forward { type filter hook forward priority 0; }",
    )
    return fresh


def boot_routes(node: Node) -> set[str]:
    shown = [
        *node.ip_json("-6", "route", "show", "proto", "boot"),
        *node.ip_json("-4", "route", "show", "proto", "boot"),
    ]
    return {route["dst"] for route in shown}


def tables(node: Node) -> set[str]:
    return set(node.execute("nft", "list", "tables").stdout.splitlines())


def test_anycast_and_extra_addresses_of_the_originals_pods_go_on_under_traffic(original: Node) -> None:
    extra = {OWN + "addresses": EXTRA, OWN + "anycast": f"{ANYCAST},{ANYCAST4}"}
    for name, _, _ in PODS:
        pod = ready_pod(name)
        pod["metadata"]["annotations"] = extra
        original.write(f"pod-{name}", pod)
    everything = (ANYCAST, ANYCAST4, EXTRA, *PODS[0][1:], *PODS[1][1:])
    eventually(lambda: all(map(original.ping, everything)), what="the original's addresses answer")
    with undisturbed(original, *everything):
        original.start()
        eventually(lambda: announced(original), what="the address is announced by us")
        eventually(lambda: boot_routes(original) == {"default"}, what="nothing of the original's routes is left")
        rows = {(row["address"], row["pod"]): row["reason"] for row in original.ask("anycast")}
        assert len(rows) == 5 and set(rows.values()) == {""}, rows
        assert sorted(original.ask("status")["announced"]) == sorted({ANYCAST, ANYCAST4, EXTRA})
        original.stop()
        original.start()
    group = original.ip("nexthop", "show")
    assert all(host_interface(name) in group for name, _, _ in PODS), "both pods carry it"
    for name, _, _ in PODS:
        original.cni("DEL", name, netns="")
    eventually(lambda: not pod_routes(original), what="and they leave as any other")
    assert not original.links()


def test_the_originals_route_to_a_pod_that_is_not_ready_goes(original: Node) -> None:
    for name, _, _ in PODS:
        original.write(f"pod-{name}", ready_pod(name, ready=False))
    original.start()
    eventually(lambda: boot_routes(original) == {"default"}, what="nobody is sent to a pod that is not ready")
    assert not announced(original)


def test_the_originals_rules_go_when_ours_are_in_force_and_nothing_else_goes(original: Node) -> None:
    original.execute("nft", "add table inet somebody; add table ip flock_netpol")
    link = host_interface("a")
    original.ip("-6", "route", "add", "2001:db8:77::/64", "dev", link, "proto", "boot")
    original.ip("-6", "route", "add", "2001:db8:53::99", "dev", link, "proto", "boot")
    original.ip("-4", "route", "add", "198.51.100.53", "dev", "up0", "proto", "boot", "metric", "77")
    original.start()
    assert tables(original) >= {"table inet flock", "table inet somebody", "table ip flock_netpol"}
    assert "table inet flock_netpol" not in tables(original)
    wanted = {"default", "2001:db8:77::/64", "2001:db8:53::99", ANYCAST4}
    eventually(lambda: boot_routes(original) == wanted, what="only its own routes went")
    assert [r["dev"] for r in original.ip_json("-4", "route", "show", ANYCAST4, "proto", "boot")] == ["up0"]


def test_a_pod_of_the_original_gets_its_gateway_back_as_it_was(fresh: Node) -> None:
    """With a prefix, by which the node finds the pod's link-local address: which that is is not known to us."""
    six, four = "2001:db8:1::abcd", "192.0.2.9"
    link = original_pod(fresh, "a" * 64, "web", six, four)
    original_file(fresh, ("a" * 64, "web", six, four))
    fresh.start()
    fresh.ip("addr", "del", "fe80::1/64", "dev", link)

    def gateways() -> list[tuple[str, int]]:
        [shown] = fresh.ip_json("addr", "show", "dev", link)
        return [(a["local"], a["prefixlen"]) for a in shown["addr_info"]]

    eventually(lambda: gateways() == [("fe80::1", 64)], what="the gateway is there again")

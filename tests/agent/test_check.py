"""CHECK: store, prevResult and kernel, item by item."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from looking import addresses_of, failure, failure_after, flockctl, settle, sysctl

from flock.edge.netlink.socket import GLIMPSE
from harness import Node, run
from thoroughness import some


@pytest.fixture
def attached(node: Node) -> tuple[Node, dict[str, Any]]:
    result = node.pod("a")
    node.cni("CHECK", "a", prevResult=result)
    return node, result


def host(result: dict[str, Any]) -> str:
    name: str = result["interfaces"][0]["name"]
    return name


Break = Callable[[Node, dict[str, Any]], object]

# What is done behind the agent's back inside the pod, where nothing is repaired, and what CHECK has to name.
INSIDE: dict[str, tuple[Break, Callable[[dict[str, Any]], list[str]]]] = {
    "ipv6 address": (
        lambda n, r: n.ip("addr", "del", addresses_of(r)[0] + "/128", "dev", "eth0", inside="a"),
        lambda r: [addresses_of(r)[0], "eth0"],
    ),
    "ipv4 address": (
        lambda n, r: n.ip("addr", "del", addresses_of(r)[1] + "/32", "dev", "eth0", inside="a"),
        lambda r: [addresses_of(r)[1], "eth0"],
    ),
    "ipv6 default route": (
        lambda n, r: n.ip("-6", "route", "del", "default", inside="a"),
        lambda r: ["default route", "fe80::1"],
    ),
    "ipv4 default route": (
        lambda n, r: n.ip("route", "del", "default", inside="a"),
        lambda r: ["default route", "169.254.1.1"],
    ),
    "gateway neighbour": (
        lambda n, r: n.ip("neigh", "del", "169.254.1.1", "dev", "eth0", inside="a"),
        lambda r: ["neighbour", "169.254.1.1"],
    ),
    "wrong gateway neighbour": (
        lambda n, r: n.ip("neigh", "replace", "fe80::1", "lladdr", "02:00:00:00:00:01", "dev", "eth0", inside="a"),
        lambda r: ["neighbour", "fe80::1"],
    ),
    "pod MAC": (
        lambda n, r: n.ip("link", "set", "eth0", "address", "02:00:00:00:00:99", inside="a"),
        lambda r: ["02:00:00:00:00:99", r["interfaces"][1]["mac"]],
    ),
    "pod MTU": (lambda n, r: n.ip("link", "set", "eth0", "mtu", "1300", inside="a"), lambda r: ["MTU", "1300"]),
    "pod link down": (lambda n, r: n.ip("link", "set", "eth0", "down", inside="a"), lambda r: ["eth0", "down"]),
    "pod link renamed": (
        lambda n, r: (n.ip("link", "set", "eth0", "down", inside="a"),
                      n.ip("link", "set", "eth0", "name", "gone0", inside="a")),
        lambda r: ["eth0", "missing"],
    ),
    "ipv6 off": (
        lambda n, r: sysctl(n, "ipv6/conf/eth0/disable_ipv6", "1", inside="a"),
        lambda r: [addresses_of(r)[0]],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", some(INSIDE))
def test_a_difference_inside_the_pod_is_named(attached: tuple[Node, dict[str, Any]], what: str) -> None:
    node, result = attached
    damage, named = INSIDE[what]
    damage(node, result)
    failed = failure(node, "CHECK", "a", prevResult=result)
    assert failed.code >= 100
    for text in named(result):
        assert text in failed.msg
    shown = flockctl(node, "check")
    assert shown.returncode == 1 and all(text in shown.stdout for text in named(result))


# --- on the host, where the agent repairs by itself as soon as it notices --------------------------------------------

ON_HOST: dict[str, tuple[Break, Callable[[dict[str, Any]], list[str]]]] = {
    "ipv6 route": (
        lambda n, r: n.ip("-6", "route", "del", addresses_of(r)[0]),
        lambda r: ["route", addresses_of(r)[0]],
    ),
    "ipv4 route": (
        lambda n, r: n.ip("-4", "route", "del", addresses_of(r)[1]),
        lambda r: ["route", addresses_of(r)[1]],
    ),
    "route of another owner": (
        lambda n, r: n.ip("route", "replace", addresses_of(r)[1], "dev", host(r), "metric", "20", "proto", "static"),
        lambda r: ["route", addresses_of(r)[1]],
    ),
    "neighbour": (
        lambda n, r: n.ip("neigh", "del", addresses_of(r)[1], "dev", host(r)),
        lambda r: ["neighbour", addresses_of(r)[1]],
    ),
    "wrong neighbour": (
        lambda n, r: n.ip(
            "neigh", "replace", addresses_of(r)[0], "lladdr", "02:00:00:00:00:07", "dev", host(r), "nud", "permanent"
        ),
        lambda r: ["neighbour", addresses_of(r)[0]],
    ),
    "gateway": (lambda n, r: n.ip("addr", "flush", "dev", host(r)), lambda r: ["fe80::1", host(r)]),
    "link down": (lambda n, r: n.ip("link", "set", host(r), "down"), lambda r: [host(r), "down"]),
    "MAC": (
        lambda n, r: n.ip("link", "set", host(r), "address", "02:00:00:00:00:42"),
        lambda r: [host(r), "02:00:00:00:00:42"],
    ),
    "alias": (lambda n, r: n.ip("link", "set", host(r), "alias", "mine"), lambda r: [host(r), "alias"]),
    "ipv4 forwarding": (
        lambda n, r: sysctl(n, f"ipv4/conf/{host(r)}/forwarding", "0"),
        lambda r: [host(r), "IPv4"],
    ),
    "ipv6 forwarding": (
        lambda n, r: sysctl(n, f"ipv6/conf/{host(r)}/forwarding", "0"),
        lambda r: [host(r), "IPv6"],
    ),
}


@pytest.mark.parametrize("what", some(ON_HOST))
def test_a_difference_on_the_host_is_named(attached: tuple[Node, dict[str, Any]], what: str) -> None:
    node, result = attached
    damage, named = ON_HOST[what]

    def once() -> None:
        with contextlib.suppress(AssertionError):  # nothing to take away before it is repaired
            damage(node, result)

    failed = failure_after(node, once, "CHECK", "a", prevResult=result)
    for text in named(result):
        assert text in failed.msg
    settle(node)
    assert flockctl(node, "check", "--repair").returncode == 0
    node.cni("CHECK", "a", prevResult=result)


def test_several_differences_are_all_named_at_once(attached: tuple[Node, dict[str, Any]]) -> None:
    node, result = attached
    node.ip("addr", "del", addresses_of(result)[0] + "/128", "dev", "eth0", inside="a")
    node.ip("route", "del", "default", inside="a")
    node.ip("link", "set", "eth0", "mtu", "1300", inside="a")
    failed = failure(node, "CHECK", "a", prevResult=result)
    assert all(text in failed.msg for text in (addresses_of(result)[0], "169.254.1.1", "1300"))


def test_a_namespace_that_is_not_the_pods_is_named(attached: tuple[Node, dict[str, Any]]) -> None:
    node, _ = attached
    path = node.namespace("b")
    assert path in failure(node, "CHECK", "a", netns=path).msg


def test_a_namespace_that_is_gone_is_named(attached: tuple[Node, dict[str, Any]]) -> None:
    node, _ = attached
    path = node.path("a")
    node.remove_namespace("a")
    assert failure(node, "CHECK", "a", netns=path).code != 0


def test_an_unknown_container_is_code_3(node: Node) -> None:
    node.namespace("a")
    assert failure(node, "CHECK", "a").code == 3


def test_another_interface_is_a_difference(attached: tuple[Node, dict[str, Any]]) -> None:
    node, _ = attached
    failed = failure(node, "CHECK", "a", ifname="net1")
    assert "eth0" in failed.msg and "net1" in failed.msg


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda r: r["ips"].append({"address": "192.0.2.99/32", "interface": 1}), "192.0.2.99"),
        (lambda r: r["ips"][1].update(gateway="192.0.2.1"), "192.0.2.1"),
        (lambda r: r["interfaces"][1].update(mac="02:00:00:00:00:05"), "02:00:00:00:00:05"),
        (lambda r: r["interfaces"][1].update(sandbox="/run/netns/elsewhere"), "/run/netns/elsewhere"),
        (lambda r: r["ips"][0].update(address="nonsense"), "nonsense"),
    ],
)
def test_a_prevresult_that_says_otherwise_is_named(
    attached: tuple[Node, dict[str, Any]], change: Callable[[dict[str, Any]], None], named: str
) -> None:
    node, result = attached
    change(result)
    assert named in failure(node, "CHECK", "a", prevResult=result).msg


@pytest.mark.parametrize("left_out", ["interfaces", "ips", "routes", "dns", "everything"])
def test_what_prevresult_leaves_out_is_no_difference(attached: tuple[Node, dict[str, Any]], left_out: str) -> None:
    node, result = attached
    kept = {"cniVersion": "1.1.0"} if left_out == "everything" else {k: v for k, v in result.items() if k != left_out}
    node.cni("CHECK", "a", prevResult=kept)
    node.cni("CHECK", "a")


def test_what_a_chained_plugin_added_is_no_difference(attached: tuple[Node, dict[str, Any]]) -> None:
    node, result = attached
    result["interfaces"].append({"name": "tun0", "mac": "02:00:00:00:00:05", "sandbox": node.path("a")})
    result["ips"].append({"address": "203.0.113.9/24", "interface": 2})
    result["routes"].append({"dst": "203.0.113.0/24"})
    node.cni("CHECK", "a", prevResult=result)


def test_check_repeated_many_times_and_at_once_changes_nothing(attached: tuple[Node, dict[str, Any]]) -> None:
    node, result = attached
    before = node.allocations()
    started = [node.cni_start("CHECK", "a", prevResult=result) for _ in range(20)]
    assert [p.communicate(timeout=60)[0] for p in started] == [b""] * 20
    assert node.allocations() == before


def test_what_a_pod_fills_its_namespace_with_is_looked_at_up_to_a_bound(attached: tuple[Node, dict[str, Any]]) -> None:
    """Its routes and neighbours are its own business, in whatever number; what is ours is still found among them."""
    node, result = attached
    many = "".join(f"route add 2001:db8:99::{n:x}/128 dev eth0\n" for n in range(2 * GLIMPSE))
    run("ip", "-6", "-n", f"{node.prefix}a", "-batch", "-", input=many)
    node.cni("CHECK", "a", prevResult=result)
    node.ip("route", "del", "default", inside="a")
    assert "169.254.1.1" in failure(node, "CHECK", "a", prevResult=result).msg

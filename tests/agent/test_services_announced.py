"""Addresses of Services in the kernel's table for them: announced where they work, and nowhere else."""

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from anycasting import ready_pod
from looking import OWN

from flock.core.naming import SERVICE_TABLE
from harness import Node, eventually, run, with_spec
from servicing import ALLOWED, V4, V6, HealthPort, both, endpoints, open_port, service

BOTH = {V4, V6}


def config(**services: Any) -> dict[str, Any]:
    return with_spec(services={"allowed": ALLOWED} | services)


@pytest.fixture
def kube_proxy(fresh: Node) -> Iterator[Callable[..., HealthPort]]:
    """`kube_proxy(status=200)`: it answers on the node; `.close()` ends it."""
    ports: list[HealthPort] = []

    def start(**how: Any) -> HealthPort:
        ports.append(open_port(f"/run/netns/{fresh.netns}", **how))
        return ports[-1]

    yield start
    for port in ports:
        port.close()


@pytest.fixture
def node(fresh: Node) -> Node:
    """With grants, and a Service that has an endpoint in each family here."""
    fresh.write("nodeconfig", config())
    fresh.write("web", service(), *both())
    fresh.start()
    return fresh


def announced(node: Node) -> set[str]:
    """By `ip`: routes of the table, with the announcing protocol number; all of them blackholes."""
    found = []
    for family in ("-6", "-4"):  # a table that never had a route does not exist
        shown = run("ip", "-n", node.netns, "-j", "-d", family, "route", "show", "table", SERVICE_TABLE, check=False)
        found += json.loads(shown.stdout or "[]") if not shown.returncode else []
    assert all((r["type"], str(r["protocol"]), r["metric"]) == ("blackhole", "134", 20) for r in found)
    return {route["dst"] for route in found}


def becomes(node: Node, addresses: set[str]) -> None:
    eventually(lambda: announced(node) == addresses, what=f"announced: {addresses}, not {announced(node)}")


def why_not(node: Node) -> dict[tuple[str, str], str]:
    return {(row["service"].partition("/")[2], row["address"]): row["reason"] for row in node.ask("services")}


def reason(node: Node, text: str, *, of: str = V4, service: str = "web") -> None:
    eventually(lambda: text in why_not(node).get((service, of), ""), what=f"{text}: {why_not(node)}")


# --- the gate ---


def test_it_is_announced_once_kube_proxy_says_200_and_withdrawn_when_it_says_otherwise(
    node: Node, kube_proxy: Callable[..., HealthPort]
) -> None:
    reason(node, "kube-proxy does not say 200 (healthCheckNodePort 30123)")
    assert not announced(node)
    port = kube_proxy(status=503)
    eventually(lambda: len(port.asked) > 5, what="it is asked again and again")
    assert not announced(node)
    port.status = 200
    becomes(node, BOTH)
    assert {row["announced"] for row in node.ask("services")} == {True}
    assert node.ask("status")["services"] == sorted(BOTH)
    node.write("web", service(), *both(ready=False))
    becomes(node, set())
    reason(node, "no ready endpoint here")
    asked = len(port.asked)
    node.write("web", service(), endpoints())
    becomes(node, {V4})
    assert len(port.asked) > asked
    port.status = 503
    node.write("web", service(), *both())  # endpoints changed: it is asked at once
    becomes(node, set())


def test_an_endpoint_that_goes_is_not_waited_for_at_kube_proxy(
    node: Node, kube_proxy: Callable[..., HealthPort]
) -> None:
    port = kube_proxy()
    becomes(node, BOTH)
    port.status = 0  # it hangs, and its last word was 200
    node.write("web", service(), *both(ready=False, serving=True, terminating=True))
    becomes(node, set())


@pytest.mark.parametrize("gap", ["none is left for a moment", "there is one all the time"])
def test_what_kube_proxy_says_of_former_endpoints_is_believed_until_it_has_seen_the_next(
    fresh: Node, kube_proxy: Callable[..., HealthPort], gap: str
) -> None:
    fresh.hurry = {"flock.core.gate.PERIOD": 600.0, "flock.core.gate.EAGER_FOR": 600.0}  # whatever this takes
    fresh.write("nodeconfig", config())
    fresh.write("web", service(), *both())
    fresh.start()
    port = kube_proxy()
    becomes(fresh, BOTH)
    if gap == "none is left for a moment":
        fresh.write("web", service(), *both(ready=False))
        becomes(fresh, set())
    asked = len(port.asked)
    fresh.write("web", service(), *both(serving=True))
    eventually(lambda: len(port.asked) > asked, what="it is asked, and has noticed nothing yet")
    becomes(fresh, BOTH)
    port.status = 503  # now it has, of the one that went
    becomes(fresh, set())
    port.status = 200
    becomes(fresh, BOTH)


def test_a_port_that_only_some_addresses_of_the_node_have_is_found(
    fresh: Node, kube_proxy: Callable[..., HealthPort]
) -> None:
    fresh.ip("link", "add", "uplink", "type", "veth", "peer", "name", "far")
    fresh.ip("addr", "add", "198.51.100.7/24", "dev", "uplink")
    fresh.ip("link", "set", "uplink", "up")
    kube_proxy(address="198.51.100.7")
    fresh.write("nodeconfig", config())
    fresh.write("web", service(), *both())
    fresh.start()
    becomes(fresh, BOTH)


def test_cluster_needs_an_endpoint_somewhere_and_no_port(node: Node) -> None:
    node.write("web", service(policy="Cluster"), *both(node="n2"))
    becomes(node, BOTH)
    node.write("web", service(policy="Cluster"), *both(node="n2", ready=False, serving=True, terminating=True))
    reason(node, "")
    assert announced(node) == BOTH
    node.write("web", service(policy="Cluster"), *both(node="n2", ready=False))
    becomes(node, set())
    reason(node, "no ready endpoint")


def test_what_flaps_ends_as_its_last_word_says(node: Node, kube_proxy: Callable[..., HealthPort]) -> None:
    kube_proxy()
    becomes(node, BOTH)
    for ready in itertools.islice(itertools.cycle((False, True)), 100):
        node.write("web", service(), *both(ready=ready))
    becomes(node, BOTH)
    for ready in itertools.islice(itertools.cycle((True, False)), 100):
        node.write("web", service(), *both(ready=ready))
    becomes(node, set())


# --- lives of the agent ---


def test_what_is_announced_stays_while_the_agent_is_away_and_is_adopted(
    node: Node, kube_proxy: Callable[..., HealthPort]
) -> None:
    port = kube_proxy()
    becomes(node, BOTH)
    node.kill()
    port.close()  # a kube-proxy that restarts at the same time
    assert announced(node) == BOTH
    node.start()
    assert announced(node) == BOTH
    back = kube_proxy()
    eventually(lambda: back.asked, what="it is asked")
    assert announced(node) == BOTH
    node.stop()
    node.write("web", service(), *both(ready=False))
    assert announced(node) == BOTH
    node.start()
    becomes(node, set())


def test_a_route_that_somebody_removes_is_back_and_one_that_is_nobodys_goes(
    node: Node, kube_proxy: Callable[..., HealthPort]
) -> None:
    kube_proxy()
    becomes(node, BOTH)
    node.ip("route", "del", "blackhole", V4, "table", SERVICE_TABLE)
    becomes(node, BOTH)
    assert node.ask("status")["repairs"]["route of a Service missing"] == 1
    node.ip("route", "add", "blackhole", "203.0.113.9", "table", SERVICE_TABLE, "proto", 134, "metric", 20)
    assert [row["type"] for row in node.ask("check") if "203.0.113.9" in row["item"]] == ["leak"]
    node.ask("repair")
    assert announced(node) == BOTH


def test_without_a_grant_nothing_is_announced_and_what_was_is_withdrawn(
    node: Node, kube_proxy: Callable[..., HealthPort]
) -> None:
    kube_proxy()
    becomes(node, BOTH)
    node.write("nodeconfig", config(allowed=[{"prefixes": ["203.0.113.0/25"]}]))
    becomes(node, {V4})
    reason(node, "no entry of spec.services.allowed grants it", of=V6)
    node.write("nodeconfig", with_spec())
    becomes(node, set())
    assert node.ask("services") == []


# --- the node ---


def test_a_node_that_is_drained_excluded_or_cordoned_says_so_and_withdraws(
    node: Node, kube_proxy: Callable[..., HealthPort]
) -> None:
    kube_proxy()
    becomes(node, BOTH)
    node.ask("drain")
    assert announced(node) == set()
    reason(node, "drained")
    node.ask("undrain")
    assert announced(node) == BOTH

    label = "node.kubernetes.io/exclude-from-external-load-balancers"
    cordoned = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "spec": {"unschedulable": True}}
    node.write("node", {**cordoned, "spec": {}, "metadata": {"name": "n1", "labels": {label: ""}}})
    becomes(node, set())
    reason(node, f"the node is excluded (label {label})")
    node.write("node", cordoned)
    becomes(node, BOTH)
    node.write("nodeconfig", {**config(), "spec": {**config()["spec"], "anycast": {"withdrawOnCordon": True}}})
    becomes(node, set())
    reason(node, "the node is cordoned")
    node.write("nodeconfig", config(exclude=True))
    reason(node, "the node is excluded (spec.services.exclude)")
    node.write("nodeconfig", config())
    becomes(node, BOTH)
    node.stop()  # cordoned: whoever ends it wants traffic elsewhere
    assert announced(node) == set()


# --- who else has the address ---


def test_an_address_of_two_services_is_announced_while_one_of_them_may_be_here(
    node: Node, kube_proxy: Callable[..., HealthPort]
) -> None:
    kube_proxy()
    kube_proxy(port=30124)
    node.write("other", service("other", V4, port=30124), endpoints("other"))
    becomes(node, BOTH)
    eventually(lambda: {r["address"] for r in node.ask("services") if r["shared"]} == {V4}, what="both are named")
    node.write("web", service(), *both(ready=False))
    becomes(node, {V4})
    assert why_not(node)["web", V4] == "no ready endpoint here; it is announced for shop/other"
    assert [row["shared"] for row in node.ask("services") if row["service"] == "shop/other"] == [["shop/web"]]
    node.write("other", service("other", V4, port=30124), endpoints("other", ready=False))
    becomes(node, set())


def test_a_pod_keeps_its_address_and_the_service_is_named(
    node: Node, kube_proxy: Callable[..., HealthPort], tmp_path: Path
) -> None:
    kube_proxy()
    becomes(node, BOTH)
    spec = config()["spec"] | {"anycast": {"allowed": [{"prefixes": ["2001:db8:5e::/64"]}]}}
    node.write("nodeconfig", {**config(), "spec": spec})
    node.write("pod-a", ready_pod("a", anycast=V6))
    eventually(lambda: "anycast" in str(node.ask("config")["spec"]), what="the grant is in force")
    node.pod("a", annotations={f"{OWN}anycast": V6})
    becomes(node, {V4})
    assert why_not(node)["web", V6] == "the pod default/a has the address here, and keeps it"
    assert any(problem["where"] == "Service shop/web" for problem in node.ask("status")["problems"])
    assert any(row["happening"] == "ServiceRefused" for row in node.ask("happened")["happened"])
    assert [str(r["protocol"]) for r in node.ip_json("-6", "route", "show", V6)] == ["134"]
    node.cni("DEL", "a")
    becomes(node, BOTH)
    assert not node.ask("status")["problems"]

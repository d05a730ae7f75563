"""Services and EndpointSlices of an API server: followed where something is granted, as far as it can tell them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from apiserver import OLDER_SLICES, PATHS, ApiServer
from flock.core.services import WATCHES
from harness import Node, eventually, with_spec
from servicing import ALLOWED, V4, V6, both, endpoints, service

BOTH = sorted((V4, V6))
WITH_GRANTS = with_spec(services={"allowed": ALLOWED})
SELECTING = "?fieldSelector=spec.type"


@pytest.fixture
def server(fresh: Node) -> Iterator[ApiServer]:
    with ApiServer(namespace=Path(f"/run/netns/{fresh.netns}")) as api:
        api.put({"kind": "Node", "metadata": {"name": "n1"}}, WITH_GRANTS)
        api.put(service(policy="Cluster"), *both(node="n2"))
        api.put({**service("inner", "203.0.113.7"), "spec": {"type": "ClusterIP"}}, *both("inner"))
        yield api


def start(node: Node, server: ApiServer) -> None:
    node.start(kubeconfig=server.kubeconfig(node.directory / "kubeconfig"))


def announces(node: Node, addresses: list[str]) -> None:
    eventually(lambda: node.ask("status")["services"] == addresses, what=f"announced: {addresses}")


def known(node: Node) -> set[str]:
    return {row["service"] for row in node.ask("services")}


def watched(node: Node) -> set[str]:
    return {watch["kind"] for watch in node.ask("status")["watches"]}


def extents(node: Node) -> set[str]:
    return {watch["extent"] for watch in node.ask("status")["watches"] if watch["kind"] == "EndpointSlice"}


def asked(server: ApiServer, kind: str) -> list[str]:
    return server.asked(PATHS[kind].rpartition("/")[0] + "/") if kind == "EndpointSlice" else server.asked(PATHS[kind])


def test_nothing_is_watched_where_nothing_is_granted(fresh: Node, server: ApiServer) -> None:
    server.put(with_spec())
    start(fresh, server)
    assert not watched(fresh) & {"Service", "EndpointSlice"} and not asked(server, "Service")
    server.put(WITH_GRANTS)
    announces(fresh, BOTH)
    assert watched(fresh) >= {"Service", "EndpointSlice"} and known(fresh) == {"shop/web"}
    slices = asked(server, "EndpointSlice")
    assert slices and all("/namespaces/shop/" in path and "service-name%3Dweb" in path for path in slices)
    assert all("spec.type%3DLoadBalancer" in path for path in asked(server, "Service"))


def test_a_change_is_followed_by_both_watches(fresh: Node, server: ApiServer) -> None:
    start(fresh, server)
    announces(fresh, BOTH)
    server.put(*both(node="n2", ready=False))
    announces(fresh, [])
    server.put(*both(node="n2"))
    announces(fresh, BOTH)
    server.put({**service(policy="Cluster"), "spec": {"type": "ClusterIP"}})
    announces(fresh, [])
    server.put(service(policy="Cluster"))
    announces(fresh, BOTH)
    server.delete("Service", "web", "shop")
    announces(fresh, [])


def test_a_server_that_cannot_select_types_and_knows_an_older_version_will_do(fresh: Node, server: ApiServer) -> None:
    server.errors[SELECTING] = 400
    server.errors[PATHS["EndpointSlice"].rpartition("/")[0] + "/"] = 404
    for old in both(node="n2"):
        found: dict[str, Any] = json.loads(json.dumps(old))
        found["endpoints"][0]["topology"] = {"kubernetes.io/hostname": found["endpoints"][0].pop("nodeName")}
        server.put(found)
    start(fresh, server)
    announces(fresh, BOTH)
    assert known(fresh) == {"shop/web"} and not fresh.ask("status")["problems"]
    assert server.asked(OLDER_SLICES.rpartition("/")[0])
    server.put({**service(policy="Cluster"), "spec": {"type": "ClusterIP"}})
    announces(fresh, [])


def test_endpoints_of_many_services_are_told_by_one_watch_for_all_but_headless_ones(
    fresh: Node, server: ApiServer
) -> None:
    many = {f"s{n}": f"203.0.113.{n + 2}" for n in range(WATCHES)}
    for name, address in many.items():
        server.put(service(name, address, policy="Cluster"), endpoints(name, node="n2"))
    start(fresh, server)
    announces(fresh, sorted((*BOTH, *many.values())))
    shared = f"kubernetes.io/service-name,!service.kubernetes.io/headless, of {WATCHES + 1}"
    assert extents(fresh) == {shared}
    server.put(endpoints("s7", node="n2", ready=False))
    announces(fresh, sorted({*BOTH, *many.values()} - {many["s7"]}))
    server.put(service("inner", "203.0.113.100", policy="Cluster"))  # its endpoints have not changed since the list
    announces(fresh, sorted({*BOTH, *many.values(), "203.0.113.100"} - {many["s7"]}))
    assert extents(fresh) == {shared, "shop, kubernetes.io/service-name=inner"}


def test_a_server_that_forbids_it_keeps_no_pod_waiting_and_says_so(fresh: Node, server: ApiServer) -> None:
    server.errors[PATHS["Service"]] = 403
    start(fresh, server)
    eventually(lambda: "services" in str(fresh.ask("status")["problems"]), what="it is told")
    assert fresh.ask("status")["ready"]


def test_an_address_that_is_not_granted_is_told_to_the_service_once_by_however_many_nodes(
    fresh: Node, server: ApiServer
) -> None:
    """Another life is another node, as the API server sees it."""
    server.put(service("other", "198.51.100.9", policy="Cluster"), endpoints("other", node="n2"))
    posted = "/api/v1/namespaces/shop/events"
    for times in (1, 2):
        start(fresh, server)
        eventually(lambda n=times: len(server.asked(posted, "POST")) == n, what="it is told")
        fresh.stop()
    (event,) = server.all("Event")
    assert event["reason"] == "FlockServiceNotAnnounced" and "198.51.100.9" in event["message"]
    assert event["involvedObject"]["kind"] == "Service" and event["involvedObject"]["name"] == "other"


def test_what_is_announced_stays_while_the_server_is_away_over_a_restart(fresh: Node, server: ApiServer) -> None:
    start(fresh, server)
    announces(fresh, BOTH)
    fresh.kill()
    server.errors[PATHS["EndpointSlice"]] = 503
    server.errors["/apis/discovery.k8s.io/v1/namespaces"] = 503
    start(fresh, server)
    assert fresh.ask("status")["services"] == [] and fresh.ask("status")["ready"]
    assert len(fresh.ip_json("-4", "route", "show", "table", 61708)) == 1  # nobody withdrew it
    server.errors.clear()
    announces(fresh, BOTH)

"""Addresses of Services at the routers: exactly those that work, through every transition and whatever dies."""

import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fabric_parts import (
    AGGREGATES,
    OWN,
    V4,
    V6,
    becomes,
    change_config,
    eventually,
    follows,
    host_prefix,
    received,
    start_agent,
    stop_agent,
    told,
)

from flock.lab.fabric import Lab
from flock.lab.home import write_object
from flock.lab.namespaces import NETNS_DIR
from flock.lab.router_bird import ROLE as BIRD
from servicing import HealthPort, both, endpoints, open_port, service

GRANT = {"allowed": [{"prefixes": ["192.0.2.0/25", "2001:db8:53::/64"]}], "communities": ["64601:300"]}
BOTH = {host_prefix(V4), host_prefix(V6)}


class Stage:
    """Two nodes that may announce `web`, each with an endpoint and a kube-proxy."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.ports: dict[str, HealthPort] = {}
        for node in ("n1", "n2"):
            change_config(lab, node, lambda spec: spec.update(services=GRANT))
        self.write("service-web", service("web", V4, V6))
        for node in ("n1", "n2"):
            self.endpoint(node)
            self.kube_proxy(node)

    def write(self, name: str, *objects: dict[str, Any]) -> None:
        write_object(self.lab.home.manifests, name, {"apiVersion": "v1", "kind": "List", "items": list(objects)})

    def endpoint(self, node: str, **conditions: Any) -> None:
        self.write(f"slices-web-{node}", *both("web", node=node, **conditions))

    def kube_proxy(self, node: str, **how: Any) -> None:
        self.ports[node] = open_port(NETNS_DIR / self.lab.host(node).netns, **how)

    def close(self) -> None:
        for port in self.ports.values():
            port.close()
        for path in self.lab.home.manifests.glob("*.json"):
            if path.name.startswith(("service-", "slices-")):
                path.unlink()

    def at_routers(self, *announcing: str) -> None:
        """Each router has from each node its aggregates and, of these nodes alone, the Service's addresses."""
        for node in ("n1", "n2"):
            wanted = AGGREGATES[node] | (BOTH if node in announcing else set())
            for router in ("r1", "r2"):
                follows(lambda n=node, r=router: received(self.lab, n, r).keys(), wanted)


@pytest.fixture
def stage(lab: Lab) -> Iterator[Stage]:
    made = Stage(lab)
    yield made
    made.close()


def test_routers_have_exactly_what_works_through_every_transition(stage: Stage) -> None:
    stage.at_routers("n1", "n2")
    stage.endpoint("n1", ready=False)
    stage.at_routers("n2")
    stage.endpoint("n1")
    stage.at_routers("n1", "n2")
    stage.endpoint("n2", ready=False, serving=True, terminating=True)
    stage.at_routers("n1")
    stage.ports["n1"].status = 503
    stage.endpoint("n1", serving=True)  # another word about it: kube-proxy is asked at once
    stage.at_routers()
    stage.ports["n1"].status = 200
    stage.endpoint("n2")
    stage.at_routers("n1", "n2")
    told(stage.lab, "n1", "drain")
    stage.at_routers("n2")
    told(stage.lab, "n1", "undrain")
    stage.at_routers("n1", "n2")
    change_config(stage.lab, "n2", lambda spec: spec["services"].update(exclude=True))
    stage.at_routers("n1")
    stage.write("service-web", service("web", V4, V6, policy="Cluster"))
    stage.endpoint("n1", ready=False)
    change_config(stage.lab, "n2", lambda spec: spec["services"].update(exclude=False))
    stage.at_routers("n1", "n2")  # the one endpoint left is elsewhere, to n1
    stage.write("service-web")
    stage.at_routers()


@pytest.mark.parametrize("last", [True, False])
def test_endpoints_flapping_a_hundred_times_leave_the_right_state(stage: Stage, last: bool) -> None:
    for turn in range(100):
        stage.endpoint("n1", ready=turn % 2 == 0)
    stage.endpoint("n1", ready=last)
    stage.at_routers(*(["n1"] if last else []), "n2")


def _agent(stage: Stage) -> Callable[[], None]:
    stop_agent(stage.lab, "n1", signal.SIGKILL)
    return lambda: start_agent(stage.lab, "n1")


def _bird(stage: Stage) -> Callable[[], None]:
    stage.lab.node("n1").host.stop(BIRD, by=signal.SIGKILL)
    return stage.lab.node("n1").start_bird


@pytest.mark.parametrize("killed", [_agent, _bird], ids=["agent", "bird"])
def test_what_dies_between_steps_comes_back_to_the_right_state(
    stage: Stage, killed: Callable[[Stage], Callable[[], None]]
) -> None:
    stage.at_routers("n1", "n2")
    for ready in (False, True):
        back = killed(stage)
        if killed is _agent:
            assert received(stage.lab, "n1").keys() >= (BOTH if not ready else set())  # nobody withdrew it meanwhile
        stage.endpoint("n1", ready=ready)
        back()
        becomes(lambda n="n1": received(stage.lab, n).keys(), AGGREGATES["n1"] | (BOTH if ready else set()))
        stage.at_routers(*(["n1"] if ready else []), "n2")
    stage.at_routers("n1", "n2")


def test_an_address_of_two_services_is_at_the_routers_while_one_of_them_works(stage: Stage) -> None:
    stage.write("service-other", service("other", V4, policy="Cluster"), endpoints("other", node="n2"))
    stage.at_routers("n1", "n2")
    stage.endpoint("n1", ready=False)
    follows(lambda: received(stage.lab, "n1").keys(), AGGREGATES["n1"] | {host_prefix(V4)})
    rows = {row["service"]: row for row in told(stage.lab, "n1", "services") if row["address"] == V4}
    assert rows["shop/other"]["announced"] and rows["shop/other"]["shared"] == ["shop/web"]
    assert rows["shop/web"]["reason"] == "no ready endpoint here; it is announced for shop/other"


def test_a_pods_anycast_address_that_is_given_to_a_service_stays_the_pods(stage: Stage) -> None:
    stage.at_routers("n1", "n2")
    stage.lab.pods.add("a", node="n1", annotations={f"{OWN}/anycast": V6}, ready=True)
    reasons = eventually(
        lambda: {row["address"]: row["reason"] for row in told(stage.lab, "n1", "services")},
        lambda seen: bool(seen[V6]),
    )
    assert reasons == {V4: "", V6: "the pod default/a has the address here, and keeps it"}
    assert {row["pod"]: row["announced"] for row in told(stage.lab, "n1", "anycast")} == {"default/a": True}
    stage.at_routers("n1", "n2")
    stage.lab.pods.set_ready("a", False)
    follows(lambda: received(stage.lab, "n1").keys(), AGGREGATES["n1"] | {host_prefix(V4)})
    stage.lab.pods.delete("a")
    stage.at_routers("n1", "n2")

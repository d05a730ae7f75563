"""What a Pod object, or an allocation, tells policies."""

from typing import Any

import msgspec
import pytest
from policy_world import HTTP, addresses

from flock.core.model import Allocation, Pod
from flock.core.policy.compiled import NamedPort
from flock.core.policy.podfacts import local_pod, pod_facts


def pod(**spec: Any) -> Pod:
    obj = {
        "metadata": {"namespace": "x", "name": "a", "uid": "1", "labels": {"k": "v"}},
        "spec": spec,
        "status": {"phase": "Running"},
    }
    return msgspec.convert(obj, Pod)


def test_ports_are_known_by_name_and_protocol_and_a_name_means_all_that_bear_it() -> None:
    ports: list[Any] = [
        {"containerPort": 80, "name": "http"},
        {"containerPort": 81, "name": "http"},
        {"containerPort": 53, "name": "dns", "protocol": "UDP"},
        {"containerPort": 99},
        {"containerPort": 0, "name": "none"},
        {"containerPort": 65536, "name": "beyond"},
        {"containerPort": 10**30, "name": "far-beyond"},
    ]
    found = pod_facts(pod(containers=[{"ports": ports}, {"ports": None}]), addresses=()).ports
    assert found == ((HTTP, 80), (HTTP, 81), (NamedPort("dns", "UDP"), 53))


@pytest.mark.parametrize(
    ("phase", "host_network", "takes_part"),
    [
        ("Running", False, True),
        ("Pending", False, True),
        ("", False, True),
        ("Failed", False, False),
        ("Succeeded", False, False),
        ("Running", True, False),
    ],
)
def test_finished_and_host_network_pods_take_no_part(phase: str, host_network: bool, takes_part: bool) -> None:
    facts = msgspec.structs.replace(pod_facts(pod(hostNetwork=host_network), addresses=()), phase=phase)
    assert facts.takes_part is takes_part


def test_a_local_pods_addresses_are_those_of_its_allocation() -> None:
    allocation = Allocation(
        container_id="c1",
        namespace="x",
        pod_name="a",
        owner_uid="1",
        ip6="2001:db8::1",
        anycast=("2001:db8:53::1",),
        addresses=("2001:db8::1", "192.0.2.9"),
        state="committed",
        allocated_at="",
        host_interface="flock1",
    )
    local = local_pod(allocation, labels=None)
    assert local.addresses == addresses("2001:db8::1", "192.0.2.9", "2001:db8:53::1")
    assert (local.interface, local.pod, local.uid, local.labels) == ("flock1", "x/a", "1", None)

"""`spec.limits.connectionsPerPod`, and whose a connection is."""

import pytest

from flock.core.errors import FlockError
from flock.core.nodeconfig import parse_node_config
from flock.core.policy.numbers import Numbered, Numbers, PodNumbers


def configured(value: object) -> int | None:
    spec = {"cidr4": ["192.0.2.0/24"], "limits": {"connectionsPerPod": value}}
    config = parse_node_config(
        {"apiVersion": "flock.fritzlab.net/v1alpha1", "kind": "NodeConfig", "metadata": {"name": "n1"}, "spec": spec}
    )
    return config.limits.connections_per_pod


@pytest.mark.parametrize("value", [0, 1, 65536, 2**24])
def test_a_number_is_taken(value: int) -> None:
    assert configured(value) == value


@pytest.mark.parametrize("value", [-1, 2**24 + 1, "many", 0.5, True])
def test_anything_else_is_refused_by_name(value: object) -> None:
    with pytest.raises(FlockError, match=r"limits\.connectionsPerPod"):
        configured(value)


def test_connections_count_by_all_numbers_a_pod_has_or_had() -> None:
    pod = PodNumbers(Numbered(3, (1,)), Numbered(2, (1,)))
    numbers = Numbers({"flock00000001": pod, "flock00000002": PodNumbers(Numbered(9), Numbered(9))})
    assert numbers.opened({1: 5, 2: 10, 3: 100, 77: 1000}) == {"flock00000001": 115, "flock00000002": 0}

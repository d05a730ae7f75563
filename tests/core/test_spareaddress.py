"""An address to try anycast with is one that nobody has and every node grants."""

from itertools import count
from typing import Any

from flock.core.spareaddress import spare_addresses

LABELS = {"kubernetes.io/metadata.name": "flock-check"}


def grants(*prefixes: str, labels: dict[str, str] | None = None) -> dict[str, Any]:
    selector = {"namespaceSelector": {"matchLabels": labels}} if labels else {}
    return {"anycast": {"allowed": [{"prefixes": list(prefixes), **selector}]}}


def found(*specs: dict[str, Any], taken: tuple[str, ...] = ()) -> dict[str, str]:
    numbers = count()
    return spare_addresses(specs, labels=LABELS, taken=taken, draw=lambda below: next(numbers) % below)


def test_one_of_each_family_that_all_nodes_grant() -> None:
    one, other = grants("2001:db8:53::/64", "192.0.2.0/25"), grants("2001:db8::/32", "192.0.2.0/24")
    assert found(one, other) == {"ipv6": "2001:db8:53::1", "ipv4": "192.0.2.2"}


def test_what_one_node_grants_alone_is_not_taken() -> None:
    assert found(grants("2001:db8:53::/64"), grants("192.0.2.0/24")) == {}


def test_a_grant_for_other_namespaces_is_not_ours() -> None:
    assert found(grants("2001:db8:53::/64", labels={"team": "dns"})) == {}
    assert found(grants("2001:db8:53::/64", labels=LABELS)) == {"ipv6": "2001:db8:53::1"}


def test_an_address_that_somebody_carries_is_left_alone() -> None:
    assert found(grants("192.0.2.0/29"), taken=("192.0.2.1", "192.0.2.2")) == {"ipv4": "192.0.2.3"}


def test_a_prefix_without_a_free_address_gives_none() -> None:
    assert found(grants("192.0.2.0/30"), taken=("192.0.2.1", "192.0.2.2")) == {}
    assert found(grants("192.0.2.1/32")) == {}


def test_without_grants_there_is_none() -> None:
    assert found({}, {}) == {} and found() == {}

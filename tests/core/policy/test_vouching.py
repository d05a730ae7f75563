"""Which addresses of a pod elsewhere count: what a tenant cannot forge."""

from ipaddress import ip_interface
from typing import Any

import msgspec
import pytest
from policy_world import addresses

from flock.core.annotations import MAX_ENTRIES
from flock.core.facts import HostAddress, NodeFacts
from flock.core.model import Pod
from flock.core.nodeconfig import NodeConfig, parse_node_config
from flock.core.policy.compiled import Address
from flock.core.policy.vouching import Vouching

ANYCAST, ADDRESSES = "flock.fritzlab.net/anycast", "flock.fritzlab.net/addresses"
PRIMARY = ("10.0.9.1", "2001:db8:9::1")
OWN = ("198.51.100.1", "2001:db8:ff::1")
NODE = NodeFacts(
    node="n1",
    addresses=(
        HostAddress("eth0", ip_interface("198.51.100.1/24")),
        HostAddress("eth0", ip_interface("2001:db8:ff::1/64")),
    ),
)
TO_BLUE = {"prefixes": ["203.0.113.0/24", "2001:db8:53::/64"], "namespaceSelector": {"matchLabels": {"team": "blue"}}}
TO_ALL = {"prefixes": ["198.51.100.0/24", "192.0.2.0/24"]}


def config(**spec: Any) -> NodeConfig:
    return parse_node_config(
        {
            "apiVersion": "flock.fritzlab.net/v1alpha1",
            "kind": "NodeConfig",
            "metadata": {"name": "n1"},
            "spec": {"cidr4": ["10.0.1.0/24"], "cidr6": ["2001:db8:1::/64"], **spec},
        }
    )


def pod(*, ips: tuple[str, ...] = PRIMARY, name: str = "a", **annotations: str) -> Pod:
    named = {f"flock.fritzlab.net/{key}": value for key, value in annotations.items()}
    obj = {
        "metadata": {"namespace": "x", "name": name, "annotations": named},
        "status": {"podIPs": [{"ip": ip} for ip in ips]},
    }
    return msgspec.convert(obj, Pod)


def vouching(*, labels: dict[str, str] | None = None, **spec: Any) -> Vouching:
    made = Vouching()
    made.configure(config(**spec), NODE)
    made.set_namespace("x", labels or {})
    return made


def beyond(made: Vouching, asking: Pod) -> tuple[Address, ...]:
    found = made.facts(asking).addresses
    assert found[:2] == addresses(*PRIMARY)
    return found[2:]


def test_what_an_annotation_claims_is_nobodys() -> None:
    asking = pod(anycast="2001:db8:53::1", addresses="203.0.113.66,10.0.1.7,2001:db8:1::7")
    assert beyond(vouching(), asking) == ()
    assert beyond(Vouching(), asking) == ()


def test_what_the_configuration_grants_the_namespace_counts() -> None:
    asking = pod(anycast="2001:db8:53::1", addresses="203.0.113.66, 10.0.9.1")
    both: dict[str, Any] = {"anycast": {"allowed": [TO_BLUE]}, "addresses": {"allowed": [TO_BLUE]}}
    assert beyond(vouching(labels={"team": "blue"}, **both), asking) == addresses("203.0.113.66", "2001:db8:53::1")
    assert beyond(vouching(labels={"team": "red"}, **both), asking) == ()
    assert beyond(vouching(**both), asking) == ()


def test_a_grant_is_of_its_kind() -> None:
    asking = pod(anycast="2001:db8:53::1", addresses="203.0.113.66")
    blue = {"team": "blue"}
    assert beyond(vouching(labels=blue, anycast={"allowed": [TO_BLUE]}), asking) == addresses("2001:db8:53::1")
    assert beyond(vouching(labels=blue, addresses={"allowed": [TO_BLUE]}), asking) == addresses("203.0.113.66")


def test_what_is_inside_this_nodes_aggregates_needs_a_grant_as_well() -> None:
    asking = pod(anycast="10.0.1.7,10.0.1.77")
    made = vouching(anycast={"allowed": [{"prefixes": ["10.0.1.0/28"]}]})
    assert beyond(made, asking) == addresses("10.0.1.7")


def test_nothing_grants_what_nobody_may_have() -> None:
    made = vouching(addresses={"allowed": [{"prefixes": ["::/0", "0.0.0.0/0"]}]})
    forbidden = (*OWN, "198.51.100.77", "127.0.0.1", "169.254.1.1", "224.0.0.1", "::1", "fe80::1", "::ffff:192.0.2.1")
    assert beyond(made, pod(addresses=",".join((*forbidden, "192.0.2.1", "nonsense", "2001:db8:3::1%eth0")))) == (
        addresses("192.0.2.1")
    )


@pytest.mark.parametrize("number", [MAX_ENTRIES, MAX_ENTRIES + 1, 24_000])
def test_a_list_no_add_would_take_counts_for_nothing(number: int) -> None:
    texts = [f"2001:db8:53::{at:x}" for at in range(1, number + 1)]
    made = vouching(anycast={"allowed": [{"prefixes": ["2001:db8:53::/64"]}]})
    assert beyond(made, pod(anycast=",".join(texts))) == addresses(*(texts if number <= MAX_ENTRIES else ()))


def test_a_pod_that_is_not_attached_has_no_address_whatever_it_may_have() -> None:
    made = vouching(labels={"team": "blue"}, addresses={"allowed": [TO_BLUE]})
    assert made.facts(pod(ips=(), addresses="203.0.113.66")).addresses == ()


def test_a_status_with_addresses_no_pod_can_have_says_nothing() -> None:
    impossible = ("", "nonsense", "127.0.0.1", "::1", "fe80::1", "169.254.0.9", "ff02::1", "::ffff:10.0.0.1", *OWN)
    assert vouching().facts(pod(ips=(*impossible, "10.0.9.1"))).addresses == addresses("10.0.9.1")
    many = tuple(f"10.0.{at // 250}.{at % 250 + 1}" for at in range(3 * MAX_ENTRIES))
    assert len(vouching().facts(pod(ips=many)).addresses) == MAX_ENTRIES


def test_pods_are_looked_at_again_when_their_namespace_or_the_configuration_changes() -> None:
    made = vouching()
    asking = pod(addresses="203.0.113.66")
    for other in (asking, pod(name="plain"), pod(name="gone", anycast="2001:db8:53::1")):
        made.facts(other)
    made.forget(("x", "gone"))
    granting = config(addresses={"allowed": [TO_BLUE]})
    assert [*made.configure(granting, NODE)] == [("x", "a")]
    assert beyond(made, asking) == ()
    assert [*made.set_namespace("x", {"team": "blue"})] == [("x", "a")]
    assert beyond(made, asking) == addresses("203.0.113.66")
    assert not [*made.configure(granting, NODE)] and not [*made.set_namespace("x", {"team": "blue"})]
    assert [*made.drop_namespace("x")] == [("x", "a")]
    assert beyond(made, asking) == ()
    made.facts(pod())  # asks for nothing any more
    assert not [*made.configure(None, NODE)]

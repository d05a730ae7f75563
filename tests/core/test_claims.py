"""How many addresses a namespace has by name, and how many it may have."""

from ipaddress import IPv4Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flock.core.holdings import Claims
from flock.core.nodeconfig import Limits
from flock.core.pools import Network, Pool
from flock.core.reserving import Named, excess, share

POOL = ip_network("192.0.2.0/24")


def named(*addresses: str, pool: Network | None = POOL) -> list[Named]:
    return [Named(kind="addresses", address=ip_address(a), granted=False, pool=pool) for a in addresses]


def with_claims(*addresses: str) -> Claims:
    claims = Claims()
    for address in addresses:
        claims.add("shop", ip_address(address))
    return claims


def over(claims: Claims, wanted: list[Named], *aside: str, **limits: int) -> str:
    return excess(
        claims, namespace="shop", wanted=wanted, limits=Limits(**limits), aside=[ip_network(a) for a in aside]
    )


ADDRESSES = st.sampled_from(
    [ip_address(f"192.0.2.{n}") for n in range(8)] + [ip_address(f"2001:db8::{n}") for n in range(8)]
)


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(["shop", "dns"]), ADDRESSES), max_size=60))
def test_the_count_is_that_of_a_list_that_is_searched(steps: list[tuple[bool, str, IPv4Address]]) -> None:
    claims, model = Claims(), list[tuple[str, IPv4Address]]()
    for add, namespace, address in steps:
        if add:
            claims.add(namespace, address)
            model.append((namespace, address))
        else:
            claims.discard(namespace, address)
            if (namespace, address) in model:
                model.remove((namespace, address))
    for namespace in ("shop", "dns"):
        has = {a for n, a in model if n == namespace}
        assert claims.count(namespace) == len(has)
        for network in map(
            ip_network, ("192.0.2.0/30", "192.0.2.4/31", "2001:db8::/126", "2001:db8::/32", "0.0.0.0/0")
        ):
            assert claims.count(namespace, network) == sum(a in network for a in has)
        assert all(claims.has(namespace, a) for a in has)


@pytest.mark.parametrize(
    ("pool", "most"),
    [
        ("192.0.2.0/30", 1),  # one address: any pod at all uses it up
        ("192.0.2.0/29", 4),  # five: never the last one
        ("192.0.2.0/28", 4),
        ("192.0.2.0/26", 15),
        ("192.0.2.0/24", 63),
        ("10.0.0.0/16", 16383),
    ],
)
def test_a_quarter_of_a_pool_may_be_named_and_a_few_of_a_tiny_one(pool: str, most: int) -> None:
    assert share(Pool(ip_network(pool)).size, percent=25) == most


def test_what_the_namespace_has_already_is_not_counted_again() -> None:
    have = [f"192.0.2.{n}" for n in range(2, 65)]
    assert not over(with_claims(*have), named(*have))
    assert "has 63 and may have 63" in over(with_claims(*have), named("192.0.2.99", have[0]))


def test_two_namespaces_are_counted_apart() -> None:
    claims = with_claims(*[f"192.0.2.{n}" for n in range(2, 65)])
    assert not excess(claims, namespace="dns", wanted=named("192.0.2.99"), limits=Limits(), aside=())


def test_what_is_set_aside_is_not_of_the_pool() -> None:
    """63 granted ones leave the namespace its share of the rest, which is smaller by them."""
    granted = [f"192.0.2.{n}" for n in range(128, 191)]
    rest = [f"192.0.2.{n}" for n in range(2, 34)]
    claims = with_claims(*granted)
    assert "may have 31" in over(claims, named(*rest), "192.0.2.128/25")
    assert not over(claims, named(*rest[:31]), "192.0.2.128/25")


def test_there_is_a_bound_on_all_of_them_together_granted_ones_too() -> None:
    many = [f"2001:db8:53::{n:x}" for n in range(257)]
    assert "spec.limits.claimsPerNamespace" in over(Claims(), named(*many, pool=None))
    assert not over(Claims(), named(*many[:256], pool=None))
    assert not over(Claims(), named(*many, pool=None), claims_per_namespace=300)


def test_the_share_is_the_operators_to_set() -> None:
    many = [f"192.0.2.{n}" for n in range(2, 255)]
    assert not over(Claims(), named(*many), pool_percent_per_namespace=100)
    assert "may have 4" in over(Claims(), named(*many), pool_percent_per_namespace=1)

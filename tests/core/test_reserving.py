"""A pod's addresses are taken together, and cool down together when they were in use."""

import random
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any

import pytest

from flock.core.errors import AddressInUse, FlockError, PoolExhausted, TooManyClaims
from flock.core.ipam import Ipam
from flock.core.model import Allocation, Released
from flock.core.nodeconfig import Limits
from flock.core.podrequest import PodRequest, parse_annotations
from flock.core.reserving import Named, Reserved, reserve

CIDR6, CIDR4 = (IPv6Network("2001:db8:1::/64"),), (IPv4Network("192.0.2.0/29"),)
ANYCAST, EXTRA = "2001:db8:53::1", "2001:db8:53::7"
COOLDOWN = 120.0
ANNOTATIONS = {"flock.fritzlab.net/anycast": ANYCAST, "flock.fritzlab.net/addresses": EXTRA}


def book() -> Ipam:
    return Ipam(rng=random.Random(1), cooldown=COOLDOWN)


def asked(annotations: dict[str, str] | None = None) -> PodRequest:
    return parse_annotations(annotations or {}, default_ipv6=True, default_ipv4=True, cidr6=CIDR6, cidr4=CIDR4)


def take(ipam: Ipam, container: str, request: PodRequest | None = None, **more: Any) -> Reserved:
    request = request or asked()
    named = [Named(kind="addresses", address=a, granted=True, pool=None) for a in request.addresses]
    named += [Named(kind="anycast", address=a, granted=True, pool=None) for a in request.anycast]
    arguments: dict[str, Any] = {"namespace": "shop", "limits": Limits(), "compose": lambda _: None, "now": 0.0}
    return reserve(ipam, request, container_id=container, named=named, **{**arguments, **more})


def recorded(container: str, taken: Reserved, request: PodRequest) -> Allocation:
    return Allocation(
        container_id=container,
        namespace="shop",
        pod_name=container,
        owner_uid="",
        ip6=taken.ip6,
        ip4=taken.ip4,
        anycast=tuple(map(str, request.anycast)),
        addresses=tuple(map(str, request.addresses)),
        state="committed",
        allocated_at="",
    )


def test_a_pod_gets_an_address_of_each_family_and_what_it_asks_for_by_name() -> None:
    ipam = book()
    taken = take(ipam, "a", asked(ANNOTATIONS))
    assert taken.ip6 == EXTRA, "what it has by name is its address of that family"
    assert ip_address(taken.ip4) in CIDR4[0] and ip_address(take(ipam, "b").ip6) in CIDR6[0]
    assert {ipam.holder(ip_address(a)) for a in (taken.ip6, taken.ip4)} == {"a"}
    assert ipam.sharers(ip_address(ANYCAST)) == {"a"}


def fill(ipam: Ipam) -> None:
    while True:
        try:
            ipam.pick(CIDR4, "others", 0)
        except PoolExhausted:
            return


def hold_extra(ipam: Ipam) -> None:
    ipam.share(ip_address(EXTRA), "other", 0)


@pytest.mark.parametrize(
    ("obstacle", "limits", "error"),
    [
        (fill, Limits(), PoolExhausted),
        (hold_extra, Limits(), AddressInUse),
        (lambda _: None, Limits(claims_per_namespace=1), TooManyClaims),
    ],
)
def test_what_cannot_be_taken_as_a_whole_is_not_taken_at_all(obstacle: Any, limits: Limits, error: Any) -> None:
    ipam = book()
    obstacle(ipam)
    before = ipam.use((*CIDR6, *CIDR4, IPv6Network("2001:db8:53::/64")), 0)
    with pytest.raises(error) as refused:
        take(ipam, "a", asked(ANNOTATIONS), limits=limits)
    assert isinstance(refused.value, FlockError)
    assert ipam.use((*CIDR6, *CIDR4, IPv6Network("2001:db8:53::/64")), 0) == before
    assert not ipam.cooling(0) and not ipam.claims.count("shop")


def test_what_was_in_use_cools_down_and_what_was_not_is_as_good_as_new() -> None:
    ipam, request = book(), asked(ANNOTATIONS)
    never_used = recorded("a", take(ipam, "a", request), request)
    ipam.give_back(never_used)
    assert not ipam.cooling(0)
    taken = take(ipam, "b", request)
    used = recorded("b", taken._replace(ip6=""), request)
    resting = ipam.resting(used, 5.0)
    assert not ipam.cooling(5), "it is in use until it is given back"
    ipam.give_back(used, resting)
    assert ipam.cooling(5) == resting == [Released(a, 5.0, "shop") for a in (used.ip4, EXTRA, ANYCAST)]


def test_a_shared_address_cools_once_nobody_has_it_also_if_all_leave_at_once() -> None:
    ipam, request = book(), asked({"flock.fritzlab.net/anycast": ANYCAST})
    both = [recorded(name, take(ipam, name, request), request) for name in ("a", "b")]
    leaving = [(known, ipam.resting(known, 5.0)) for known in both]  # both are on their way to the disk
    for known, resting in leaving:
        assert IPv6Address(ANYCAST) not in {ip_address(r.address) for r in ipam.cooling(5)}
        ipam.give_back(known, resting)
    assert ANYCAST in {r.address for r in ipam.cooling(5)}


def test_an_address_book_made_from_the_record_cools_what_nobody_has() -> None:
    """As after a restart: what one of two sharers gave back is on record, and the other has it still."""
    ipam, request = book(), asked({"flock.fritzlab.net/anycast": ANYCAST})
    both = [recorded(name, take(ipam, name, request), request) for name in ("a", "b")]
    again = book()
    again.seed(both[1:], ipam.resting(both[0], 5.0))
    assert {r.address for r in again.cooling(5)} == {both[0].ip6, both[0].ip4}

"""A pod's annotations against a node with 2001:db8:1::/64 and 192.0.2.0/26, unless a test says otherwise."""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flock.core.annotations import (
    ADDRESSES,
    ANYCAST,
    BOOLEANS,
    CIDR4,
    CIDR6,
    IPV4,
    IPV6,
    MAX_ENTRIES,
    OF_PODS,
)
from flock.core.errors import AnnotationError, FieldError
from flock.core.podrequest import PodRequest, parse_annotations

NODE6 = (IPv6Network("2001:db8:1::/64"),)
NODE4 = (IPv4Network("192.0.2.0/26"),)


def parse(
    annotations: dict[str, str] | None = None,
    *,
    default_ipv6: bool = True,
    default_ipv4: bool = True,
    cidr6: Sequence[IPv6Network] = NODE6,
    cidr4: Sequence[IPv4Network] = NODE4,
) -> PodRequest:
    return parse_annotations(
        annotations or {}, default_ipv6=default_ipv6, default_ipv4=default_ipv4, cidr6=cidr6, cidr4=cidr4
    )


def refused(field: str, annotations: dict[str, str], **node: object) -> AnnotationError:
    with pytest.raises(AnnotationError) as error:
        parse(annotations, **node)  # type: ignore[arg-type]
    assert error.value.field == field
    return error.value


# --- families -----------------------------------------------------------------------------------------------


def test_a_pod_that_asks_for_nothing_gets_both_families_from_the_nodes_cidrs() -> None:
    assert parse() == PodRequest(ipv6=True, ipv4=True, pools6=NODE6, pools4=NODE4)


@pytest.mark.parametrize("text", BOOLEANS)
def test_booleans_are_spelt_as_in_go(text: str) -> None:
    request = parse({IPV4: text})
    assert request.ipv4 is (text[0] in "1tT")
    assert request.pools4 == (NODE4 if request.ipv4 else ())


@pytest.mark.parametrize("text", ["", "yes", "on", "tRUE", "2", " true"])
@pytest.mark.parametrize("key", [IPV6, IPV4])
def test_anything_else_is_no_boolean(key: str, text: str) -> None:
    refused(key, {key: text})


def test_the_pods_word_beats_the_nodes_default() -> None:
    assert parse({IPV4: "true"}, default_ipv4=False).pools4 == NODE4
    assert parse({IPV4: "false"}).ipv4 is False
    assert parse(default_ipv4=False).ipv4 is False


def test_a_family_without_a_cidr_is_off_by_default() -> None:
    assert parse(cidr4=()) == PodRequest(ipv6=True, ipv4=False, pools6=NODE6)


def test_asking_for_a_family_without_a_cidr_is_an_error() -> None:
    assert "spec.cidr4" in refused(IPV4, {IPV4: "true"}, cidr4=()).details
    refused(IPV6, {IPV6: "1", ANYCAST: "2001:db8:53::1"}, cidr6=())


def test_an_address_of_its_own_makes_up_for_a_missing_cidr() -> None:
    request = parse({IPV4: "true", ADDRESSES: "198.51.100.7"}, cidr4=())
    assert (request.ipv4, request.primary4, request.pools4) == (True, IPv4Address("198.51.100.7"), ())


@pytest.mark.parametrize("annotations", [{IPV6: "false", IPV4: "false"}, {IPV6: "f"}])
def test_a_pod_that_switches_both_families_off_is_refused(annotations: dict[str, str]) -> None:
    refused(IPV6, annotations, default_ipv4=False)


def test_a_node_that_gives_nothing_is_named_as_the_cause() -> None:
    with pytest.raises(FieldError) as error:
        parse(cidr6=(), cidr4=())
    assert error.value.field == "spec.defaults"


# --- pools --------------------------------------------------------------------------------------------------

TWO6 = (IPv6Network("2001:db8:1::/64"), IPv6Network("2001:db8:2::/64"))


@pytest.mark.parametrize(
    ("text", "pools"),
    [
        ("2001:db8:1::/64", ["2001:db8:1::/64"]),
        ("2001:0DB8:1:0::/64", ["2001:db8:1::/64"]),
        ("2001:db8:2::/48", ["2001:db8:2::/64"]),
        ("2001:db8::/32", ["2001:db8:1::/64", "2001:db8:2::/64"]),
        ("2001:db8:2::a000/116", ["2001:db8:2::a000/116"]),
        ("2001:db8:9::/64, 2001:db8:2::/80,2001:db8:1::/64", ["2001:db8:2::/80"]),
        (" , ", ["2001:db8:1::/64", "2001:db8:2::/64"]),
    ],
)
def test_the_first_prefix_that_touches_the_node_decides(text: str, pools: list[str]) -> None:
    assert [str(pool) for pool in parse({CIDR6: text}, cidr6=TWO6).pools6] == pools


def test_disjoint_prefixes_are_an_error_that_shows_both_sides() -> None:
    message = refused(CIDR4, {CIDR4: "10.0.0.0/8, 192.0.2.64/26"}).msg
    assert "192.0.2.64/26" in message and "192.0.2.0/26" in message


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (CIDR6, "192.0.2.0/26"),
        (CIDR4, "2001:db8:1::/64"),
        (CIDR6, "2001:db8:1::1/64"),
        (CIDR4, "192.0.2.1/26"),
        (CIDR4, "192.0.2.0/31"),
        (CIDR4, "192.0.2.0/32"),
        (CIDR4, "192.0.2.0"),
        (CIDR4, "192.0.2.0/255.255.255.192"),
        (CIDR4, "192.0.2.0/26/26"),
        (CIDR4, "192.0.2.0/٢٦"),
        (CIDR6, "2001:db8:1::%eth0/64"),
        (CIDR6, "2001:db8:1::/129"),
        (CIDR6, "2001:db8:1::/64 2001:db8:2::/64"),
        # one bad entry spoils the list even behind a good one
        (CIDR4, "192.0.2.0/26, x"),
    ],
)
def test_a_bad_prefix_is_refused(key: str, text: str) -> None:
    refused(key, {key: text})


def test_the_smallest_ipv4_pool_is_a_slash_30() -> None:
    assert parse({CIDR4: "192.0.2.8/30"}).pools4 == (IPv4Network("192.0.2.8/30"),)


def test_a_pool_for_a_family_the_pod_switched_off_is_ignored_with_a_warning() -> None:
    request = parse({IPV4: "false", CIDR4: "192.0.2.0/28"})
    assert request.pools4 == ()
    assert request.warnings == (f"{CIDR4}: ignored, IPv4 is switched off",)


def test_a_pool_for_a_family_that_is_off_by_default_is_an_error_with_the_cure() -> None:
    assert IPV4 in refused(CIDR4, {CIDR4: "192.0.2.0/28"}, default_ipv4=False).details
    refused(CIDR4, {CIDR4: "192.0.2.0/28"}, cidr4=())


def test_a_pool_beside_a_primary_of_its_own_is_ignored_with_a_warning() -> None:
    request = parse({ADDRESSES: "192.0.2.9", CIDR4: "10.0.0.0/8"})
    assert request.pools4 == ()
    assert len(request.warnings) == 1


# --- addresses and anycast ----------------------------------------------------------------------------------


def test_the_first_address_of_each_family_replaces_allocation() -> None:
    request = parse({ADDRESSES: "198.51.100.7, 2001:db8:53::7,198.51.100.8,2001:db8:53::8"})
    assert request.primary6 == IPv6Address("2001:db8:53::7")
    assert request.primary4 == IPv4Address("198.51.100.7")
    assert request.pools6 == () and request.pools4 == ()
    assert [str(a) for a in request.addresses] == ["198.51.100.7", "2001:db8:53::7", "198.51.100.8", "2001:db8:53::8"]


def test_anycast_leaves_allocation_alone() -> None:
    request = parse({ANYCAST: "2001:db8:53::1 ,198.51.100.53"})
    assert request.anycast == (IPv6Address("2001:db8:53::1"), IPv4Address("198.51.100.53"))
    assert (request.pools6, request.pools4, request.primary6, request.addresses) == (NODE6, NODE4, None, ())


@pytest.mark.parametrize("key", [ANYCAST, ADDRESSES])
def test_spellings_of_one_address_collapse(key: str) -> None:
    request = parse({key: "2001:db8:53::1,2001:DB8:53:0::1, 2001:0db8:53::0001,"})
    assert request.anycast + request.addresses == (IPv6Address("2001:db8:53::1"),)


def test_an_address_cannot_be_anycast_and_own() -> None:
    refused(ADDRESSES, {ANYCAST: "2001:db8:53::1", ADDRESSES: "2001:DB8:53::1"})


@pytest.mark.parametrize("key", [ANYCAST, ADDRESSES])
def test_an_address_of_a_family_that_is_off_is_refused_with_the_cure(key: str) -> None:
    assert "remove" in refused(key, {key: "198.51.100.7", IPV4: "false"}).details
    assert f'{IPV4}: "true"' in refused(key, {key: "198.51.100.7"}, default_ipv4=False).details
    assert f'{IPV6}: "true"' in refused(key, {key: "2001:db8:53::1"}, cidr6=()).details


@pytest.mark.parametrize("key", [ANYCAST, ADDRESSES])
@pytest.mark.parametrize(
    "text",
    [
        "::", "::1", "::ffff:192.0.2.1", "fe80::1", "febf::1", "ff02::1", "fe80::1%eth0", "2001:db8::1%eth0",
        "0.0.0.0", "0.1.2.3", "127.0.0.1", "169.254.1.1", "224.0.0.1", "240.0.0.1", "255.255.255.255",
        "host", "192.0.2.1/32", "192.0.2.01", "1", "2001:db8::1 2001:db8::2", "x" * 500,
    ],
)  # fmt: skip
def test_what_no_pod_can_have_is_refused(key: str, text: str) -> None:
    assert len(refused(key, {key: f"2001:db8:53::1, {text}"}).msg) < 200


def test_lists_are_bounded() -> None:
    many = [f"2001:db8:53::{i:x}" for i in range(1, MAX_ENTRIES + 2)]
    assert len(parse({ANYCAST: ",".join(many[:-1])}).anycast) == MAX_ENTRIES
    refused(ANYCAST, {ANYCAST: ",".join(many)})


def test_a_misspelt_annotation_is_a_warning() -> None:
    request = parse({"flock.fritzlab.net/any-cast": "x", "flock.fritzlab.network/x": "y", "example.com/ipv4": "z"})
    assert request.warnings == ("flock.fritzlab.net/any-cast: no such annotation, ignored",)


# --- anything at all ----------------------------------------------------------------------------------------

PLAUSIBLE = st.sampled_from(
    ["true", "false", "2001:db8:1::/64", "2001:db8::/32", "192.0.2.0/28", "2001:db8:53::1", "198.51.100.1", "::1", ""]
)
VALUE = st.one_of(st.text(max_size=30), st.lists(PLAUSIBLE, max_size=4).map(", ".join))


@given(
    annotations=st.dictionaries(st.sampled_from(sorted(OF_PODS)), VALUE),
    default_ipv6=st.booleans(),
    default_ipv4=st.booleans(),
    cidr6=st.sampled_from([(), NODE6]),
    cidr4=st.sampled_from([(), NODE4]),
)
def test_any_annotations_are_taken_consistently_or_refused_by_name(
    annotations: dict[str, str],
    default_ipv6: bool,
    default_ipv4: bool,
    cidr6: tuple[IPv6Network, ...],
    cidr4: tuple[IPv4Network, ...],
) -> None:
    try:
        request = parse(annotations, default_ipv6=default_ipv6, default_ipv4=default_ipv4, cidr6=cidr6, cidr4=cidr4)
    except AnnotationError as error:
        assert error.field in annotations
        assert "\n" not in error.msg
    except FieldError as error:
        assert error.field == "spec.defaults"
    else:
        assert request.ipv6 == (bool(request.pools6) != bool(request.primary6))
        assert request.ipv4 == (bool(request.pools4) != bool(request.primary4))
        on = {6: request.ipv6, 4: request.ipv4}
        assert all(on[a.version] for a in (*request.anycast, *request.addresses))
        assert not set(request.anycast) & set(request.addresses)

"""Names by which our things are found again in the kernel."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flock.core import naming

# Published test vectors of FNV-1a (draft-eastlake-fnv and its reference test suite).
VECTORS = [
    (b"", 0x811C9DC5, 0xCBF29CE484222325),
    (b"a", 0xE40C292C, 0xAF63DC4C8601EC8C),
    (b"b", 0xE70C2DE5, 0xAF63DF4C8601F1A5),
    (b"foobar", 0xBF9CF968, 0x85944171F73967E8),
]


@pytest.mark.parametrize(("data", "hash32", "hash64"), VECTORS)
def test_the_hashes_are_fnv_1a(data: bytes, hash32: int, hash64: int) -> None:
    assert naming.fnv1a32(data) == hash32
    assert naming.fnv1a64(data) == hash64


def test_a_host_interface_is_named_as_the_original_names_it() -> None:
    assert naming.host_interface("foobar") == "flockbf9cf968"
    assert naming.host_interface("") == "flock811c9dc5"


@given(st.text())
def test_every_container_has_a_name_the_kernel_takes_and_we_recognise(container_id: str) -> None:
    for attempt in range(3):
        name = naming.host_interface(container_id, attempt)
        assert len(name) <= 15
        assert naming.is_host_interface(name)


def test_each_attempt_after_a_collision_has_another_name() -> None:
    names = [naming.host_interface("c0ffee", attempt) for attempt in range(50)]
    assert len(set(names)) == 50


@pytest.mark.parametrize(
    "name",
    [
        "",
        "flock",
        "flock1234567",
        "flock123456789",
        "flock1234567g",
        "flock1234ABCD",
        "xflock12345678",
        "flock12345678\n",
    ],
)
def test_other_people_s_interfaces_are_not_ours(name: str) -> None:
    assert not naming.is_host_interface(name)


@given(st.text())
def test_a_pod_s_mac_is_a_stable_locally_administered_unicast_address(container_id: str) -> None:
    mac = naming.pod_mac(container_id)
    assert len(mac) == 6
    assert mac[0] & 0b11 == 0b10
    assert mac == naming.pod_mac(container_id)
    assert mac != naming.HOST_MAC


def test_pods_have_different_macs() -> None:
    assert len({naming.pod_mac(f"container-{n}") for n in range(10_000)}) == 10_000


def test_the_host_side_s_mac_is_locally_administered_unicast() -> None:
    assert len(naming.HOST_MAC) == 6
    assert naming.HOST_MAC[0] & 0b11 == 0b10


def test_a_mac_is_written_as_ip_writes_it() -> None:
    assert naming.format_mac(b"\x0a\x00\xff\x01\x02\x03") == "0a:00:ff:01:02:03"


def test_the_alias_names_pod_and_container() -> None:
    text = naming.alias(pod="shop/web-0", container_id="c0ffee", ifname="eth0")
    assert "shop/web-0" in text
    assert "c0ffee" in text
    assert "interface" not in text
    assert naming.alias(pod="shop/web-0", container_id="c0ffee", ifname="net1").endswith(" interface=net1")


@pytest.mark.parametrize("container_id", ["c" * 10, "c" * 300, "ß" * 200, "x" + "ß" * 200])
def test_the_alias_fits_the_kernel_s_255_bytes_with_the_closing_zero(container_id: str) -> None:
    full = f"flock pod=shop/web-0 container={container_id}"
    text = naming.alias(pod="shop/web-0", container_id=container_id, ifname="eth0")
    assert full.startswith(text)
    assert min(253, len(full.encode())) <= len(text.encode()) <= 254


def test_our_routes_have_protocol_numbers_of_their_own_and_beat_those_bird_writes() -> None:
    taken = {*range(5), *range(8, 19), 42, 99, *range(186, 193)}  # rtnetlink.h
    assert {naming.PROTO_POD, naming.PROTO_ANNOUNCE}.isdisjoint(taken)
    assert naming.PROTO_POD != naming.PROTO_ANNOUNCE
    assert 0 < naming.ROUTE_METRIC < 32

"""Batches of requests: all of one is carried out, and the first refusal is told in the kernel's words."""

import errno

import pytest
from spaces import LOOPBACK, Space, packed, veth

from flock.core.errors import Code, KernelRefused
from flock.core.faults import Faults
from flock.core.naming import PROTO_POD
from flock.edge.netlink import route as r
from flock.edge.netlink import socket as socket_module
from flock.edge.netlink import wire as w


def missing_route(number: int) -> r.Request:
    address = bytes([10, 0, number >> 8, number & 255])
    return r.delete_route(r.host_route(address, index=LOOPBACK, protocol=PROTO_POD, metric=20))


def test_the_first_refusal_is_reported_in_the_kernel_s_words_and_the_rest_is_done(node: Space, pod: Space) -> None:
    index = veth(node, pod)
    unreachable = r.Route(w.AF_INET, packed("198.51.100.1"), 32, gateway=packed("203.0.113.1"))
    with pytest.raises(KernelRefused) as caught:
        node.netlink.run([r.add_route(unreachable), missing_route(1), r.set_alias(index, "done all the same")])
    assert caught.value.code == Code.KERNEL_REFUSED
    assert caught.value.errno == errno.ENETUNREACH
    assert caught.value.msg == "add a route: Network is unreachable (Nexthop has invalid gateway)"
    assert node.link(index).alias == "done all the same"


def test_expected_errors_are_passed_over_and_others_are_not(node: Space) -> None:
    node.netlink.run([missing_route(1), missing_route(2)], ignore=[errno.ESRCH])
    with pytest.raises(KernelRefused) as caught:
        node.netlink.run([missing_route(1), r.set_up(4711), missing_route(2)], ignore=[errno.ESRCH])
    assert caught.value.errno == errno.ENODEV


def test_an_empty_batch_asks_nothing(node: Space) -> None:
    node.netlink.run([])
    assert node.netlink.link("lo") is not None


def test_a_refusal_early_in_a_large_batch_does_not_stop_the_rest(node: Space) -> None:
    with pytest.raises(KernelRefused):
        node.netlink.run([missing_route(1), *[r.set_up(LOOPBACK)] * 600, r.set_alias(LOOPBACK, "the last")])
    assert node.link("lo").alias == "the last"


@pytest.mark.parametrize("size", [1, 255, 256, 257, 3000])
def test_batches_of_any_size_are_answered_even_if_all_of_it_is_refused(node: Space, size: int) -> None:
    node.netlink.run([missing_route(n) for n in range(size)], ignore=[errno.ESRCH])
    with pytest.raises(KernelRefused) as caught:
        node.netlink.run([missing_route(n) for n in range(size)])
    assert caught.value.errno == errno.ESRCH
    unreachable = r.Route(w.AF_INET, packed("198.51.100.1"), 32, gateway=packed("203.0.113.1"))
    node.netlink.run([r.add_route(unreachable)] * size, ignore=[errno.ENETUNREACH])
    assert node.link("lo").name == "lo"


def test_a_large_batch_is_carried_out_and_a_large_dump_is_complete(node: Space, pod: Space) -> None:
    index = veth(node, pod)
    wanted = [
        r.host_route(packed(f"2001:db8::{n:x}"), index=index, protocol=PROTO_POD, metric=20) for n in range(1, 2001)
    ]
    node.netlink.run([r.add_route(route) for route in wanted])
    read = [x for x in node.netlink.dump(r.dump_routes(w.AF_INET6), r.Route.decode) if x.protocol == PROTO_POD]
    assert sorted(read, key=lambda x: x.dst) == wanted
    node.netlink.run([r.delete_route(route) for route in wanted])
    assert not [x for x in node.ip("-6", "route") if x["protocol"] == str(PROTO_POD)]


def test_a_request_for_something_that_is_not_there_is_refused(node: Space) -> None:
    with pytest.raises(KernelRefused, match="look up link nothing0"):
        node.netlink.get(r.get_link("nothing0"))


def test_a_failing_socket_is_reported_as_a_refusal_and_works_again(
    node: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = Faults()
    faults.arm("netlink.send=ENOBUFS")
    with monkeypatch.context() as patch:
        patch.setattr(socket_module, "faults", faults)
        with pytest.raises(KernelRefused) as caught:
            node.netlink.run([r.set_up(LOOPBACK)])
        assert caught.value.errno == errno.ENOBUFS
        with pytest.raises(KernelRefused):
            node.netlink.link("lo")
    node.netlink.run([r.set_up(LOOPBACK)])
    assert node.link("lo").up


def test_an_answer_to_an_earlier_request_is_not_taken_for_the_next_one(node: Space) -> None:
    stale = w.message(w.RTM_GETLINK, 0, 0, r.get_link("lo").body)
    node.netlink._socket.send(stale)
    with pytest.raises(KernelRefused):
        node.netlink.get(r.get_link("nothing0"))
    node.netlink._socket.send(stale)
    assert node.netlink.dump(r.dump_routes(w.AF_INET), r.Route.decode) == []


def test_a_socket_stays_in_the_namespace_it_was_opened_in(node: Space, pod: Space) -> None:
    veth(node, pod)
    assert pod.open(lambda: node.netlink.link("flock00000001")) is not None
    assert pod.netlink.link("flock00000001") is None

"""The memory in which fragments wait is the node's; the agent sees to it that one pod cannot fill it."""

from looking import sysctl

from harness import Node, eventually

ROOM = str(64 << 20)
FOUR = ("ipv4/ipfrag_high_thresh", "ipv4/ipfrag_time")
SIX = ("netfilter/nf_conntrack_frag6_high_thresh", "netfilter/nf_conntrack_frag6_timeout")


def set_to(node: Node, switches: tuple[str, str]) -> list[str]:
    return [sysctl(node, switch) for switch in switches]


def test_fragments_have_more_room_than_the_kernel_gives_them_and_wait_less(fresh: Node) -> None:
    fresh.start()
    assert set_to(fresh, FOUR) == [ROOM, "3"]
    eventually(lambda: set_to(fresh, SIX) == [ROOM, "3"], what="IPv6's switches are there when rules are")


def test_who_gave_them_more_room_and_less_time_keeps_it(fresh: Node) -> None:
    for switch, value in zip(FOUR, (str(1 << 27), "2"), strict=True):
        sysctl(fresh, switch, value)
    fresh.start()
    eventually(lambda: set_to(fresh, SIX) == [ROOM, "3"], what="the node is prepared")
    assert set_to(fresh, FOUR) == [str(1 << 27), "2"]

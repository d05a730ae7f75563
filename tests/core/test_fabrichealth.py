"""Sessions family by family: which state of them is worth a word, and which is not."""

from ipaddress import ip_interface
from typing import Any

import pytest

from flock.core.birdreplies import Carried, Reply, Session, sessions
from flock.core.fabrichealth import explained, fabric_complaints, lan_complaints
from flock.core.facts import HostAddress, NodeFacts
from flock.core.nodeconfig import NodeConfig, parse_node_config

UP = Carried(up=True, imported=1, exported=2)
EMPTY, DOWN = Carried(), Carried(up=False)


def config(**peer: Any) -> NodeConfig:
    peers = [{"name": "r1", "address": "2001:db8:f::1", "asn": 64600, "families": ["ipv6", "ipv4"], **peer}]
    spec = {"cidr6": ["2001:db8:1::/64"], "cidr4": ["192.0.2.0/24"], "bgp": {"asn": 64601, "peers": peers}}
    api = {"apiVersion": "flock.fritzlab.net/v1alpha1", "kind": "NodeConfig", "metadata": {"name": "n1"}}
    return parse_node_config({**api, "spec": spec})


def session(*, up: bool = True, error: str = "", **families: Carried) -> dict[str, Session]:
    state = "Established" if up else "Active"
    told = Session(name="r1", kind="BGP", up=up, state=state, since="", families=families, last_error=error)
    return {"r1": told}


@pytest.mark.parametrize(
    ("given", "found", "said"),
    [
        (config(), session(ipv6=UP, ipv4=UP), []),
        (config(), session(ipv6=UP, ipv4=EMPTY), ["no IPv4 route is taken from r1"]),
        (config(), session(ipv6=UP, ipv4=DOWN), ["the session with r1 carries no IPv4"]),
        (config(), session(ipv6=UP), ["the session with r1 carries no IPv4"]),
        (
            config(),
            session(up=False, error="Socket: Connection refused"),
            ["the session with r1 is down: Active, Sock"],
        ),
        (config(**{"import": "none"}), session(ipv6=EMPTY, ipv4=EMPTY), []),
        (config(families=["ipv6"]), session(ipv6=UP), ["no session carries IPv4: no router hears of spec.cidr4"]),
        (config(), {}, []),
    ],
)
def test_what_is_wrong_is_said_once(given: NodeConfig, found: dict[str, Session], said: list[str]) -> None:
    told = [*fabric_complaints(given, {name.replace("r1", _protocol()): s for name, s in found.items()})]
    assert len(told) == len(said) and all(text.startswith(start) for text, start in zip(told, said, strict=True)), told


def test_a_host_with_a_default_route_of_its_own_needs_none_from_a_router() -> None:
    empty = {_protocol(): session(ipv6=EMPTY, ipv4=EMPTY)["r1"]}
    assert [*fabric_complaints(config(), empty, ways_out={"ipv6", "ipv4"})] == []
    [told] = fabric_complaints(config(), empty, ways_out={"ipv4"})
    assert told.startswith("no IPv6 route is taken from r1")


HOST = NodeFacts(node="n1", addresses=(HostAddress("eth0", ip_interface("2001:db8:e::7/64")),))
IDLE = Session(name="r1", kind="BGP", up=False, state="Idle", since="")


@pytest.mark.parametrize(
    ("peer", "facts", "error"),
    [
        ({}, HOST, "2001:db8:f::1 is on no network of this host: multihop, or another address"),
        ({"address": "2001:db8:e::7"}, HOST, "2001:db8:e::7 is this host's own address"),
        ({"address": "2001:db8:e::1"}, HOST, ""),
        ({"multihop": 2}, HOST, ""),
        ({"address": "fe80::1%eth0"}, HOST, ""),
        ({}, NodeFacts(node="n1"), ""),  # not looked at yet
    ],
)
def test_why_bird_waits_without_a_word(peer: dict[str, Any], facts: NodeFacts, error: str) -> None:
    bgp = config(**peer).bgp
    assert bgp is not None
    assert explained(IDLE, bgp.peers[0], facts).last_error == error


NOBODY = "nobody on eth0 answers for 2001:db8:e::1: another address, or the router is away"


@pytest.mark.parametrize(
    ("peer", "state", "error", "said"),
    [
        ("2001:db8:e::1", "Connect", "", NOBODY),
        ("2001:db8:e::1", "Active", "Socket: No route to host", NOBODY),
        ("2001:db8:e::1", "Active", "Socket: Connection refused", "Socket: Connection refused"),
        ("2001:db8:e::2", "Connect", "", ""),
        ("2001:db8:e::1", "Established", "", ""),
        ("fe80::1%eth0", "Connect", "", NOBODY.replace("2001:db8:e::1", "fe80::1%eth0")),
        ("fe80::1%eth1", "Connect", "", ""),
    ],
)
def test_a_router_that_nobody_on_the_link_is_is_told_as_such(peer: str, state: str, error: str, said: str) -> None:
    bgp = config(address=peer).bgp
    assert bgp is not None
    told = Session(name="r1", kind="BGP", up=state == "Established", state=state, since="", last_error=error)
    asked = {("eth0", ip_interface(address).ip) for address in ("2001:db8:e::1", "fe80::1")}
    assert explained(told, bgp.peers[0], HOST, unanswered=asked).last_error == said


def test_what_bird_says_itself_stays() -> None:
    bgp = config().bgp
    assert bgp is not None
    for told in (session(ipv6=UP)["r1"], session(up=False)["r1"], session(up=False, error="Refused")["r1"]):
        assert explained(told, bgp.peers[0], HOST) == told
    assert explained(IDLE, None, HOST) == IDLE


@pytest.mark.parametrize(
    ("interface", "address", "said"),
    [
        ("eth0", "192.0.2.7/24", ["spec.cidr4[0]: 192.0.2.0/24 is the network of eth0; neighbours will not find"]),
        ("eth0", "192.0.2.7/25", ["spec.cidr4[0]: 192.0.2.0/24 contains the network of eth0; neighbours"]),
        ("eth0", "2001:db8:1::7/64", ["spec.cidr6[0]: 2001:db8:1::/64 is the network of eth0"]),
        ("eth0", "192.0.0.7/16", []),  # carved out of it
        ("eth0", "192.0.2.7/32", []),
        ("lo", "192.0.2.7/24", []),
    ],
)
def test_a_network_of_the_hosts_own_is_none_for_pods(interface: str, address: str, said: list[str]) -> None:
    facts = NodeFacts(node="n1", addresses=(HostAddress(interface, ip_interface(address)),))
    told = [*lan_complaints(config(), facts)]
    assert len(told) == len(said) and all(text.startswith(start) for text, start in zip(told, said, strict=True)), told


def _protocol() -> str:
    from flock.core.birdconf import protocol_name

    return protocol_name("r1")


def test_families_are_read_from_what_bird_says() -> None:
    lines = (
        (1002, "peer_r1 BGP --- up 2026-11-15 20:32:58.661 Established"),
        (1006, "  BGP state:          Established"),
        (
            1006,
            "  Channel ipv6\n    State:          UP\n    Routes:         1 imported, 2 exported",
        ),
        (1006, "  Channel ipv4\n    State:          DOWN\n    Table:          master4"),
    )
    [found] = sessions(Reply(lines))
    assert found.families == {"ipv6": UP, "ipv4": DOWN}
    assert (found.imported, found.exported) == (1, 2)

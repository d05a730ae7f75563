"""The rendered rules judge real packets: who reaches whom, in both directions and families."""

import socket
import struct
from ipaddress import ip_address, ip_network

import pytest
from arriving import PATIENCE, connected, is_idle, received
from playground import FAMILIES, Playground, addresses, compiled, group, interface, policy, subject

from flock.core.policy.compiled import NamedPort, Peers, PortRange, Rule, Span

ANYWHERE = Peers(anywhere=True)
ALL_TRAFFIC = Rule(peers=ANYWHERE, any_port=True)
FRIENDS = group("app=friend")


def tcp(*ports: int) -> tuple[PortRange, ...]:
    return tuple(PortRange("TCP", port, port) for port in ports)


def udp(first: int, last: int | None = None) -> tuple[PortRange, ...]:
    return (PortRange("UDP", first, last or first),)


@pytest.mark.parametrize("family", FAMILIES)
def test_an_isolated_pod_takes_only_what_a_policy_allows_and_opens_what_it_likes(
    ground: Playground, family: str
) -> None:
    web = policy("web", ingress=[Rule(peers=Peers(groups=(FRIENDS,)), any_port=True)])
    ground.load(compiled([subject(1, ingress="web"), subject(2), subject(3)], [web], {FRIENDS: addresses(2)}))
    assert ground.connects(2, 1, family)
    assert not ground.connects(3, 1, family)
    assert not ground.connects(0, 1, family)
    assert ground.connects(1, 3, family), "answers to what the pod opened pass"
    assert ground.connects(1, 0, family)
    assert ground.connects(3, 2, family), "others are not concerned"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_pod_isolated_in_egress_opens_only_what_a_policy_allows_and_answers_everybody(
    ground: Playground, family: str
) -> None:
    out = policy("out", egress=[Rule(peers=Peers(groups=(FRIENDS,)), any_port=True)])
    ground.load(compiled([subject(1, egress="out"), subject(2), subject(3)], [out], {FRIENDS: addresses(2)}))
    assert ground.connects(1, 2, family)
    assert not ground.connects(1, 3, family)
    assert not ground.connects(1, 0, family)
    assert ground.connects(3, 1, family)
    assert ground.connects(0, 1, family)


def test_between_two_isolated_pods_of_a_node_both_sides_have_to_allow(ground: Playground) -> None:
    out = policy("out", egress=[Rule(peers=Peers(groups=(FRIENDS,)), any_port=True)])
    into = policy("in", ingress=[Rule(peers=ANYWHERE, any_port=False, ports=tcp(80))])
    state = [subject(1, egress="out"), subject(2, ingress="in", egress=""), subject(3, ingress="")]
    ground.load(compiled(state, [out, into], {FRIENDS: addresses(2, 3)}))
    assert ground.connects(1, 2, "6"), "both allow, and the answers of an egress-isolated server pass"
    assert not ground.connects(1, 2, "6", 81), "egress allows, ingress does not"
    assert not ground.connects(1, 3, "6")
    assert not ground.connects(2, 1, "6"), "ingress would allow, egress does not"


@pytest.mark.parametrize("family", FAMILIES)
def test_the_node_reaches_its_isolated_pods_and_they_reach_it(ground: Playground, family: str) -> None:
    ground.load(compiled([subject(1, ingress="", egress="")], []))
    node = {"6": "2001:db8:ff::1", "4": "198.51.100.1"}[family]
    assert ground.pings(1, node)
    assert "1 received" in ground.node.execute("ping", "-c1", "-W10", "-n", ground.at(1, family), check=False)
    assert ground.gets_no_answer(1, ground.at(0, family))
    assert ground.gets_no_answer(0, ground.at(1, family))


@pytest.mark.parametrize("family", FAMILIES)
def test_ports_ranges_and_protocols(ground: Playground, family: str) -> None:
    rules = [
        Rule(peers=ANYWHERE, any_port=False, ports=(*tcp(80, 443), *udp(5000, 5010))),
        Rule(peers=Peers(groups=(FRIENDS,)), any_port=False, ports=(PortRange("UDP", 0, 65535),)),
    ]
    state = [subject(1, ingress="in"), subject(2), subject(3)]
    ground.load(compiled(state, [policy("in", ingress=rules)], {FRIENDS: addresses(2)}))
    assert ground.connects(3, 1, family, 80)
    assert ground.connects(3, 1, family, 443)
    assert not ground.connects(3, 1, family, 81)
    assert ground.reaches(3, 1, family, 5000)
    assert ground.reaches(3, 1, family, 5010)
    assert not ground.reaches(3, 1, family, 5011)
    assert not ground.reaches(3, 1, family, 80), "the protocol counts"
    assert ground.reaches(2, 1, family, 9)
    assert ground.gets_no_answer(3, ground.at(1, family)), "ICMP has no ports"


@pytest.mark.parametrize("family", FAMILIES)
def test_icmp_passes_where_a_rule_without_ports_allows_the_peer(ground: Playground, family: str) -> None:
    rule = Rule(peers=Peers(groups=(FRIENDS,)), any_port=True)
    state = [subject(1, ingress="in"), subject(2), subject(3)]
    ground.load(compiled(state, [policy("in", ingress=[rule])], {FRIENDS: addresses(2)}))
    assert ground.pings(2, ground.at(1, family))
    assert ground.gets_no_answer(3, ground.at(1, family))


def test_named_ports_are_the_destinations_own(ground: Playground) -> None:
    http = NamedPort("http", "TCP")
    rules_in = [Rule(peers=ANYWHERE, any_port=False, named=(http,))]
    rules_out = [Rule(peers=Peers(groups=(FRIENDS,)), any_port=False, named=(http,))]
    named = {
        (None, http): [(interface(1), 80), (interface(2), 8080)],
        (FRIENDS, http): [(a, 80) for a in addresses(1)],
    }
    state = [subject(1, ingress="in"), subject(2, ingress="in"), subject(3, egress="out")]
    policies = [policy("in", ingress=rules_in), policy("out", egress=rules_out)]
    ground.load(compiled(state, policies, {FRIENDS: addresses(1)}, named))
    for family in FAMILIES:
        assert ground.connects(0, 1, family, 80)
        assert not ground.connects(0, 1, family, 8080)
        assert ground.connects(0, 2, family, 8080)
        assert not ground.connects(0, 2, family, 80)
        assert ground.connects(3, 1, family, 80)
        assert not ground.connects(3, 2, family, 8080), "2 is not in the group the rule names"


def test_blocks_of_addresses(ground: Playground) -> None:
    blocks = tuple(
        Span.of(ip_network(b)) for b in ("192.0.2.0/31", "192.0.2.3/32", "198.51.0.0/16", "2001:db8:ff::/48")
    )
    state = [subject(1, ingress="in"), subject(2), subject(3)]
    ground.load(compiled(state, [policy("in", ingress=[Rule(peers=Peers(blocks=blocks), any_port=True)])]))
    assert [ground.reaches(who, 1, "4") for who in (0, 2, 3)] == [True, False, True]
    assert [ground.reaches(who, 1, "6") for who in (0, 2, 3)] == [True, False, False]
    everything = (Span.of(ip_network("0.0.0.0/0")),)
    ground.load(compiled(state, [policy("in", ingress=[Rule(peers=Peers(blocks=everything), any_port=True)])]))
    assert ground.reaches(2, 1, "4")
    assert not ground.reaches(2, 1, "6")


@pytest.mark.parametrize("family", FAMILIES)
def test_addresses_are_seen_after_destination_nat_and_a_pod_reaches_itself_through_a_service(
    ground: Playground, family: str
) -> None:
    ip, vip = ("ip6", "2001:db8:5::5") if family == "6" else ("ip", "203.0.113.5")
    ground.node.execute(
        "nft",
        f"add table {ip} service; add chain {ip} service pre {{ type nat hook prerouting priority dstnat; }};"
        f"add rule {ip} service pre {ip} daddr {vip} tcp dport 90 dnat to {_with_port(ground.at(1, family), 80)};"
        f"add chain {ip} service post {{ type nat hook postrouting priority srcnat; }};"
        f"add rule {ip} service post {ip} saddr {ground.at(1, family)} {ip} daddr {ground.at(1, family)} masquerade",
    )
    into = policy("in", ingress=[Rule(peers=Peers(groups=(FRIENDS,)), any_port=False, ports=tcp(80))])
    ground.load(
        compiled([subject(1, ingress="in", egress=""), subject(2), subject(3)], [into], {FRIENDS: addresses(2)})
    )

    def connects(who: int) -> bool:
        with ground.place(1).socket(family, socket.SOCK_STREAM) as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(("", 80))
            server.listen()
            with ground.place(who).socket(family, socket.SOCK_STREAM) as client:
                return connected(client, (vip, 90))

    assert connects(2)
    assert not connects(3)
    assert connects(1), "to itself"


def _with_port(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_denied_is_dropped_in_silence(ground: Playground, family: str) -> None:
    ground.load(compiled([subject(1, ingress=""), subject(2)], []))
    with ground.place(2).socket(family) as client:
        client.connect((ground.at(1, family), 80))
        client.send(b"x")
        with pytest.raises(TimeoutError):  # a rejection would be ConnectionRefusedError
            client.recv(1)
    assert not ground.connects(2, 1, family)


@pytest.mark.parametrize("family", FAMILIES)
def test_an_error_about_a_pods_own_packet_reaches_it_though_it_is_isolated(ground: Playground, family: str) -> None:
    out = policy("out", egress=[Rule(peers=ANYWHERE, any_port=False, ports=udp(7))])
    ground.load(compiled([subject(1, ingress="", egress="out"), subject(2, ingress="in")], [out, policy("in")]))
    with ground.place(1).socket(family) as client:
        client.connect((ground.at(0, family), 7))
        client.send(b"x")  # nobody listens
        client.settimeout(PATIENCE)
        with pytest.raises(ConnectionRefusedError):
            client.recv(1)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("isolated", [False, True])
def test_an_error_about_nothing_the_pod_sent_does_not_slip_through(
    ground: Playground, family: str, isolated: bool
) -> None:
    """The control is the pod that is not isolated: there the forged error arrives."""
    ground.load(compiled([subject(1, ingress="" if isolated else None)], []))
    protocol = socket.IPPROTO_ICMPV6 if family == "6" else socket.IPPROTO_ICMP
    with (
        ground.place(1).socket(family, socket.SOCK_RAW, protocol) as pod,
        ground.place(0).socket(family, socket.SOCK_RAW, protocol) as outside,
    ):
        outside.sendto(_unreachable(ground, family), (ground.at(1, family), 0))
        assert received(pod, b"about nothing", ends=True) is not isolated


def _unreachable(ground: Playground, family: str) -> bytes:
    """Port unreachable, quoting a datagram that pod 1 never sent.  The kernel fills in the checksum of ICMPv6."""
    source, to = (ip_address(ground.at(who, family)).packed for who in (1, 0))
    datagram = struct.pack(">HHHH", 1234, 4321, 21, 0) + b"about nothing"
    if family == "6":
        return struct.pack(">BBHI", 1, 4, 0, 0) + struct.pack(">IHBB", 6 << 28, 21, 17, 64) + source + to + datagram
    quoted = struct.pack(">BBHHHBBH", 0x45, 0, 41, 0, 0, 64, 17, 0) + source + to
    quoted = quoted[:10] + _checksum(quoted) + quoted[12:] + datagram
    message = struct.pack(">BBHI", 3, 3, 0, 0) + quoted
    return message[:2] + _checksum(message) + message[4:]


def _checksum(data: bytes) -> bytes:
    data += bytes(len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return struct.pack(">H", ~total & 0xFFFF)


@pytest.mark.parametrize("family", FAMILIES)
def test_sctp_by_raw_packets(ground: Playground, family: str) -> None:
    """The kernel may have no SCTP sockets, so the packets are made by hand."""
    rule = Rule(peers=ANYWHERE, any_port=False, ports=(PortRange("SCTP", 80, 80),))
    ground.load(compiled([subject(1, ingress="in"), subject(2)], [policy("in", ingress=[rule])]))

    def reaches(port: int, packet: bytes) -> bool:
        with (
            ground.place(1).socket(family, socket.SOCK_RAW, 132) as server,
            ground.place(2).socket(family, socket.SOCK_RAW, 132) as client,
        ):
            client.sendto(packet, (ground.at(1, family), 0))
            return received(server, packet[12:], ends=True)

    for port, allowed in ((80, True), (81, False)):
        assert reaches(port, _sctp_init(port)) is allowed
        assert reaches(port, struct.pack(">HHII", 1000, port, 1, 0)) is allowed, "not even a valid packet"


def _sctp_init(port: int) -> bytes:
    chunk = struct.pack(">BBHIIHHI", 1, 0, 20, 1, 65535, 1, 1, 1)
    packet = struct.pack(">HHII", 1000, port, 0, 0) + chunk
    return packet[:8] + struct.pack("<I", _crc32c(packet)) + packet[12:]


def _crc32c(data: bytes) -> int:
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def test_other_peoples_rules_keep_their_say(ground: Playground) -> None:
    ground.node.execute(
        "nft",
        "add table inet theirs; add chain inet theirs f { type filter hook forward priority filter + 10; };"
        "add rule inet theirs f udp dport 99 drop",
    )
    ground.load(compiled([subject(1, ingress="in"), subject(2)], [policy("in", ingress=[ALL_TRAFFIC])]))
    assert ground.reaches(2, 1, "6", 80)
    theirs = ground.udp(1, "6", 99)
    ground.udp(2, "6").sendto(b"x", (ground.at(1, "6"), 99))
    assert is_idle(theirs)


def test_a_pod_of_unknown_labels_is_isolated_by_nobody_and_allowed_nothing(ground: Playground) -> None:
    ground.load(compiled([subject(1, ingress="", egress=""), subject(2)], []))
    assert not ground.reaches(2, 1, "6")
    assert not ground.reaches(1, 2, "6")
    assert "undecided" in ground.listing()

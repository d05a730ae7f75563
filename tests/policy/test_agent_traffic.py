"""Anti-spoofing and strict policies with pods made by our own ADD."""

import socket
import struct
from collections.abc import Iterator

import pytest
from probing import MAGIC, anywhere, open_socket, waiting
from realcluster import OUTSIDE, RealCluster, flockctl, policy
from streams import Spoken

from harness import eventually

STRICT = "flock.fritzlab.net/strict"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    with RealCluster(tmp_path_factory.mktemp("cluster")) as made:
        made.namespace("x")
        made.add("x/server", {"app": "server"})
        made.add("x/friend", {"app": "friend"})
        made.add("x/stranger", {"app": "stranger"})
        yield made


@pytest.fixture(params=[4, 6], ids=["IPv4", "IPv6"])
def family(request: pytest.FixtureRequest) -> int:
    return int(request.param)


# --- spoofing ------------------------------------------------------------------------------------------------------


def send_from(cluster: RealCluster, pod: str, source: str, *, to: str, family: int) -> None:
    level, option = (socket.IPPROTO_IPV6, 75) if family == 6 else (socket.IPPROTO_IP, 19)  # IPV6_/IP_TRANSPARENT
    with cluster.prober.seats[pod].inside(), open_socket(family, socket.SOCK_DGRAM) as client:
        client.setsockopt(level, option, 1)
        client.bind((source, 0))
        client.sendto(b"from " + source.encode(), (cluster.address(to, family), 999))


def test_a_pod_sends_only_from_its_own_addresses(cluster: RealCluster, family: int) -> None:
    own, foreign = cluster.address("x/stranger", family), cluster.address("x/friend", family)
    nobodys = "10.0.1.250" if family == 4 else "2001:db8:1::dead"
    with cluster.prober.seats["x/server"].inside():
        server = open_socket(family, socket.SOCK_DGRAM)
    with server:
        server.bind((anywhere(family), 999))
        for source in (foreign, nobodys, OUTSIDE[family], own):  # its own last: once that is there, the others would be
            send_from(cluster, "x/stranger", source, to="x/server", family=family)
        server.settimeout(5)
        assert server.recv(100) == b"from " + own.encode()
        server.setblocking(False)
        assert list(waiting(server)) == []


def test_a_pod_cannot_claim_a_foreign_address_by_arp(cluster: RealCluster) -> None:
    node = cluster.nodes[0]
    claimed = cluster.address("x/friend", 4)
    neighbours = node.ip("-4", "neigh")
    mac = bytes.fromhex(node.ip_json("link", "show", "eth0", inside="x-stranger")[0]["address"].replace(":", ""))
    whose = socket.inet_aton(claimed)
    request = struct.pack(">HHBBH6s4s6s4s", 1, 0x0800, 6, 4, 1, mac, whose, bytes(6), whose)
    with cluster.prober.seats["x/stranger"].inside():
        raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    with raw:
        raw.bind(("eth0", 0x0806))
        raw.send(b"\xff" * 6 + mac + b"\x08\x06" + request)
    eventually(lambda: "spoofed" in flockctl(node, "policy", "drops").stdout, what="shown as a drop")
    (line,) = [line for line in flockctl(node, "policy", "drops").stdout.splitlines() if "ARP" in line]
    assert "x/stranger" in line and claimed in line
    assert node.ip("-4", "neigh") == neighbours


# --- existing connections ------------------------------------------------------------------------------------------


class Stream(Spoken):
    """A TCP connection, or a UDP flow, on which only the server sends."""

    def __init__(self, cluster: RealCluster, client: str, *, family: int, protocol: str) -> None:
        kind = socket.SOCK_STREAM if protocol == "TCP" else socket.SOCK_DGRAM
        with cluster.prober.seats["x/server"].inside():
            listener = open_socket(family, kind)
        with cluster.prober.seats[client].inside():
            self.client = open_socket(family, kind)
        listener.bind((anywhere(family), 0))
        where = (cluster.address("x/server", family), listener.getsockname()[1])
        self.client.settimeout(5)
        listener.settimeout(5)
        if protocol == "TCP":
            listener.listen()
            self.client.connect(where)
            self.server = listener.accept()[0]
            listener.close()
        else:
            self.client.connect(where)
            self.client.send(b"?")
            self.server = listener
            self.server.connect(listener.recvfrom(10)[1])

    def flows(self, mark: bytes = MAGIC) -> bool:
        return super().flows(mark)

    def close(self) -> None:
        self.client.close()
        self.server.close()


def settled(cluster: RealCluster) -> bool:
    """Every pod has a number as source and one as destination."""
    listing = cluster.nodes[0].execute("nft", "list", "set", "inet", "flock", "pods").stdout
    return listing.count('"flock') == 2 * len(cluster.nodes[0].links())


@pytest.mark.parametrize("protocol", ["TCP", "UDP"])
@pytest.mark.parametrize("strict", [True, False], ids=["strict", "lenient"])
def test_a_strict_policy_cuts_exactly_the_connections_it_denies(
    cluster: RealCluster, family: int, protocol: str, strict: bool
) -> None:
    friends = {"podSelector": {"matchLabels": {"app": "friend"}}}
    allow_friends = {"podSelector": {"matchLabels": {"app": "server"}}, "ingress": [{"from": [friends]}]}
    clients = ("x/friend", "x/stranger", "external")
    eventually(lambda: settled(cluster), what="numbers of an earlier strict policy's pods")
    streams = [Stream(cluster, client, family=family, protocol=protocol) for client in clients]
    try:
        assert [s.flows() for s in streams] == [True, True, True]
        cluster.set_policies([policy("in", allow_friends, **{STRICT: "true"} if strict else {})])
        cluster.settle()
        for _ in range(2):
            assert [s.flows() for s in streams] == [True, not strict, not strict]
    finally:
        for stream in streams:
            stream.close()
        cluster.set_policies([])
        cluster.settle()

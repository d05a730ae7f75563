"""Packet filters of others and packets: what is said of each filter is what becomes of packets that pods exchange."""

import json
import socket
import subprocess
from collections.abc import Iterator
from ipaddress import ip_network

import pytest
from foreign_iptables import BOTH, FOUR, UNREADABLE
from foreign_rulesets import MEANT, NFT, OTHERS
from spaces import Space

from flock.core.facts import Network
from flock.core.foreign.packet import Way
from flock.edge.nft.foreign import Seen, look
from harness import eventually
from looping import PATIENCE
from namespaces import within
from thoroughness import some

AGGREGATES: tuple[Network, ...] = (ip_network("192.0.2.0/24"), ip_network("2001:db8:1::/64"))
ADDRESSES = {
    "a": ("192.0.2.11", "2001:db8:1::11"),
    "b": ("192.0.2.200", "2001:db8:1:0:8000::b"),
    "beyond": ("198.51.100.2", "2001:db8:99::2"),
}
LINKS = {"a": "flock00000001", "b": "flock00000002", "beyond": "up0"}
NODE = ("198.51.100.1", "2001:db8:99::1")
ENDS = {Way.SENT: ("a", "beyond"), Way.RECEIVED: ("beyond", "a"), Way.BETWEEN: ("a", "b")}
FAMILIES = ((4, "ip", socket.AF_INET), (6, "ip6", socket.AF_INET6))
PORT = 80
Verdicts = dict[tuple[int, Way], bool]  # passes


def run(*command: str, text: str = "") -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}\n{text}"
    return done.stdout


class Ground:
    """A node, two pods of it, and a machine beyond its uplink."""

    def __init__(self) -> None:
        self.node = Space()
        self.hosts = {name: Space() for name in ADDRESSES}

    def lay(self) -> None:
        for switch in ("net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"):
            self._in(self.node, "sysctl", "-qw", f"{switch}=1")
        for name, host in self.hosts.items():
            link = LINKS[name]
            self.node.ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", host.name)
            for space, end in ((self.node, link), (host, "eth0")):
                self._in(space, "sysctl", "-qw", f"net.ipv6.conf.{end}.accept_dad=0")
                space.ip("link", "set", end, "up")
            for (version, _, _), address, own in zip(FAMILIES, ADDRESSES[name], NODE, strict=True):
                self._wire(name, link, version, address, own)
        self._in(self.node, "nft", "-f", "-", text=_counting())

    def _wire(self, name: str, link: str, version: int, address: str, own: str) -> None:
        host, long = self.hosts[name], 32 if version == 4 else 128
        mac = host.ip("link", "show", "eth0")[0]["address"]
        gateway = self.node.ip("link", "show", link)[0]["address"]
        near = own if name == "beyond" else ("169.254.1.1" if version == 4 else "fe80::1")
        host.ip("addr", "add", f"{address}/{long}", "dev", "eth0")
        host.ip("neigh", "add", near, "lladdr", gateway, "dev", "eth0", "nud", "permanent")
        host.ip(f"-{version}", "route", "add", near, "dev", "eth0")
        host.ip(f"-{version}", "route", "add", "default", "via", near, "dev", "eth0")
        self.node.ip("neigh", "add", address, "lladdr", mac, "dev", link, "nud", "permanent")
        if name == "beyond":
            self.node.ip("addr", "add", f"{own}/{long}", "dev", link)
        self.node.ip(f"-{version}", "route", "add", address, "dev", link)
        if name == "beyond":
            self.node.ip(f"-{version}", "route", "add", "default", "via", address, "dev", link)

    def _in(self, space: Space, *command: str, text: str = "") -> str:
        return run("ip", "netns", "exec", space.name, *command, text=text)

    def load(self, ruleset: str, *programs: str) -> None:
        for program in programs:
            self._in(self.node, program, *(["-f", "-"] if program == "nft" else []), text=ruleset)

    def clear(self) -> None:
        listed = json.loads(self._in(self.node, "nft", "-j", "list", "tables"))["nftables"]
        tables = [entry["table"] for entry in listed if "table" in entry]
        theirs = [f"delete table {t['family']} {t['name']}\n" for t in tables if t["name"] != "flock-probe"]
        self._in(self.node, "nft", "-f", "-", text="".join([*theirs, "reset counters table inet flock-probe\n"]))

    def look(self, *aggregates: Network) -> Seen:
        return within(f"/run/netns/{self.node.name}", lambda: look(aggregates))

    def said(self) -> Verdicts:
        """Nothing may be left open."""
        found = {}
        for aggregate in AGGREGATES:
            seen = self.look(aggregate)
            assert not seen.unclear, [*map(str, seen.unclear)]
            for way in Way:
                found[aggregate.version, way] = not any(getattr(obstacle, way.value) for obstacle in seen.obstacles)
        return found

    def happens(self) -> Verdicts:
        """A connection is begun each way; its first packet is counted where the node gets it and where that leaves."""
        begun = [self._begin(way, at, kind) for way in Way for at, (_, _, kind) in enumerate(FAMILIES)]
        try:
            counted = eventually(self._all_came, what="each packet came to the node")
        finally:
            for one in begun:
                one.close()
        return {(version, way): counted[f"out-{way.value}-{version}"] > 0 for version, _, _ in FAMILIES for way in Way}

    def _begin(self, way: Way, at: int, family: int) -> socket.socket:
        source, destination = ENDS[way]
        made: socket.socket = self.hosts[source].open(lambda: socket.socket(family))
        made.setblocking(False)
        made.connect_ex((ADDRESSES[destination][at], PORT))
        return made

    def _all_came(self) -> dict[str, int] | None:
        listed = json.loads(self._in(self.node, "nft", "-j", "list", "counters", "table", "inet", "flock-probe"))
        counted = {e["counter"]["name"]: e["counter"]["packets"] for e in listed["nftables"] if "counter" in e}
        return counted if all(n for name, n in counted.items() if name.startswith("in-")) else None

    def remove(self) -> None:
        for space in (*self.hosts.values(), self.node):
            space.remove()


def _counting() -> str:
    """Before anybody else sees a packet, and after all have let it pass."""
    names, rules = [], {"in": [], "out": []}
    for way, (source, destination) in ENDS.items():
        for at, (version, word, _) in enumerate(FAMILIES):
            for side in rules:
                name = f"{side}-{way.value}-{version}"
                names.append(f"counter {name} {{ }}")
                family = f"{word} daddr {ADDRESSES[destination][at]}"
                rules[side].append(f'iifname "{LINKS[source]}" {family} tcp dport {PORT} counter name {name}')
    chains = (("in", "prerouting", -500), ("out", "postrouting", 500))
    made = [
        f"chain {side} {{ type filter hook {hook} priority {priority};\n{chr(10).join(rules[side])}\n}}"
        for side, hook, priority in chains
    ]
    return "\n".join(["table inet flock-probe {", *names, *made, "}"])


@pytest.fixture(scope="module")
def laid() -> Iterator[Ground]:
    ground = Ground()
    try:
        ground.lay()
        yield ground
    finally:
        ground.remove()


@pytest.fixture
def ground(laid: Ground) -> Iterator[Ground]:
    yield laid
    laid.clear()


@pytest.mark.parametrize("name", some(NFT | OTHERS))
def test_what_is_said_of_a_filter_of_nft_is_what_becomes_of_packets(ground: Ground, name: str) -> None:
    ground.load((NFT | OTHERS)[name], "nft")
    assert ground.said() == ground.happens()


@pytest.mark.parametrize("name", some(BOTH))
def test_what_is_said_of_a_filter_of_iptables_is_what_becomes_of_packets(ground: Ground, name: str) -> None:
    ground.load(BOTH[name], "iptables-nft-restore", "ip6tables-nft-restore")
    assert ground.said() == ground.happens()


@pytest.mark.parametrize("name", FOUR)
def test_what_is_said_of_addresses_in_iptables_is_what_becomes_of_packets(ground: Ground, name: str) -> None:
    ground.load(FOUR[name], "iptables-nft-restore")
    assert ground.said() == ground.happens()


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_cannot_be_read_is_said_and_nothing_is_claimed(ground: Ground, name: str) -> None:
    ground.load(UNREADABLE[name], "iptables-nft-restore")
    seen = ground.look(*AGGREGATES)
    assert not seen.obstacles and seen.unclear


@pytest.mark.parametrize("name", MEANT)
def test_who_lets_pods_speak_with_some_means_to_drop_the_rest(ground: Ground, name: str) -> None:
    ground.load(MEANT[name], "nft")
    assert not ground.happens()[4, Way.SENT]
    assert not any(obstacle.sent for obstacle in ground.look(AGGREGATES[0]).obstacles)

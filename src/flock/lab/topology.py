"""The plan of a lab: which elements there are, how they are wired, and every address.  Pure.

Every cable ends in a switch namespace.  A *port* is one end of a cable: an interface of an element, and the switch's
side of it, whose name (`n1-r1`, `n1-lan`) is also the name of the link that `lab cut` takes.  Ports on one bridge see
each other.

leaf-spine: every node has one point-to-point link to every router (the leaves).
flat: nodes and routers share one LAN.
Both: every router has a link to `client`, a namespace outside the cluster that speaks BGP itself, spreads its traffic
over the routers, and also is the spine over which a leaf reaches a node whose link to it is cut.

Addresses (node i, router j, both from 1):
    pods            2001:db8:<i>::/64            100.64.<i>.0/24     the node's aggregates
    anycast         2001:db8:53::/64             192.0.2.0/25        what the generated NodeConfigs grant
    `addresses`     2001:db8:54::/64             192.0.2.128/25      likewise
    LAN (flat)      2001:db8:ffff::/64           198.51.100.0/24     router j is ::<j>, .<j>; node i ::<10+i>, .<10+i>
    node-router     2001:db8:ff<j>:<i>::/64      100.127.<j>.<2i>/31 router ::1, even; node ::2, odd
    router-client   2001:db8:ffc:<j>::/64        203.0.113.<16+2j>/31 router ::1, even; client ::2, odd
    client          2001:db8:c::1                203.0.113.1
    link-local      routers fe80::1 (LAN: fe80::<j>), nodes fe80::<10+i>, client fe80::c
    AS numbers      client 64512, router j 64520+j, node i 64600+i
IPv6 counters are written in hex digits that read like the decimal number (node 11 is ::21, its pods 2001:db8:11::).
"""

from typing import Literal, TypedDict, get_args
from zlib import crc32

import msgspec

from flock.core.errors import FieldError

Topology = Literal["leaf-spine", "flat"]
Role = Literal["node", "router", "client"]
TOPOLOGIES: tuple[Topology, ...] = get_args(Topology)

# Keeps interface names below 16 characters and node 53 out of the anycast range.
MOST_NODES = 50
MOST_ROUTERS = 9

CLIENT = "client"
SWITCH = "switch"
LAN = "lan"
CLIENT_ASN = 64512
ANYCAST = ("2001:db8:53::/64", "192.0.2.0/25")
ADDRESSES = ("2001:db8:54::/64", "192.0.2.128/25")


class Port(msgspec.Struct, frozen=True, kw_only=True):
    """One end of a cable.  `addresses` are interface addresses with their prefix length."""

    owner: str
    towards: str  # the element at the other end, or the LAN
    ifname: str
    bridge: str
    link_local: str
    addresses: tuple[str, ...]

    @property
    def link(self) -> str:
        return f"{self.owner}-{self.towards}"

    @property
    def switch_port(self) -> str:
        """The link's name where it fits into an interface name, else its beginning and a checksum."""
        name = self.link
        return name if len(name) < 16 else f"{name[:6]}~{crc32(name.encode()):08x}"


class Element(msgspec.Struct, frozen=True, kw_only=True):
    """A node, a router or the client: a namespace with ports."""

    name: str
    role: Role
    asn: int
    router_id: str
    ports: tuple[Port, ...]
    loopback: tuple[str, ...] = ()
    cidr6: tuple[str, ...] = ()
    cidr4: tuple[str, ...] = ()

    @property
    def addresses(self) -> tuple[str, ...]:
        """Every address of this element without prefix length, what answers a ping first."""
        return tuple(a.split("/")[0] for a in (*self.loopback, *(a for p in self.ports for a in p.addresses)))


class Plan(msgspec.Struct, frozen=True):
    elements: tuple[Element, ...]

    def role(self, role: Role) -> tuple[Element, ...]:
        return tuple(e for e in self.elements if e.role == role)

    @property
    def ports(self) -> tuple[Port, ...]:
        return tuple(p for e in self.elements for p in e.ports)

    def link(self, name: str) -> Port:
        for port in self.ports:
            if port.link == name:
                return port
        raise FieldError("LINK", f"no link {name!r}; there are {', '.join(sorted(p.link for p in self.ports))}")

    def neighbour_port(self, port: Port, address: str) -> Port | None:
        """The port on the same bridge that has this address (link-local ones count), None where nobody has it."""
        for other in self.ports:
            held = (other.link_local, *(a.split("/")[0] for a in other.addresses))
            if other.bridge == port.bridge and other.owner != port.owner and address in held:
                return other
        return None


def plan(*, nodes: int, routers: int, topology: Topology) -> Plan:
    """The plan for so many nodes and routers; the same arguments always give the same plan."""
    if not 1 <= nodes <= MOST_NODES:
        raise FieldError("--nodes", f"{nodes} is not between 1 and {MOST_NODES}")
    if not 1 <= routers <= MOST_ROUTERS:
        raise FieldError("--routers", f"{routers} is not between 1 and {MOST_ROUTERS}")
    spine = [uplink_pair(f"r{j}", j) for j in range(1, routers + 1)]
    if topology == "flat":
        of_nodes: list[tuple[Port, ...]] = [
            (lan_port(f"n{i}", "eth0", **lan_addresses(10 + i)),) for i in range(1, nodes + 1)
        ]
        of_routers = [(lan_port(f"r{j}", LAN, **lan_addresses(j)),) for j in range(1, routers + 1)]
    else:
        cables = [[_leaf_pair(i, j) for j in range(1, routers + 1)] for i in range(1, nodes + 1)]
        of_nodes = [tuple(far for _, far in row) for row in cables]
        of_routers = [tuple(near for near, _ in column) for column in zip(*cables, strict=True)]
    return Plan(
        (
            *(_node(i, ports) for i, ports in enumerate(of_nodes, start=1)),
            *(_router(j, (*ports, spine[j - 1][0])) for j, ports in enumerate(of_routers, start=1)),
            client(tuple(far for _, far in spine)),
        )
    )


def client(ports: tuple[Port, ...]) -> Element:
    return Element(
        name=CLIENT,
        role="client",
        asn=CLIENT_ASN,
        router_id="203.0.113.1",
        loopback=("2001:db8:c::1/128", "203.0.113.1/32"),
        ports=ports,
    )


def _node(i: int, ports: tuple[Port, ...]) -> Element:
    return Element(
        name=f"n{i}",
        role="node",
        asn=64600 + i,
        router_id=f"198.51.100.{10 + i}",
        ports=ports,
        cidr6=(f"2001:db8:{i}::/64",),
        cidr4=(f"100.64.{i}.0/24",),
    )


def _router(j: int, ports: tuple[Port, ...]) -> Element:
    return Element(name=f"r{j}", role="router", asn=64520 + j, router_id=f"198.51.100.{j}", ports=ports)


def lan_port(owner: str, ifname: str, *, link_local: str, addresses: tuple[str, ...]) -> Port:
    return Port(owner=owner, towards=LAN, ifname=ifname, bridge=f"br-{LAN}", link_local=link_local, addresses=addresses)


class LanAddresses(TypedDict):
    link_local: str
    addresses: tuple[str, ...]


def lan_addresses(number: int) -> LanAddresses:
    addresses = (f"2001:db8:ffff::{number}/64", f"198.51.100.{number}/24")
    return {"link_local": f"fe80::{number}", "addresses": addresses}


def uplink_pair(router: str, j: int) -> tuple[Port, Port]:
    """The cable between router number j and the client."""
    return _pair(router, CLIENT, router, "fe80::c", six=f"2001:db8:ffc:{j}", four="203.0.113", even=16 + 2 * j)


def _leaf_pair(i: int, j: int) -> tuple[Port, Port]:
    six, four = f"2001:db8:ff{j}:{i}", f"100.127.{j}"
    return _pair(f"r{j}", f"n{i}", f"eth{j - 1}", f"fe80::{10 + i}", six=six, four=four, even=2 * i)


def _pair(
    router: str, other: str, ifname: str, link_local: str, *, six: str, four: str, even: int
) -> tuple[Port, Port]:
    """Both ends of a cable, the router's first; `ifname` and `link_local` are the other's."""

    def end(owner: str, towards: str, ifname: str, link_local: str, number: int) -> Port:
        return Port(
            owner=owner,
            towards=towards,
            ifname=ifname,
            bridge=f"br-{router}-{other}",
            link_local=link_local,
            addresses=(f"{six}::{number}/64", f"{four}.{even + number - 1}/31"),
        )

    return end(router, other, other, "fe80::1", 1), end(other, router, ifname, link_local, 2)

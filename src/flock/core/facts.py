"""What a node's kernel says about the node itself: its addresses and the networks it is connected to.  And what an
address, and a network, is to everybody here."""

import ipaddress

import msgspec

Interface = ipaddress.IPv4Interface | ipaddress.IPv6Interface
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class HostAddress(msgspec.Struct, frozen=True):
    """One address of one of the node's own interfaces; pods' links are not among them."""

    interface: str
    address: Interface
    temporary: bool = False  # of privacy extensions: another one takes its place in a day


Silent = tuple[str, Address]  # an interface, and an address that nobody answers for there


class NodeFacts(msgspec.Struct, frozen=True):
    node: str
    addresses: tuple[HostAddress, ...] = ()

    @property
    def own(self) -> frozenset[Address]:
        return frozenset(a.address.ip for a in self.addresses)

    @property
    def lans(self) -> tuple[Network, ...]:
        """Connected networks of more than one address, link-local ones left out; sorted, without repeats."""
        found = {
            a.address.network
            for a in self.addresses
            if a.address.network.num_addresses > 1 and not a.address.ip.is_link_local and not a.address.ip.is_loopback
        }
        return tuple(sorted(found, key=lambda n: (n.version, n)))

    @property
    def forbidden(self) -> tuple[Network, ...]:
        """What no pod may have, whatever is granted: this node's addresses and the networks it is on."""
        return (*map(ipaddress.ip_network, self.own), *self.lans)

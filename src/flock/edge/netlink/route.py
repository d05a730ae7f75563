"""One function per rtnetlink message we send, and one struct per object we read back.

Every constructor returns a `Request`: what to send, and a short text for the error message if the kernel
refuses.  Addresses are packed bytes (4 or 16), the caller's family follows from their length.
"""

import struct
from typing import NamedTuple

from flock.edge.netlink import wire as w

_IFINFO = struct.Struct("=BBHiII")
_IFADDR = struct.Struct("=BBBBI")
_RTMSG = struct.Struct("=BBBBBBBBI")
SETTLED = 60  # seconds; what the kernel does at leisure takes a moment
_NDMSG = struct.Struct("=BBHiHBB")
ROUTE_HEADER = _RTMSG.size

_ON = (w.IPV4_DEVCONF_FORWARDING, w.IPV4_DEVCONF_PROXY_ARP)
_OFF = (w.IPV4_DEVCONF_ACCEPT_REDIRECTS, w.IPV4_DEVCONF_SEND_REDIRECTS, w.IPV4_DEVCONF_ACCEPT_SOURCE_ROUTE)
_SWITCHES = dict.fromkeys(_ON, 1) | dict.fromkeys(_OFF, 0)
_HOST_SIDE_SWITCHES = w.nested(
    w.AF_INET, w.nested(w.IFLA_INET_CONF, *(w.attr(which, w.u32(to)) for which, to in _SWITCHES.items()))
)
# A veth uses one queue of each kind unless told otherwise, but is made with one for each core if nobody says how many.
# The others are given up at once, for which the kernel waits until no core looks at them any more, once for each end.
_ONE_QUEUE = w.attr(w.IFLA_NUM_TX_QUEUES, w.u32(1)) + w.attr(w.IFLA_NUM_RX_QUEUES, w.u32(1))
_NO_STATISTICS = w.attr(w.IFLA_EXT_MASK, w.u32(w.RTEXT_FILTER_SKIP_STATS))
_NO_GENERATED_ADDRESS = w.nested(w.AF_INET6, w.attr(w.IFLA_INET6_ADDR_GEN_MODE, bytes([w.ADDR_GEN_MODE_NONE])))
_REPLACE = w.NLM_F_CREATE | w.NLM_F_REPLACE


class Request(NamedTuple):
    what: str
    kind: int
    flags: int
    body: bytes


def family(address: bytes) -> int:
    return w.AF_INET6 if len(address) == 16 else w.AF_INET


def _link_body(link: str | int, *attributes: bytes, flags: int = 0, change: int = 0) -> bytes:
    """Of the link with this name, or index; 0: of none."""
    index, name = (0, w.text(w.IFLA_IFNAME, link)) if isinstance(link, str) else (link, b"")
    return _IFINFO.pack(w.AF_UNSPEC, 0, 0, index, flags, change) + name + b"".join(attributes)


# --- links --------------------------------------------------------------------------------------------------


def create_veth(*, name: str, mac: bytes, mtu: int, peer_name: str, peer_mac: bytes, peer_netns_fd: int) -> Request:
    """Both ends at once, the peer already inside the other namespace: nothing is ever moved."""
    each = w.attr(w.IFLA_MTU, w.u32(mtu)) + _ONE_QUEUE
    place = w.attr(w.IFLA_NET_NS_FD, w.u32(peer_netns_fd))
    peer = _link_body(peer_name, each, w.attr(w.IFLA_ADDRESS, peer_mac), place)
    body = _link_body(
        name,
        each,
        w.attr(w.IFLA_ADDRESS, mac),
        w.nested(
            w.IFLA_LINKINFO,
            w.text(w.IFLA_INFO_KIND, "veth"),
            w.nested(w.IFLA_INFO_DATA, w.attr(w.VETH_INFO_PEER, peer)),
        ),
    )
    return Request(f"create link {name}", w.RTM_NEWLINK, w.NLM_F_CREATE | w.NLM_F_EXCL, body)


def describe_host_side(index: int, *, alias: str, has_ipv6: bool) -> Request:
    """Alias, no generated IPv6 address, and the IPv4 switches a host side needs; before the link goes up.

    A kernel without IPv6 refuses to hear of it.
    """
    body = _link_body(
        index,
        w.text(w.IFLA_IFALIAS, alias),
        w.nested(w.IFLA_AF_SPEC, _HOST_SIDE_SWITCHES, _NO_GENERATED_ADDRESS if has_ipv6 else b""),
    )
    return Request("describe the host side", w.RTM_NEWLINK, 0, body)


def set_ipv4_switches(index: int) -> Request:
    body = _link_body(index, w.nested(w.IFLA_AF_SPEC, _HOST_SIDE_SWITCHES))
    return Request("set the IPv4 switches", w.RTM_NEWLINK, 0, body)


def set_alias(index: int, alias: str) -> Request:
    return Request("set the link's alias", w.RTM_NEWLINK, 0, _link_body(index, w.text(w.IFLA_IFALIAS, alias)))


def set_mac(index: int, mac: bytes) -> Request:
    return Request("set the link's address", w.RTM_NEWLINK, 0, _link_body(index, w.attr(w.IFLA_ADDRESS, mac)))


def set_up(index: int) -> Request:
    return Request("set the link up", w.RTM_NEWLINK, 0, _link_body(index, flags=w.IFF_UP, change=w.IFF_UP))


def set_group(which: str | int, group: int) -> Request:
    """Not RTM_NEWLINK, which takes a name that is nobody's, and a group, for a change of all links in that group."""
    body = _link_body(which, w.attr(w.IFLA_GROUP, w.u32(group)))
    return Request(f"set the group of link {which}", w.RTM_SETLINK, 0, body)


def delete_link(which: str | int) -> Request:
    return Request(f"delete link {which}", w.RTM_DELLINK, 0, _link_body(which))


def delete_group(group: int) -> Request:
    return Request("delete links by group", w.RTM_DELLINK, 0, _link_body(0, w.attr(w.IFLA_GROUP, w.u32(group))))


def get_link(which: str | int) -> Request:
    return Request(f"look up link {which}", w.RTM_GETLINK, 0, _link_body(which, _NO_STATISTICS))


def dump_links() -> Request:
    return Request("list links", w.RTM_GETLINK, w.NLM_F_ROOT_MATCH, _link_body(0, _NO_STATISTICS))


class Link(NamedTuple):
    index: int  # type: ignore[assignment]  # hides a method of tuples
    name: str
    up: bool
    loopback: bool
    mac: bytes
    mtu: int
    alias: str
    kind: str
    peer_index: int  # a veth's other end; 0 if none
    peer_netns: int  # this namespace's number for the one the other end is in; -1 if it is this one
    forwards: bool  # IPv4 forwarding and proxy_arp, as a host side needs them
    heeds_redirects: bool  # or source routes, IPv4
    has_ipv6: bool
    ipv6_off: bool  # disable_ipv6
    accepts_ra: int  # accept_ra
    heeds_redirects6: bool
    forwards6: bool

    @property
    def heeds_routers(self) -> bool:
        """Would an IPv6 router at its other end be believed?  Who forwards ignores them, unless accept_ra is 2."""
        if self.ipv6_off:
            return False
        return self.accepts_ra > 1 if self.forwards6 else self.accepts_ra > 0 or self.heeds_redirects6

    @staticmethod
    def decode(body: bytes) -> "Link":
        _, _, _, index, flags, _ = _IFINFO.unpack_from(body)
        a = w.attrs(body, _IFINFO.size)
        info = w.attrs(a.get(w.IFLA_LINKINFO, b""))
        families = w.attrs(a.get(w.IFLA_AF_SPEC, b""))
        inet = w.attrs(families.get(w.AF_INET, b"")).get(w.IFLA_INET_CONF, b"")
        inet6 = w.attrs(families.get(w.AF_INET6, b"")).get(w.IFLA_INET6_CONF, b"")
        return Link(
            index=index,
            name=w.as_text(a.get(w.IFLA_IFNAME, b"")),
            up=bool(flags & w.IFF_UP),
            loopback=bool(flags & w.IFF_LOOPBACK),
            mac=a.get(w.IFLA_ADDRESS, b""),
            mtu=w.as_u32(a[w.IFLA_MTU]) if w.IFLA_MTU in a else 0,
            alias=w.as_text(a.get(w.IFLA_IFALIAS, b"")),
            kind=w.as_text(info.get(w.IFLA_INFO_KIND, b"")),
            peer_index=w.as_u32(a[w.IFLA_LINK]) if w.IFLA_LINK in a else 0,
            peer_netns=w.as_u32(a[w.IFLA_LINK_NETNSID]) if w.IFLA_LINK_NETNSID in a else -1,
            forwards=all(_devconf(inet, which) for which in _ON),
            heeds_redirects=any(_devconf(inet, which) for which in _OFF),
            forwards6=bool(_devconf(inet6, w.DEVCONF_FORWARDING)),
            has_ipv6=bool(inet6),
            ipv6_off=bool(_devconf(inet6, w.DEVCONF_DISABLE_IPV6)),
            accepts_ra=_devconf(inet6, w.DEVCONF_ACCEPT_RA),
            heeds_redirects6=bool(_devconf(inet6, w.DEVCONF_ACCEPT_REDIRECTS)),
        )


def _devconf(array: bytes, which: int) -> int:
    """The kernel lists its per-link switches as an array of u32, numbered from 1."""
    offset = 4 * (which - 1)
    return w.as_u32(array[offset : offset + 4]) if len(array) >= offset + 4 else 0


# --- addresses ----------------------------------------------------------------------------------------------


def _address_body(index: int, address: bytes, length: int) -> bytes:
    body = _IFADDR.pack(family(address), length, 0, w.RT_SCOPE_UNIVERSE, index)
    body += w.attr(w.IFA_LOCAL, address) + w.attr(w.IFA_ADDRESS, address)
    if len(address) == 4:
        return body
    flags = w.IFA_F_NODAD | (w.IFA_F_NOPREFIXROUTE if length == 128 else 0)
    return body + w.attr(w.IFA_FLAGS, w.u32(flags))


def add_address(index: int, address: bytes, length: int) -> Request:
    """Without duplicate address detection, which costs seconds: uniqueness is our own business.  Nor with the route to
    itself that an IPv6 address gets: it is local anyway, and whenever any link goes up or down the kernel walks through
    all IPv6 routes there are."""
    return Request("add an address", w.RTM_NEWADDR, _REPLACE, _address_body(index, address, length))


def delete_address(index: int, address: bytes, length: int) -> Request:
    return Request("delete an address", w.RTM_DELADDR, 0, _address_body(index, address, length))


def dump_addresses(index: int = 0) -> Request:
    return Request("list addresses", w.RTM_GETADDR, w.NLM_F_ROOT_MATCH, _IFADDR.pack(0, 0, 0, 0, index))


class Address(NamedTuple):
    index: int  # type: ignore[assignment]  # hides a method of tuples
    address: bytes
    length: int
    scope: int
    flags: int

    @staticmethod
    def decode(body: bytes) -> "Address":
        _, length, flags, scope, index = _IFADDR.unpack_from(body)
        a = w.attrs(body, _IFADDR.size)
        address = a.get(w.IFA_LOCAL) or a.get(w.IFA_ADDRESS, b"")
        return Address(index, address, length, scope, w.as_u32(a[w.IFA_FLAGS]) if w.IFA_FLAGS in a else flags)


# --- routes -------------------------------------------------------------------------------------------------


class Route(NamedTuple):
    """A route with at most one next hop.  `dst` is empty for the default route."""

    family: int
    dst: bytes
    length: int
    index: int = 0  # type: ignore[assignment]
    gateway: bytes = b""
    protocol: int = w.RTPROT_STATIC
    metric: int = 0
    onlink: bool = False
    kind: int = w.RTN_UNICAST
    table: int = w.RT_TABLE_MAIN
    nexthop: int = 0  # id of a nexthop object, instead of index and gateway

    def encode(self, *, any_scope: bool = False) -> bytes:
        link_scope = self.family == w.AF_INET and self.index and not self.gateway
        scope = w.RT_SCOPE_NOWHERE if any_scope else w.RT_SCOPE_LINK if link_scope else w.RT_SCOPE_UNIVERSE
        flags = w.RTNH_F_ONLINK if self.onlink else 0
        table = self.table if self.table < 256 else w.RT_TABLE_UNSPEC
        body = _RTMSG.pack(self.family, self.length, 0, 0, table, self.protocol, scope, self.kind, flags)
        if table != self.table:
            body += w.attr(w.RTA_TABLE, w.u32(self.table))
        if self.dst:
            body += w.attr(w.RTA_DST, self.dst)
        if self.nexthop:
            body += w.attr(w.RTA_NH_ID, w.u32(self.nexthop))
        else:  # the kernel tells both and takes only one
            if self.gateway:
                body += w.attr(w.RTA_GATEWAY, self.gateway)
            if self.index:
                body += w.attr(w.RTA_OIF, w.u32(self.index))
        if self.metric:
            body += w.attr(w.RTA_PRIORITY, w.u32(self.metric))
        return body

    @staticmethod
    def decode(body: bytes) -> "Route":
        fam, length, _, _, table, protocol, _, kind, flags = _RTMSG.unpack_from(body)
        a = w.attrs(body, _RTMSG.size)
        return Route(
            family=fam,
            dst=a.get(w.RTA_DST, b""),
            length=length,
            index=w.as_u32(a[w.RTA_OIF]) if w.RTA_OIF in a else 0,
            gateway=a.get(w.RTA_GATEWAY, b""),
            protocol=protocol,
            metric=w.as_u32(a[w.RTA_PRIORITY]) if w.RTA_PRIORITY in a else 0,
            onlink=bool(flags & w.RTNH_F_ONLINK),
            kind=kind,
            table=w.as_u32(a[w.RTA_TABLE]) if w.RTA_TABLE in a else table,
            nexthop=w.as_u32(a[w.RTA_NH_ID]) if w.RTA_NH_ID in a else 0,
        )


def host_route(address: bytes, *, index: int, protocol: int, metric: int) -> Route:
    return Route(
        family=family(address), dst=address, length=8 * len(address), index=index, protocol=protocol, metric=metric
    )


def add_route(route: Route) -> Request:
    """Replaces a route to the same destination with the same metric."""
    return Request("add a route", w.RTM_NEWROUTE, _REPLACE, route.encode())


def make_local(index: int, address: bytes) -> Request:
    """Packets to an IPv6 address that the link was just given are taken in from now on.

    The kernel sees to that by itself, but at leisure: its entry follows, and this one goes after SETTLED seconds."""
    head = (w.AF_INET6, 128, 0, 0, w.RT_TABLE_LOCAL, w.RTPROT_KERNEL, w.RT_SCOPE_UNIVERSE, w.RTN_LOCAL, 0)
    body = _RTMSG.pack(*head) + w.attr(w.RTA_DST, address) + w.attr(w.RTA_OIF, w.u32(index))
    body += w.attr(w.RTA_EXPIRES, w.u32(SETTLED))
    return Request("make an address local", w.RTM_NEWROUTE, _REPLACE, body)


def delete_route(route: Route) -> Request:
    """Deletes just the route with this destination, interface, protocol and metric, of whatever scope."""
    return Request("delete a route", w.RTM_DELROUTE, 0, route.encode(any_scope=True))


def dump_routes(fam: int, *, protocol: int = 0, table: int = w.RT_TABLE_MAIN, index: int = 0) -> Request:
    """Of one protocol, over one link, or of all; the kernel filters."""
    body = _RTMSG.pack(fam, 0, 0, 0, w.RT_TABLE_UNSPEC, protocol, 0, 0, 0) + w.attr(w.RTA_TABLE, w.u32(table))
    return Request("list routes", w.RTM_GETROUTE, w.NLM_F_ROOT_MATCH, body + w.filtered(w.RTA_OIF, index))


def get_route(address: bytes, *, configured: bool = False) -> Request:
    """Which way the kernel would send a packet to `address`; or the route as it is configured."""
    flags = w.RTM_F_FIB_MATCH if configured else 0
    body = _RTMSG.pack(family(address), 8 * len(address), 0, 0, 0, 0, 0, 0, flags) + w.attr(w.RTA_DST, address)
    return Request("look up a route", w.RTM_GETROUTE, 0, body)


# --- neighbours ---------------------------------------------------------------------------------------------


def add_neighbour(index: int, address: bytes, mac: bytes) -> Request:
    """A permanent entry: the first packet waits for nobody's answer."""
    body = _NDMSG.pack(family(address), 0, 0, index, w.NUD_PERMANENT, 0, 0) + w.attr(w.NDA_DST, address)
    return Request("add a neighbour", w.RTM_NEWNEIGH, _REPLACE, body + w.attr(w.NDA_LLADDR, mac))


def dump_neighbours(index: int = 0) -> Request:
    body = _NDMSG.pack(0, 0, 0, 0, 0, 0, 0) + w.filtered(w.NDA_IFINDEX, index)
    return Request("list neighbours", w.RTM_GETNEIGH, w.NLM_F_ROOT_MATCH, body)


class Neighbour(NamedTuple):
    index: int  # type: ignore[assignment]  # hides a method of tuples
    address: bytes
    mac: bytes
    permanent: bool
    silent: bool  # asked, and has not answered

    @staticmethod
    def decode(body: bytes) -> "Neighbour":
        _, _, _, index, state, _, _ = _NDMSG.unpack_from(body)
        a = w.attrs(body, _NDMSG.size)
        is_ = (bool(state & w.NUD_PERMANENT), bool(state & (w.NUD_INCOMPLETE | w.NUD_FAILED)))
        return Neighbour(index, a.get(w.NDA_DST, b""), a.get(w.NDA_LLADDR, b""), *is_)

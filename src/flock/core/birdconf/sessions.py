"""The parts of bird.conf that talk to neighbours: BGP sessions, OSPF instances, and BFD beside them.

Graceful restart and BFD exclude each other in effect: BFD reports a dead BIRD within a second and the routes go.
So a session with BFD only helps a restarting neighbour; one without has graceful restart if the operator wants it.
"""

from collections.abc import Iterable, Mapping
from ipaddress import IPv4Network, IPv6Address

from flock.core.birdconf.text import Lines, block, channel, community, password, prefix_set
from flock.core.errors import FieldError
from flock.core.facts import Address, HostAddress, NodeFacts
from flock.core.nodeconfig import Family, NodeConfig, PasswordSource, Peer
from flock.core.nodeconfig.shape import BFD, BGP, Authentication, OSPFInterface
from flock.core.nodeconfig.values import Community, ImportPolicy
from flock.core.reserved import reserved

Secrets = Mapping[PasswordSource, str]

_TCP_MD5_LONGEST = 80  # the kernel's limit
_OSPF_LONGEST = {"md5": 16}  # keyed MD5 pads to its block; HMACs take more
_DEFAULT_ROUTE: dict[Family, str] = {"ipv6": "::/0", "ipv4": "0.0.0.0/0"}


def protocol_name(peer: str) -> str:
    """The BIRD protocol of a peer.  The prefix keeps names apart from BIRD's keywords and from our other protocols."""
    return f"bgp_{peer}"


def needs_next_hop_tables(config: NodeConfig) -> bool:
    """Routes from a peer several hops away carry next hops that have to be looked up."""
    return config.bgp is not None and any(peer.multihop and peer.import_ != "none" for peer in config.bgp.peers)


# --- BGP ----------------------------------------------------------------------------------------------------


def render_bgp(config: NodeConfig, facts: NodeFacts, *, secrets: Secrets) -> list[Lines]:
    if config.bgp is None:
        return []
    peers = sorted(config.bgp.peers, key=lambda peer: peer.name)
    marking = _marking(config)
    return [_peer(peer, config.bgp, facts, marking=marking, secrets=secrets) for peer in peers]


def _marking(config: NodeConfig) -> Lines:
    """Communities on what is announced beside the aggregates."""
    on_host_routes, on_services = _added(config.anycast.communities), _added(config.services.communities)
    pods = 'source = RTS_INHERIT && proto !~ "services*"' if config.services.allowed else "source = RTS_INHERIT"
    lines = block(f"if {pods} then", on_host_routes) if on_host_routes else []
    if config.services.allowed and on_services:
        lines += block('if proto ~ "services*" then', on_services)
    return lines


def _added(communities: Iterable[Community]) -> Lines:
    return [community(numbers) for numbers in sorted(communities)]


def _peer(peer: Peer, bgp: BGP, facts: NodeFacts, *, marking: Lines, secrets: Secrets) -> Lines:
    lines = [
        f"local {_local(peer, facts)}as {bgp.asn};",
        f"neighbor {str(peer.address).partition('%')[0]} as {peer.asn};",
        *([f'interface "{peer.zone}";'] if peer.zone else []),
        f"multihop {peer.multihop};" if peer.multihop else "direct;",
        *(["ttl security on;"] if peer.ttl_security else []),
        f"hold time {peer.hold_time};",
        f"keepalive time {peer.keepalive_time};",
        "connect delay time 1;",
        f"connect retry time {peer.connect_retry};",
        f"error wait time 1, {peer.connect_retry};",
        *([f"allow local as {peer.allow_local_as};"] if peer.allow_local_as else []),
        *_graceful_restart(peer, bgp),
        *(channel("bfd", _bfd_options(peer.bfd)) if peer.bfd.enabled else []),
    ]
    if peer.password is not None:
        field = f"spec.bgp.peers[{peer.name}].password"
        lines.append(f"password {_secret(peer.password, secrets, field=field, longest=_TCP_MD5_LONGEST)};")
    for family in sorted(peer.families, reverse=True):
        lines += channel(family, _bgp_channel(peer, family, facts, marking=marking))
    return block(f"protocol bgp '{protocol_name(peer.name)}'", lines)


def _local(peer: Peer, facts: NodeFacts) -> str:
    """Our address, if it is known: BIRD finds a link-local one by itself, and none for BFD over several hops."""
    if peer.local_address is not None:
        return f"{str(peer.local_address).partition('%')[0]} "
    own = None if peer.zone else beside(peer.address, facts)
    if own is None and peer.multihop and peer.bfd.enabled:
        field = f"spec.bgp.peers[{peer.name}].localAddress"
        raise FieldError(field, f"BFD over several hops needs it: no address of this host is beside {peer.address}")
    return f"{own.address.ip} " if own else ""


def beside(address: Address, facts: NodeFacts) -> HostAddress | None:
    """The node's address in the subnet of `address`: one that stays, the narrowest subnet, then the lowest address."""
    sharing = (own for own in facts.addresses if address in own.address.network and own.address.ip != address)
    return min(sharing, key=lambda own: (own.temporary, -own.address.network.prefixlen, own.address.ip), default=None)


def _graceful_restart(peer: Peer, bgp: BGP) -> Lines:
    if not bgp.graceful_restart.enabled:
        return ["graceful restart off;"]
    if peer.bfd.enabled:
        return ["graceful restart aware;"]
    return ["graceful restart on;", f"graceful restart time {bgp.graceful_restart.time};"]


def _bgp_channel(peer: Peer, family: Family, facts: NodeFacts, *, marking: Lines) -> Lines:
    lines = ["next hop self;", *_next_hop_address(peer, facts)]
    over: Family = "ipv6" if isinstance(peer.address, IPv6Address) else "ipv4"
    if family != over:
        lines.append("extended next hop on;")
    if peer.multihop and peer.import_ != "none":
        lines += [f"igp table next_hops_{version};" for version in sorted({family, over})]
    exported = [
        "if !announced() then reject;",
        *marking,
        *_added(peer.communities),
        "accept;",
    ]
    return [*lines, *_imported(family, peer.import_), *_limit(peer), *channel("export filter", exported)]


def _limit(peer: Peer) -> Lines:
    """A default route is one route.  `block` passes over what is too much: every other action would end the session,
    and with it what this node announces."""
    return [] if peer.import_ in ("none", "default") else [f"import limit {peer.max_prefixes} action block;"]


def _next_hop_address(peer: Peer, facts: NodeFacts) -> Lines:
    """On a link-local session BIRD names no global next hop by itself, and some routers refuse routes without one."""
    there = [own.address for own in facts.addresses if own.interface == peer.zone and not own.temporary]
    usable = [a.ip for a in there if a.version == 6 and a.network.prefixlen < 128 and reserved(a.ip) is None]
    return [f"next hop address {min(usable)};"] if usable else []


def _imported(family: Family, policy: ImportPolicy) -> Lines:
    if policy == "none":
        return ["import none;"]
    if policy == "all":
        return [f"import where !own_{family}();"]
    if policy == "default":
        return [f"import where net = {_DEFAULT_ROUTE[family]};"]
    networks = [n for n in policy if isinstance(n, IPv4Network) == (family == "ipv4")]
    return [f"import where !own_{family}() && net ~ {prefix_set(networks)};"] if networks else ["import none;"]


# --- OSPF ---------------------------------------------------------------------------------------------------


def render_ospf(config: NodeConfig, *, secrets: Secrets) -> list[Lines]:
    ospf = config.ospf
    if ospf is None:
        return []
    areas = [
        line
        for area in sorted(ospf.areas, key=lambda area: area.id)
        for line in channel(
            f"area {area.id}",
            (
                line
                for interface in sorted(area.interfaces, key=lambda interface: interface.name)
                for line in channel(f'interface "{interface.name}"', _ospf_interface(interface, secrets))
            ),
        )
    ]
    # Type 1: the cost of the way counts, so that an anycast address leads to the nearest node.
    exported = channel("export filter", ["if !announced() then reject;", "ospf_metric1 = 20;", "accept;"])
    return [
        block(
            f"protocol ospf {'v3' if family == 'ipv6' else 'v2'} ospf_{family}",
            [*channel(family, [*_imported(family, ospf.import_), *exported]), *areas],
        )
        for family in sorted(ospf.families, reverse=True)
    ]


def _ospf_interface(interface: OSPFInterface, secrets: Secrets) -> Lines:
    return [
        f"cost {interface.cost};",
        f"type {interface.type};",
        f"hello {interface.hello_interval};",
        f"dead {interface.dead_interval};",
        *(["stub yes;"] if interface.passive else []),
        *(["bfd yes;"] if interface.bfd.enabled else []),
        *(_authentication(interface.name, interface.authentication, secrets) if interface.authentication else []),
    ]


def _authentication(interface: str, authentication: Authentication, secrets: Secrets) -> Lines:
    field = f"spec.ospf.areas[].interfaces[{interface}].authentication"
    source = authentication.password
    if source is None:
        raise FieldError(field, "has no password")
    longest = _OSPF_LONGEST.get(authentication.algorithm, 128)
    algorithm = "keyed md5" if authentication.algorithm == "md5" else authentication.algorithm.replace("-", " ")
    return [
        "authentication cryptographic;",
        *channel(
            f"password {_secret(source, secrets, field=field, longest=longest)}",
            [f"id {authentication.key_id};", f"algorithm {algorithm};"],
        ),
    ]


# --- both ---------------------------------------------------------------------------------------------------


def render_bfd(config: NodeConfig) -> Lines:
    """The BFD protocol, if anyone uses it.  BGP sessions bring their own timers; OSPF's are by interface."""
    areas = config.ospf.areas if config.ospf else ()
    interfaces = sorted((i for area in areas for i in area.interfaces if i.bfd.enabled), key=lambda i: i.name)
    peers = config.bgp.peers if config.bgp else ()
    if not interfaces and not any(peer.bfd.enabled for peer in peers):
        return []
    by_interface = (line for i in interfaces for line in channel(f'interface "{i.name}"', _bfd_options(i.bfd)))
    return block("protocol bfd bfd1", by_interface)


def _bfd_options(bfd: BFD) -> Lines:
    return [f"interval {bfd.interval} ms;", f"multiplier {bfd.multiplier};"]


def _secret(source: PasswordSource, secrets: Secrets, *, field: str, longest: int) -> str:
    if source not in secrets:
        where = source if isinstance(source, str) else f"Secret {source.name}, key {source.key}"
        raise FieldError(field, f"the password could not be read from {where}")
    return password(secrets[source], field=field, longest=longest)

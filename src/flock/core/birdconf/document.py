"""The whole of bird.conf: header, tables, what is learned and installed, then the sessions."""

from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, ip_network

from flock.core.birdconf.sessions import beside, needs_next_hop_tables, render_bfd, render_bgp, render_ospf
from flock.core.birdconf.text import Lines, block, channel, prefix_set
from flock.core.facts import Network, NodeFacts
from flock.core.naming import PROTO_ANNOUNCE, PROTO_POD, SERVICE_TABLE, fnv1a32
from flock.core.nodeconfig import Family, NodeConfig, PasswordSource
from flock.core.reserved import reserved

MARK = "# flock wrote this from NodeConfig"  # how every bird.conf of flock's begins
FAMILIES: tuple[Family, ...] = ("ipv6", "ipv4")


def render_bird_conf(config: NodeConfig, facts: NodeFacts, *, secrets: Mapping[PasswordSource, str]) -> str:
    """The file for this node.  `secrets` holds what `config.password_sources` asks for; one that is missing or that
    BIRD cannot take raises `FieldError`, which never shows it."""
    resolves = needs_next_hop_tables(config)
    parts: list[Lines] = [
        _header(config.name, router_id=config.router_id or _router_id(config, facts)),
        _recovery(config),
        _functions(config, facts),
        *(_kernel(family, learn_all=resolves) for family in FAMILIES),
        *(_services(family) for family in FAMILIES if config.services.allowed),
    ]
    if config.bgp or config.ospf:
        parts += [_aggregates("ipv6", config.cidr6), _aggregates("ipv4", config.cidr4)]
    if resolves:
        parts.append(_next_hop_tables())
    parts += [render_bfd(config), *render_bgp(config, facts, secrets=secrets), *render_ospf(config, secrets=secrets)]
    return _joined(parts)


def bootstrap_bird_conf(facts: NodeFacts) -> str:
    """What BIRD runs before a NodeConfig is known: it watches interfaces, learns and announces nothing."""
    return _joined([_header(facts.node, router_id=derived_router_id(facts.node))])


def _joined(parts: Iterable[Lines]) -> str:
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _header(name: str, *, router_id: IPv4Address) -> Lines:
    return [
        f"{MARK} {name} and will write it again: change the NodeConfig instead.",
        "log stderr { info, remote, warning, error, auth, fatal, bug };",
        "timeformat protocol iso long ms;",
        "debug protocols { states };  # for the agent; not in the log",
        f"router id {router_id};",
        "",
        "protocol device device1 { }",
    ]


def _recovery(config: NodeConfig) -> Lines:
    """BIRD is always started with -R, and then neither announces nor touches the kernel until every session with
    graceful restart is back or this time is over.  Its default of 240 s would keep a node that boots while one of
    its routers is down off the network that long; two attempts to connect are enough for a router that is there."""
    if config.bgp is None:
        return []
    attempts = 2 * max((peer.connect_retry for peer in config.bgp.peers), default=0) + 5
    return [f"graceful restart wait {min(attempts, config.bgp.graceful_restart.time)};"]


def _router_id(config: NodeConfig, facts: NodeFacts) -> IPv4Address:
    """An IPv4 of the node, of the interfaces towards its peers if these have one; lowest first, so that an
    interface that appears elsewhere does not change the id and reset every session."""
    peers = config.bgp.peers if config.bgp else ()
    areas = config.ospf.areas if config.ospf else ()
    uplinks = {own.interface for peer in peers if (own := beside(peer.address, facts))}
    uplinks |= {peer.zone for peer in peers if peer.zone}
    uplinks |= {interface.name for area in areas for interface in area.interfaces}
    usable = [
        (host.interface not in uplinks, host.address.ip)
        for host in facts.addresses
        if isinstance(host.address.ip, IPv4Address) and reserved(host.address.ip) is None
    ]
    return min(usable)[1] if usable else derived_router_id(config.name)


def derived_router_id(name: str) -> IPv4Address:
    """Spread over 1.0.0.0 to 223.255.255.255: some routers take only what could be a host's address."""
    return IPv4Address((1 << 24) + fnv1a32(name.encode()) % (223 << 24))


def _functions(config: NodeConfig, facts: NodeFacts) -> Lines:
    lines = [
        "# Exactly what leaves this node: its aggregates, and the routes the agent marked for announcing.",
        *block(
            "function announced()",
            [f'return proto ~ "aggregates*" || (source = RTS_INHERIT && krt_source = {PROTO_ANNOUNCE});'],
        ),
        "",
        "# Never taken from a neighbour: this node's aggregates, and the networks it is on.",
    ]
    for family, aggregates, version in (("ipv6", config.cidr6, 6), ("ipv4", config.cidr4, 4)):
        own = {*aggregates, *(network for network in _networks(facts) if network.version == version)}
        lines += block(f"function own_{family}()", [f"return {f'net ~ {prefix_set(own)}' if own else 'false'};"])
    return lines


def _networks(facts: NodeFacts) -> list[Network]:
    """The networks the node is on, and those of its addresses that are on none."""
    alone = (own for own in facts.own if reserved(own) is None and not any(own in lan for lan in facts.lans))
    return [*facts.lans, *(ip_network(own) for own in alone)]


# Bytes.  The kernel tells BIRD of every route BIRD itself puts in; while it takes in a router's ten thousand, the
# default leaves no room for what the agent changes, which BIRD then finds at its next scan.
NOTICES = 32 << 20


def _kernel(family: Family, *, learn_all: bool) -> Lines:
    learned = [
        f"if krt_source = {PROTO_ANNOUNCE} then {{ preference = 200; accept; }}",
        # Routes set up by others are wanted only to find the way to a peer several hops away.
        f"if krt_source != {PROTO_POD} then {{ preference = 10; accept; }}" if learn_all else "",
        "reject;",
    ]
    return block(
        f"protocol kernel kernel_{family}",
        [
            "learn;",
            "metric 32;",
            "merge paths yes;",
            "graceful restart;",
            "scan time 10;",
            f"netlink rx buffer {NOTICES};",
            *channel(
                family,
                [
                    *channel("import filter", filter(None, learned)),
                    "export where source ~ [ RTS_BGP, RTS_OSPF, RTS_OSPF_IA, RTS_OSPF_EXT1, RTS_OSPF_EXT2 ];",
                ],
            ),
        ],
    )


def _services(family: Family) -> Lines:
    """Addresses of Services, from a kernel table that nobody is led to; installed nowhere."""
    learned = [f"if krt_source = {PROTO_ANNOUNCE} then {{ preference = 200; accept; }}", "reject;"]
    own = f"services{family[-1]}"
    return [
        "# Addresses of Services are announced from a table of their own.",
        f"{family} table {own};",
        *block(
            f"protocol kernel services_{family}",
            [
                "learn;",
                f"kernel table {SERVICE_TABLE};",
                "scan time 10;",
                *channel(family, [f"table {own};", *channel("import filter", learned), "export none;"]),
            ],
        ),
        *block(
            f"protocol pipe pipe_services_{family}",
            [f"table master{family[-1]};", f"peer table {own};", "import all;", "export none;"],
        ),
    ]


def _aggregates(family: Family, networks: Iterable[Network]) -> Lines:
    routes = [f"route {network} blackhole;" for network in sorted(networks)]
    return block(f"protocol static aggregates_{family}", [f"{family};", *routes]) if routes else []


def _next_hop_tables() -> Lines:
    """Tables to look next hops of distant peers up in.  They hold no BGP route: one that leads to its own next hop
    would cancel itself."""
    lines = ["# Where next hops of peers behind other routers are looked up."]
    for family in FAMILIES:
        table = f"next_hops_{family}"
        lines += [f"{family} table {table};"]
        lines += block(
            f"protocol pipe pipe_{family}",
            [f"table master{family[-1]};", f"peer table {table};", "import none;", "export where source != RTS_BGP;"],
        )
    connected = (line for family in FAMILIES for line in channel(family, [f"table next_hops_{family};"]))
    return lines + block("protocol direct direct1", connected)

"""The routers that NodeConfigs ask for: what each node says of its peer is what that peer is told of the node.

Peers with one address are one router, and so are peers with one name and AS number: on cables of its own each node sees
another address of it.  A link-local address says nothing of whose it is.  Passwords are not known here, nor what a
router calls its interfaces: a word stands where each goes.
"""

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Address

from flock.core.birdconf.document import derived_router_id
from flock.core.birdconf.sessions import beside
from flock.core.errors import FieldError
from flock.core.facts import HostAddress, Interface, NodeFacts
from flock.core.nodeconfig import NodeConfig, Peer
from flock.core.routerconf.speaker import Accepted, Neighbour, Speaker, distinct, shortened

_Sessions = list[tuple[NodeConfig, Peer]]
Addresses = Mapping[str, Sequence[Interface]]  # node -> its own
_LONGEST_WORD = 60  # with what stands before it, less than any daemon takes for a password


def routers(configs: Iterable[NodeConfig], *, nodes: Addresses, together: Iterable[str] = ()) -> tuple[Speaker, ...]:
    """In the order of the NodeConfigs; with `together`, one for the peers with these names or addresses alone.
    FieldError for what a NodeConfig leaves open and a router has to be told."""
    chosen = frozenset(together)
    asked: list[tuple[set[str], _Sessions]] = []  # what a router is known by, and who asks for it
    for config in configs:
        for peer in config.bgp.peers if config.bgp else ():
            known = {f"{peer.name} AS{peer.asn}", *([] if peer.zone else [_bare(peer)])}
            called = {_bare(peer), peer.name} if chosen else known
            same = [entry for entry in asked if chosen or entry[0] & called]
            sessions = [session for entry in same for session in entry[1]]
            if not chosen or called & chosen:
                asked = [entry for entry in asked if entry not in same]
                asked.append((called.union(*(entry[0] for entry in same)), [*sessions, (config, peer)]))
    if missing := sorted(chosen.difference(*(entry[0] for entry in asked))):
        raise FieldError("--router", f"no NodeConfig has a peer {', '.join(missing)}")
    return tuple(_router(sessions, nodes) for _, sessions in asked)


def _router(sessions: _Sessions, nodes: Addresses) -> Speaker:
    first = sessions[0][1]
    for config, peer in sessions:
        if peer.asn != first.asn:
            field = f"NodeConfig {config.name}: spec.bgp.peers[{peer.name}].asn"
            raise FieldError(field, f"{peer.asn}, but {first.asn} in NodeConfig {sessions[0][0].name}")
    neighbours = [_neighbour(config, peer, nodes.get(config.name, ()), sessions) for config, peer in sessions]
    _check_ends(sessions, neighbours)
    fours = [peer.address for _, peer in sessions if isinstance(peer.address, IPv4Address)]
    return Speaker(
        name=first.name,
        asn=first.asn,
        router_id=str(fours[0] if fours else derived_router_id(first.name)),
        neighbours=distinct(neighbours),
        connected=False,
    )


def _check_ends(sessions: _Sessions, neighbours: Iterable[Neighbour]) -> None:
    """A router knows a session by where it comes from."""
    ends: dict[tuple[str, str | None], str] = {}
    for (config, peer), neighbour in zip(sessions, neighbours, strict=True):
        field = f"NodeConfig {config.name}: spec.bgp.peers[{peer.name}].localAddress"
        other = ends.setdefault((neighbour.address, neighbour.interface), field)
        if other != field:
            raise FieldError(field, f"{neighbour.address} is that of another session with this router, {other}")


def _neighbour(config: NodeConfig, peer: Peer, addresses: Sequence[Interface], sessions: _Sessions) -> Neighbour:
    assert config.bgp is not None
    return Neighbour(
        name=config.name,
        address=_of_node(config, peer, addresses),
        interface=f"INTERFACE-TO-{shortened(config.name, _LONGEST_WORD)}-{peer.zone}" if peer.zone else None,
        asn=config.bgp.asn,
        local_address=_bare(peer),
        families=peer.families,
        hold_time=peer.hold_time,
        bfd=peer.bfd,
        multihop=peer.multihop,
        ttl_security=peer.ttl_security,
        password=_password(config, peer, sessions) if peer.password else None,
        default_route=True,
        only_default=peer.import_ in ("default", "none"),
        accepted=_accepted(config),
    )


def _password(config: NodeConfig, peer: Peer, sessions: _Sessions) -> str:
    theirs = {other.password for node, other in sessions if node is config}
    whose = f"{config.name}-{peer.name}" if len(theirs) > 1 else config.name
    return f"PASSWORD-OF-{shortened(whose, _LONGEST_WORD)}"


def _accepted(config: NodeConfig) -> Accepted:
    hosts = dict.fromkeys(map(str, config.announces))
    return Accepted(aggregates=tuple(map(str, config.aggregates)), hosts=tuple(hosts))


def _of_node(config: NodeConfig, peer: Peer, addresses: Sequence[Interface]) -> str:
    if peer.local_address is not None:
        return str(peer.local_address).split("%")[0]
    usable = [a for a in addresses if a.version == peer.address.version and peer.zone is None]
    if not usable:
        raise FieldError(
            f"NodeConfig {config.name}: spec.bgp.peers[{peer.name}].localAddress",
            "is not said, and no Node object tells the node's address: the router has to know it",
        )
    facts = NodeFacts(config.name, tuple(HostAddress("", own) for own in usable))
    near = beside(peer.address, facts)  # as the node's own BIRD is told: another one would be a stranger to the router
    return str(near.address.ip if near else usable[0].ip)


def _bare(peer: Peer) -> str:
    return str(peer.address).split("%")[0]

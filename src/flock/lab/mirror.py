"""Routers as the mirror image of the NodeConfigs: what a node says of its peer is what that peer is told of the node.

So any NodeConfig finds routers that fit it, passwords, BFD timers and OSPF areas included.  A peer's AS number is the
exception: routers keep their own, and a NodeConfig that expects another is refused as it would be in production.  Pure.
"""

from collections.abc import Iterable, Mapping
from ipaddress import ip_interface
from typing import Any

import msgspec

from flock.core.nodeconfig import NodeConfig, PasswordSource, Peer
from flock.core.nodeconfig.shape import BFD, NO_BFD
from flock.core.routerconf.speaker import Neighbour, OspfLink, Speaker, distinct
from flock.lab.topology import CLIENT, Element, Plan, Port

# Fast enough that a cut between router and client does not outlast the story a lab tells.
FABRIC_BFD = BFD(interval=100, multiplier=3)
FABRIC_HOLD = 9

Passwords = Mapping[PasswordSource, str]


def routers(plan: Plan, configs: Iterable[NodeConfig], *, passwords: Passwords, bfd: bool) -> tuple[Speaker, ...]:
    """The speakers of all routers.  `bfd`: whether the daemon knows BFD; without, sessions rely on hold times."""
    configs = tuple(configs)
    return tuple(_router(plan, element, configs, passwords, bfd=bfd) for element in plan.role("router"))


def client(plan: Plan, *, bfd: bool) -> Speaker:
    """The client's own speaker: it learns everything and announces itself."""
    (element,) = plan.role("client")
    return Speaker(
        name=element.name,
        asn=element.asn,
        router_id=element.router_id,
        neighbours=tuple(_fabric_neighbour(plan, port, bfd=bfd) for port in element.ports),
        source=tuple(a.split("/")[0] for a in element.loopback),
    )


def plain_node(plan: Plan, config: NodeConfig, *, passwords: Passwords) -> Speaker:
    """A node without flock: BIRD fed by `ip route … proto static`, what flock is measured against."""
    (element,) = (e for e in plan.role("node") if e.name == config.name)
    return Speaker(
        name=element.name,
        asn=config.bgp.asn if config.bgp else element.asn,
        router_id=str(config.router_id or element.router_id),
        neighbours=distinct(_outward(plan, element, peer, passwords) for peer in _peers(config)),
        ospf=tuple(_ospf_links(config, passwords)),
        connected=False,
        aggregates=tuple(str(a) for a in config.aggregates),
        learn=True,
    )


def strays(plan: Plan, configs: Iterable[NodeConfig]) -> tuple[str, ...]:
    """Peers that no router of the plan is, as `node: address`."""
    return tuple(
        f"{config.name}: {peer.address}"
        for config in configs
        for peer in _peers(config)
        if not any(_faces(plan, config.name, peer, router) for router in plan.role("router"))
    )


def _router(
    plan: Plan, element: Element, configs: tuple[NodeConfig, ...], passwords: Passwords, *, bfd: bool
) -> Speaker:
    inward = [
        _inward(plan, element, config, peer, passwords, bfd=bfd)
        for config in configs
        for peer in _peers(config)
        if _faces(plan, config.name, peer, element)
    ]
    uplinks = [_fabric_neighbour(plan, port, bfd=bfd) for port in element.ports if port.towards == CLIENT]
    return Speaker(
        name=element.name,
        asn=element.asn,
        router_id=element.router_id,
        neighbours=distinct((*inward, *uplinks)),
        ospf=tuple(dict.fromkeys(_ospf(plan, element, configs, passwords))),
    )


def _inward(
    plan: Plan, router: Element, config: NodeConfig, peer: Peer, passwords: Passwords, *, bfd: bool
) -> Neighbour:
    """The node as the router sees it."""
    assert config.bgp is not None
    near, far = _cable(plan, config.name, peer, router)
    return Neighbour(
        name=config.name,
        address=str(peer.local_address or _own_address(far, peer)).split("%")[0],
        interface=near.ifname if peer.zone else None,
        asn=config.bgp.asn,
        local_address=_bare(peer),
        default_route=True,
        **_agreed(peer, passwords, bfd=bfd),
    )


def _outward(plan: Plan, node: Element, peer: Peer, passwords: Passwords) -> Neighbour:
    """The router as the node sees it."""
    router = next((r for r in plan.role("router") if _faces(plan, node.name, peer, r)), None)
    port = _cable(plan, node.name, peer, router)[1] if router else node.ports[0]
    return Neighbour(
        name=router.name if router else peer.name,
        address=_bare(peer),
        interface=peer.zone,
        asn=peer.asn,
        local_address=str(peer.local_address or _own_address(port, peer)).split("%")[0],
        **_agreed(peer, passwords, bfd=True),
    )


def _agreed(peer: Peer, passwords: Passwords, *, bfd: bool) -> dict[str, Any]:
    """What both ends of a session have to be told alike."""
    return {
        "families": peer.families,
        "hold_time": peer.hold_time,
        "bfd": peer.bfd if bfd else NO_BFD,
        "multihop": peer.multihop,
        "ttl_security": peer.ttl_security,
        "password": passwords.get(peer.password) if peer.password else None,
    }


def _fabric_neighbour(plan: Plan, port: Port, *, bfd: bool) -> Neighbour:
    """The far end of a cable between router and client."""
    far = next(p for p in plan.ports if p.bridge == port.bridge and p.owner != port.owner)
    owner = next(e for e in plan.elements if e.name == far.owner)
    return Neighbour(
        name=far.owner,
        address=far.addresses[0].split("/")[0],
        asn=owner.asn,
        local_address=port.addresses[0].split("/")[0],
        families=("ipv6", "ipv4"),
        hold_time=FABRIC_HOLD,
        bfd=FABRIC_BFD if bfd else NO_BFD,
    )


def _ospf(plan: Plan, router: Element, configs: tuple[NodeConfig, ...], passwords: Passwords) -> Iterable[OspfLink]:
    """The nodes' OSPF interfaces, as the router's own at the other end of the cable."""
    for config in configs:
        for link in _ospf_links(config, passwords):
            bridges = {p.bridge for p in plan.ports if (p.owner, p.ifname) == (config.name, link.interface)}
            for port in router.ports:
                if port.bridge in bridges and not link.settings.passive:
                    settings = msgspec.structs.replace(link.settings, name=port.ifname)
                    yield msgspec.structs.replace(link, interface=port.ifname, settings=settings)


def _ospf_links(config: NodeConfig, passwords: Passwords) -> Iterable[OspfLink]:
    for area in config.ospf.areas if config.ospf else ():
        for settings in area.interfaces:
            secret = settings.authentication.password if settings.authentication else None
            yield OspfLink(
                interface=settings.name,
                area=str(area.id),
                families=config.ospf.families if config.ospf else (),
                settings=settings,
                password=passwords.get(secret) if secret else None,
            )


def _peers(config: NodeConfig) -> tuple[Peer, ...]:
    return config.bgp.peers if config.bgp else ()


def _bare(peer: Peer) -> str:
    return str(peer.address).split("%")[0]


def _faces(plan: Plan, node: str, peer: Peer, router: Element) -> bool:
    if peer.multihop is not None:
        return _bare(peer) in router.addresses
    return any(far.owner == router.name for _, far in _adjacent(plan, node, peer))


def _cable(plan: Plan, node: str, peer: Peer, router: Element) -> tuple[Port, Port]:
    """The router's and the node's port that the session runs over; for a distant peer, some port of each."""
    for near, far in _adjacent(plan, node, peer):
        if far.owner == router.name:
            return far, near
    return router.ports[0], next(p for p in plan.ports if p.owner == node)


def _adjacent(plan: Plan, node: str, peer: Peer) -> Iterable[tuple[Port, Port]]:
    for port in plan.ports:
        if port.owner == node and peer.zone in (None, port.ifname):
            far = plan.neighbour_port(port, _bare(peer))
            if far is not None:
                yield port, far


def _own_address(port: Port, peer: Peer) -> str:
    """The node's address that the peer sees when none is configured: the one on the cable, of the peer's kind."""
    if peer.address.is_link_local:
        return port.link_local
    version = peer.address.version
    networks = [ip_interface(a) for a in port.addresses if ip_interface(a).version == version]
    return str(next((i.ip for i in networks if peer.address in i.network), networks[0].ip))

"""What is wrong between a node and its routers, family by family.  Pure.

A session that is established says little: a family it was to carry may be missing on the other side, or come without
a single route, and then pods of that family reach nothing beyond their node.
"""

from collections.abc import Collection, Iterator, Mapping
from ipaddress import IPv6Address

import msgspec

from flock.core.birdconf import protocol_name
from flock.core.birdreplies import Session
from flock.core.facts import Address, NodeFacts, Silent
from flock.core.nodeconfig import NodeConfig, Peer

FAMILIES = (("ipv6", "IPv6", "cidr6"), ("ipv4", "IPv4", "cidr4"))


# BIRD says nothing at all of a router with an IPv6 address that nobody has, and of IPv4 what may mean many things.
_UNEXPLAINED = ("", "Socket: No route to host")


def may_be_away(session: Session) -> bool:
    """Is it worth asking the kernel for the router?"""
    return not session.up and session.state != "Idle" and session.last_error in _UNEXPLAINED


def explained(session: Session, peer: Peer | None, facts: NodeFacts, *, unanswered: Collection[Silent] = ()) -> Session:
    """BIRD waits without a word for a router that it takes to be one cable away and that is on none, or not there: say
    so."""
    if peer is None or peer.multihop is not None:
        return session
    if may_be_away(session):
        links = sorted(link for link, who in unanswered if _is(peer, link, who))
        said = f"nobody on {', '.join(links)} answers for {peer.address}: another address, or the router is away"
        return msgspec.structs.replace(session, last_error=said) if links else session
    silent = session.state == "Idle" and not session.last_error and bool(facts.addresses)
    if not silent or peer.zone is not None:
        return session
    if peer.address in facts.own:
        why = f"{peer.address} is this host's own address"
    elif not any(peer.address in own.address.network for own in facts.addresses):
        why = f"{peer.address} is on no network of this host: multihop, or another address"
    else:
        return session
    return msgspec.structs.replace(session, last_error=why)


def _is(peer: Peer, link: str, who: Address) -> bool:
    bare = IPv6Address(int(peer.address)) if isinstance(peer.address, IPv6Address) else peer.address
    return who == bare and peer.zone in (None, link)


def lan_complaints(config: NodeConfig, facts: NodeFacts) -> Iterator[str]:
    """Prefixes for pods that are a network the host itself is on: whoever else is on it looks for pods on the wire.
    One carved out of a wider network may be meant, and be routed."""
    lans = {own.address.network: own.interface for own in facts.addresses if own.interface != "lo"}
    for key in ("cidr6", "cidr4"):
        for number, cidr in enumerate(getattr(config, key)):
            for lan in facts.lans:
                if lan in lans and lan.version == cidr.version and lan.subnet_of(cidr):
                    word = "is" if lan == cidr else "contains"
                    said = f"{cidr} {word} the network of {lans[lan]}; neighbours will not find containers"
                    yield f"spec.{key}[{number}]: {said}"


def fabric_complaints(
    config: NodeConfig, sessions: Mapping[str, Session], *, ways_out: Collection[str] = ()
) -> Iterator[str]:
    """Of BGP; by the names of BIRD's protocols.  A peer that BIRD does not run yet is complained about elsewhere.
    `ways_out`: families of which the host has a default route, by whoever's doing."""
    if config.bgp is None:
        return
    running = [(peer, sessions[name]) for peer in config.bgp.peers if (name := protocol_name(peer.name)) in sessions]
    for peer, session in running:
        if not session.up:
            why = f"{session.state}, {session.last_error}" if session.last_error else session.state
            yield f"the session with {peer.name} is down: {why}"
        for family, name, _ in FAMILIES:
            carried = session.families.get(family)
            if session.up and family in peer.families and (carried is None or not carried.up):
                yield f"the session with {peer.name} carries no {name}: the router does not have that family on it"
    for family, name, key in FAMILIES:
        if not getattr(config, key) or config.ospf is not None:
            continue
        if not any(family in peer.families for peer in config.bgp.peers):
            if config.bgp.peers:
                yield f"no session carries {name}: no router hears of spec.{key} (spec.bgp.peers[].families)"
            continue
        told = [
            (peer.name, carried.imported)
            for peer, session in running
            if session.up and peer.import_ != "none" and (carried := session.families.get(family)) and carried.up
        ]
        if told and family not in ways_out and not any(imported for _, imported in told):
            who = ", ".join(peer for peer, _ in told)
            yield f"no {name} route is taken from {who}: have a default route sent, or say `import: none`"

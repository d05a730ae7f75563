"""What is wrong between a node and its routers, family by family.  Pure.

A session that is established says little: a family it was to carry may be missing on the other side, or come without
a single route, and then pods of that family reach nothing beyond their node.
"""

from collections.abc import Iterator, Mapping

from flock.core.birdconf import protocol_name
from flock.core.birdreplies import Session
from flock.core.nodeconfig import NodeConfig

FAMILIES = (("ipv6", "IPv6", "cidr6"), ("ipv4", "IPv4", "cidr4"))


def fabric_complaints(config: NodeConfig, sessions: Mapping[str, Session]) -> Iterator[str]:
    """Of BGP; by the names of BIRD's protocols.  A peer that BIRD does not run yet is complained about elsewhere."""
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
        if told and not any(imported for _, imported in told):
            who = ", ".join(peer for peer, _ in told)
            yield f"no {name} route is taken from {who}: have a default route sent, or say `import: none`"

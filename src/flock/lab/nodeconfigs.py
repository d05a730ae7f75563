"""NodeConfigs for a lab: made from the plan, or an operator's own, with a plan made from them.

An operator's NodeConfigs carry production addresses.  `plan_for` gives every peer address a router of its own and
every node the address its peers expect, all on one t.LAN, so that the files are tried unchanged.
"""

from collections.abc import Sequence
from ipaddress import IPv4Address, ip_network
from typing import Any

from flock.core.errors import FieldError
from flock.core.facts import Address
from flock.core.nodeconfig import NodeConfig
from flock.core.nodeconfig.parse import API_VERSION
from flock.lab import topology as t
from flock.lab.topology import Element, Plan

Manifest = dict[str, Any]


def generated(plan: Plan, *, bfd: bool, extended: bool = True) -> tuple[Manifest, ...]:
    """One NodeConfig per node: both families over one IPv6 session to each router it shares a cable with, or, without
    `extended` next hops, each over its own."""
    return tuple(_node_config(plan, node, bfd=bfd, extended=extended) for node in plan.role("node"))


def _node_config(plan: Plan, node: Element, *, bfd: bool, extended: bool) -> Manifest:
    over: dict[int, list[str]] = {0: ["ipv6", "ipv4"]} if extended else {0: ["ipv6"], 1: ["ipv4"]}
    peers = [
        {
            "name": f"{router.name}{'-ipv4' if which else ''}",
            "address": far.addresses[which].split("/")[0],
            "asn": router.asn,
            "families": families,
            "holdTime": "9s",
            "keepaliveTime": "3s",
            "connectRetry": "1s",
            **({"bfd": {"enabled": True, "interval": "100ms", "multiplier": 3}} if bfd else {}),
        }
        for port in node.ports
        for router in plan.role("router")
        for far in router.ports
        if far.bridge == port.bridge
        for which, families in over.items()
    ]
    return {
        "apiVersion": API_VERSION,
        "kind": "NodeConfig",
        "metadata": {"name": node.name},
        "spec": {
            "cidr6": list(node.cidr6),
            "cidr4": list(node.cidr4),
            "routerID": node.router_id,
            "bgp": {"asn": node.asn, "peers": peers},
            "anycast": {"allowed": [{"prefixes": list(t.ANYCAST)}]},
            "addresses": {"allowed": [{"prefixes": list(t.ADDRESSES)}]},
        },
    }


def plan_for(configs: Sequence[NodeConfig]) -> Plan:
    """A t.LAN on which all these NodeConfigs find their peers."""
    peers = [peer for config in configs for peer in (config.bgp.peers if config.bgp else ())]
    routers: dict[str, int] = {}  # address -> AS number
    for peer in peers:
        routers.setdefault(str(peer.address).split("%")[0], peer.asn)
    if not 1 <= len(configs) <= t.MOST_NODES:
        raise FieldError("--nodeconfigs", f"{len(configs)} NodeConfigs; a lab has 1 to {t.MOST_NODES} nodes")
    if len(routers) > t.MOST_ROUTERS:
        raise FieldError("--nodeconfigs", f"{len(routers)} different peers; a lab has at most {t.MOST_ROUTERS} routers")
    for peer in peers:
        if peer.zone not in (None, "eth0"):
            raise FieldError("--nodeconfigs", f"peer {peer.address}: the lab's nodes have eth0 and no {peer.zone}")
    taken = {*routers, *(str(p.local_address).split("%")[0] for p in peers if p.local_address)}
    nodes = [_given_node(i, config, taken) for i, config in enumerate(configs, start=1)]
    elements = [_given_router(j, address, asn) for j, (address, asn) in enumerate(routers.items(), start=1)]
    far_ends = tuple(t.uplink_pair(router.name, j)[1] for j, router in enumerate(elements, start=1))
    return Plan((*nodes, *elements, t.client(far_ends)))


def _given_node(i: int, config: NodeConfig, taken: set[str]) -> Element:
    addresses: dict[str, str] = {}  # network -> the node's address in it
    for peer in config.bgp.peers if config.bgp else ():
        if peer.local_address is not None and not peer.local_address.is_link_local:
            addresses[f"{peer.local_address}"] = _with_length(peer.local_address)
        elif not peer.address.is_link_local:
            network = ip_network(_with_length(peer.address), strict=False)
            if str(network) not in addresses:
                free = next(a for a in (network[n] for n in range(100 + i, 256)) if str(a) not in taken)
                taken.add(str(free))
                addresses[str(network)] = _with_length(free)
    own = t.lan_addresses(10 + i)
    held = tuple(addresses.values()) or own["addresses"]
    return Element(
        name=config.name,
        role="node",
        asn=config.bgp.asn if config.bgp else 64600 + i,
        router_id=str(config.router_id or f"198.51.100.{10 + i}"),
        cidr6=tuple(map(str, config.cidr6)),
        cidr4=tuple(map(str, config.cidr4)),
        ports=(t.lan_port(config.name, "eth0", link_local=own["link_local"], addresses=held),),
    )


def _given_router(j: int, address: str, asn: int) -> Element:
    name = f"r{j}"
    link_local = address if address.startswith("fe80:") else f"fe80::{j}"
    addresses = () if address.startswith("fe80:") else (f"{address}/{24 if '.' in address else 64}",)
    ports = (t.lan_port(name, t.LAN, link_local=link_local, addresses=addresses), t.uplink_pair(name, j)[0])
    return Element(name=name, role="router", asn=asn, router_id=f"198.51.100.{j}", ports=ports)


def _with_length(address: Address) -> str:
    """The NodeConfig does not say how long the peer's prefix is; these are what networks use."""
    return f"{address}/{24 if isinstance(address, IPv4Address) else 64}"

"""What the lab looks like now, asked of the parts themselves: the daemons, the switch, the CNI plugin, the pods."""

from collections.abc import Iterable
from ipaddress import ip_address, ip_network

import msgspec

from flock.lab import namespaces, router_bird
from flock.lab.errors import LabError
from flock.lab.fabric import Lab
from flock.lab.nodes import AGENT
from flock.lab.speaker import Routes, Session


class PodStatus(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    node: str
    addresses: tuple[str, ...]
    anycast: tuple[str, ...]
    ready: bool
    terminating: bool


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    asn: int
    agent: bool
    bird: bool
    trouble: str  # why no pod can be attached; empty when one can


class RouterStatus(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    asn: int
    trouble: str  # why the daemon does not answer; empty when it does
    sessions: tuple[Session, ...]
    routes: dict[str, tuple[str, ...]]  # prefix -> names of the elements it leads to


class Status(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    directory: str
    topology: str
    router: str
    nodes: tuple[NodeStatus, ...]
    routers: tuple[RouterStatus, ...]  # the client is the last
    pods: tuple[PodStatus, ...]
    anycast: dict[str, dict[str, tuple[str, ...]]]  # address -> router -> nodes it sends to
    cut: tuple[str, ...]


def observe(lab: Lab) -> Status:
    routers = observe_routers(lab)
    nodes = {e.name for e in lab.plan.role("node")}
    return Status(
        name=lab.name,
        directory=str(lab.home.path),
        topology=lab.record.topology,
        router=lab.record.router,
        nodes=tuple(_node(lab, e.name, e.asn) for e in lab.plan.role("node")),
        routers=routers,
        pods=tuple(
            PodStatus(
                name=pod.key,
                node=pod.node,
                addresses=pod.addresses,
                anycast=pod.anycast,
                ready=pod.ready,
                terminating=pod.deleted_at is not None,
            )
            for pod in lab.pods
        ),
        anycast=_anycast(routers, nodes, [c for e in lab.plan.role("node") for c in (*e.cidr6, *e.cidr4)]),
        cut=namespaces.cut_links(lab.name, lab.plan),
    )


def observe_routers(lab: Lab) -> tuple[RouterStatus, ...]:
    """The routers and, last, the client, asked one after the other."""
    return tuple(_router(lab, e.name, e.asn) for e in (*lab.plan.role("router"), *lab.plan.role("client")))


def _node(lab: Lab, name: str, asn: int) -> NodeStatus:
    node = lab.node(name)
    return NodeStatus(
        name=name,
        asn=asn,
        agent=node.host.running(AGENT),
        bird=node.host.running(router_bird.ROLE),
        trouble=node.trouble(),
    )


def _router(lab: Lab, name: str, asn: int) -> RouterStatus:
    router = lab.router(name)
    sessions: tuple[Session, ...] = ()
    routes: Routes = {}
    trouble = ""
    try:
        sessions, routes = router.sessions(), router.routes()
    except LabError as error:
        trouble = error.msg
    owners = {prefix: tuple(dict.fromkeys(lab.owner(hop) for hop in hops)) for prefix, hops in routes.items()}
    return RouterStatus(name=name, asn=asn, trouble=trouble, sessions=sessions, routes=owners)


def _anycast(
    routers: Iterable[RouterStatus], nodes: set[str], aggregates: list[str]
) -> dict[str, dict[str, tuple[str, ...]]]:
    """Host routes that lead to nodes and are in no node's aggregate."""
    inside = [ip_network(a) for a in aggregates]
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    for router in routers:
        for prefix, owners in router.routes.items():
            address, _, length = prefix.partition("/")
            host = length == ("128" if ":" in address else "32")
            if host and set(owners) <= nodes and not any(ip_address(address) in net for net in inside):
                found.setdefault(address, {})[router.name] = owners
    return dict(sorted(found.items()))

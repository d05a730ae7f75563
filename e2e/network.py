"""The cluster's network: a LAN with nodes, routers and the control plane on it, and a client behind the routers.

It is the lab's flat topology (flock.lab.topology has the addresses), built by the lab, with BIRD on the routers and the
client; the nodes are left as a fresh kernel is, to be made part of the fabric by what runs on them.  The lab knows no
control plane: here it is one more machine on the LAN, so that nodes reach the API server before any route is learned.

BFD is off.  On a machine that runs several clusters at once a daemon may well have to wait for a third of a second, and
what BFD makes of that is not what is tested here.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flock.core.nodeconfig import parse_node_config
from flock.lab import mirror, namespaces
from flock.lab.hosts import Host, end
from flock.lab.nodeconfigs import generated
from flock.lab.router_bird import BirdRouter
from flock.lab.topology import CLIENT, LAN, Element, Plan, Port, plan

CONTROL = "control"
CONTROL_ADDRESSES = ("2001:db8:ffff::99/64", "198.51.100.99/24")
API_ADDRESS = "198.51.100.99"


class Network:
    """Use as a context manager; everything is gone afterwards.  `node_configs` are NodeConfig objects that fit it."""

    def __init__(self, directory: Path, *, name: str, nodes: int, routers: int) -> None:
        self.name = name
        self.plan = plan(nodes=nodes, routers=routers, topology="flat")
        self.node_configs = generated(self.plan, bfd=False)
        self._home = directory
        self._routers: dict[str, BirdRouter] = {}

    def __enter__(self) -> "Network":
        try:
            namespaces.build(self.name, Plan((*self.plan.elements, _CONTROL_ELEMENT)), forwarding_nodes=False)
            self._start_routers(self.node_configs)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        remove(self.name)

    def _start_routers(self, node_configs: Sequence[dict[str, Any]]) -> None:
        configs = [parse_node_config(config) for config in node_configs]
        speakers = [*mirror.routers(self.plan, configs, passwords={}, bfd=False), mirror.client(self.plan, bfd=False)]
        for speaker in speakers:
            router = BirdRouter(self.host(speaker.name), speaker)
            router.start()
            self._routers[speaker.name] = router

    def node(self, name: str) -> Element:
        return next(e for e in self.plan.role("node") if e.name == name)

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(e.name for e in self.plan.role("node"))

    @property
    def client(self) -> Host:
        """Outside the cluster, where users are."""
        return self.host(CLIENT)

    def router(self, name: str) -> BirdRouter:
        """One of r1, r2 ..., or the client."""
        return self._routers[name]

    def host(self, name: str) -> Host:
        return Host(name, netns=namespaces.netns(self.name, name), home=self._home / name)

    def netns(self, name: str) -> Path:
        return namespaces.NETNS_DIR / namespaces.netns(self.name, name)


def remove(name: str) -> None:
    """Whatever there is of the network of that name, and all processes in it."""
    present = namespaces.present(name)
    end([pid for netns in present for pid in namespaces.pids(netns)])
    for netns in present:
        namespaces.delete(netns)


_CONTROL_ELEMENT = Element(
    name=CONTROL,
    role="node",
    asn=0,
    router_id="",
    ports=(
        Port(
            owner=CONTROL,
            towards=LAN,
            ifname="eth0",
            bridge=f"br-{LAN}",
            link_local="fe80::99",
            addresses=CONTROL_ADDRESSES,
        ),
    ),
)

"""A real cluster with pods and nodes for everybody to ask, and random packets between them."""

import contextlib
import itertools
import json
import socket
from random import Random

from evaluator import Subject
from probing import Cell, Seat
from realcluster import RealCluster
from worlds import NAMESPACES, PORTS, PROTOCOLS, labels, named_ports

from harness import eventually, run

PODS = 10


def inhabit(cluster: RealCluster, random: Random) -> list[str]:
    """Pods, some of them with extra addresses, the host outside and the nodes themselves."""
    for name in NAMESPACES:
        cluster.namespace(name)
    for number in range(PODS):
        key = f"{random.choice(NAMESPACES)}/pod{number}"
        at = number % len(cluster.nodes)
        pairs = [
            {4: f"10.0.{at + 1}.{number + 100}", 6: f"2001:db8:{at + 1}::e:{number}"},
            {4: f"10.1.{at + 1}.{number + 1}", 6: f"2001:db8:e{at + 1}::{number + 1}"},
        ]
        cluster.add(key, labels(random), ports=named_ports(random), node=at, addresses=pairs if number % 3 == 0 else ())
    for number, node in enumerate(cluster.nodes):
        before, after = own_addresses(number)
        towards_others = before if node is cluster.nodes[-1] else after
        cluster.prober.add(node.name, Seat(f"/run/netns/{node.netns}", towards_others, PORTS))
    return list(cluster.prober.seats)


def own_addresses(number: int) -> tuple[dict[int, str], dict[int, str]]:
    """A node is the second on the link before it and the first on the one after it."""
    before, after = number, number + 1
    return {4: f"172.31.{before}.2", 6: f"2001:db8:f{before}::2"}, {4: f"172.31.{after}.1", 6: f"2001:db8:f{after}::1"}


def subject(cluster: RealCluster, key: str, *, local: bool) -> Subject:
    obj, seats = cluster.pods[key], cluster.prober.seats
    ports = obj["spec"]["containers"][0]["ports"]
    addresses = tuple(a for name in (key, f"{key}+") if name in seats for a in seats[name].addresses.values())
    given = {entry["ip"] for entry in obj["status"]["podIPs"]}
    return Subject(
        namespace=obj["metadata"]["namespace"],
        name=obj["metadata"]["name"],
        labels=obj["metadata"]["labels"],
        addresses=addresses,
        ports=tuple((p["name"], p["containerPort"], p["protocol"]) for p in ports),
        local=local,
        annotated=tuple((a, "addresses") for a in addresses if a not in given),
    )


_source_ports = itertools.count(10_000)  # below those that the kernel gives out


def audited(cluster: RealCluster) -> int:
    """Connections of the first node that an audited policy would drop, as the kernel counts them."""
    listing = ("nft", "-j", "list", "counters", "table", "inet", "flock")
    listed = json.loads(run("nsenter", f"--net=/run/netns/{cluster.nodes[0].netns}", *listing).stdout)["nftables"]
    return next(c["counter"]["packets"] for c in listed if c.get("counter", {}).get("name") == "audited")


def open_flows(cluster: RealCluster, source: str, destination: str, *, count: int) -> None:
    """To be audited; each from a port that nobody had before, so that it is a connection of its own.  Waits until they
    have arrived."""
    before = audited(cluster)
    with contextlib.ExitStack() as stack:
        with cluster.prober.seats[source].inside():
            flows = [stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in range(count)]
        for flow in flows:
            flow.bind(("", next(_source_ports)))
            flow.sendto(b"x", (cluster.address(destination, 4), PORTS[0]))
    eventually(lambda: audited(cluster) >= before + count, what="all have arrived")


def cell(random: Random, places: list[str]) -> Cell:
    """At least one end is a pod."""
    source, destination = random.choice([p for p in places if "/" in p]), random.choice(places)
    if random.random() < 0.5:
        source, destination = destination, source
    protocol = random.choices((*PROTOCOLS, "ICMP"), (4, 3, 2, 1))[0]
    port = None if protocol == "ICMP" else random.choice(PORTS)
    return Cell(source, destination, random.choice((4, 6)), protocol, port)


def packet(cluster: RealCluster, cell: Cell) -> tuple[str, str, str, int | None]:
    source, destination = (cluster.address(name, cell.family) for name in (cell.source, cell.destination))
    return source, destination, cell.protocol, cell.port

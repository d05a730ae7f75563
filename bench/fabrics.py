"""Who takes part in the measurements of the fabric: flock's nodes, and plain BIRD fed by `ip route` as the floor.

Both are labs of the same plan and the same timers.  The floor has neither an agent nor pods: its nodes hold the
addresses themselves, and whoever wants a route announced says so with `ip route`.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import msgspec

from flock.core.errors import FlockError
from flock.lab.fabric import Lab
from flock.lab.home import Home, write, write_object
from flock.lab.hosts import wait_until
from flock.lab.namespaces import NETNS_DIR, netns
from flock.lab.pods import PodRecord, manifest
from flock.lab.router_bird import birdc
from launching import BenchError
from world import World

FLIPPED, SERVICE = "2001:db8:53::1", "2001:db8:53::53"
NODE, ROUTER = "n1", "r1"
PATIENCE = 30.0  # seconds for a fabric to settle


class Fabric(Protocol):
    label: str
    lab: Lab

    def flip(self, ready: bool) -> None:
        """Let FLIPPED be announced by the first node, or not."""

    def reconfigure(self, number: int) -> str:
        """Change the configuration of the first node; returns the prefix it announces in consequence."""

    def serve(self) -> None:
        """Let every node announce SERVICE and answer there."""


def router_netns(fabric: Fabric) -> Path:
    return NETNS_DIR / netns(fabric.lab.name, ROUTER)


def wait_for_replicas(fabric: Fabric, count: int) -> None:
    routers = [fabric.lab.router(name) for name in (ROUTER, "client")]
    wanted = {ROUTER: count, "client": 1}  # the client knows one router only

    def everywhere() -> bool:
        return all(len(r.routes().get(f"{SERVICE}/128", ())) == wanted[r.speaker.name] for r in routers)

    if not wait_until(everywhere, timeout=PATIENCE, pause=0.1):
        raise BenchError(f"{fabric.label}: {SERVICE} is not announced by {count} nodes after {PATIENCE:.0f} s")


@contextlib.contextmanager
def flock_fabric(world: World, *, nodes: int) -> Iterator["FlockFabric"]:
    with _lab(world, f"flock{nodes}", nodes=nodes, plain=False) as lab:
        yield FlockFabric(lab)


@contextlib.contextmanager
def plain_fabric(world: World, *, nodes: int) -> Iterator["PlainFabric"]:
    with _lab(world, f"plain{nodes}", nodes=nodes, plain=True) as lab:
        fabric = PlainFabric(lab)
        try:
            yield fabric
        finally:
            fabric.close()


@contextlib.contextmanager
def _lab(world: World, label: str, *, nodes: int, plain: bool) -> Iterator[Lab]:
    home, name = Home(world.durable / label), f"bench{os.getpid()}-{label}"
    try:
        lab = Lab.up(name=name, directory=home.path, nodes=nodes, routers=1, plain=plain)
        lab.wait()
        yield lab
    except FlockError as problem:
        raise BenchError(f"{label}: {problem}") from problem
    finally:
        Lab.down(name=name, home=home)


class FlockFabric:
    label = "flock"

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self._flipped: PodRecord | None = None

    def flip(self, ready: bool) -> None:
        if self._flipped is None:
            self._flipped = self._pod("flipped", NODE, FLIPPED)
        pod = msgspec.structs.replace(self._flipped, ready=ready)
        write_object(self.lab.home.manifests, f"pod-{pod.file}", manifest(pod))

    def reconfigure(self, number: int) -> str:
        prefix = _prefix(number)
        name = f"nodeconfig-{NODE}"
        config = msgspec.json.decode((self.lab.home.manifests / f"{name}.json").read_bytes())
        config["spec"]["cidr6"] = [config["spec"]["cidr6"][0], prefix]
        write_object(self.lab.home.manifests, name, config)
        return prefix

    def serve(self) -> None:
        for node in self.lab.nodes():
            self._pod(f"replica-{node.name}", node.name, SERVICE)
            self.lab.pods.serve(f"replica-{node.name}")
            self.lab.pods.set_ready(f"replica-{node.name}", True)

    def _pod(self, name: str, node: str, address: str) -> PodRecord:
        return self.lab.pods.add(name, node=node, annotations={"flock.fritzlab.net/anycast": address})


class PlainFabric:
    label = "BIRD fed by ip route"

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self._node = lab.node(NODE)
        self._conf = self._node.bird_dir / "bird.conf"
        self._written = self._conf.read_text()
        # One process for all routes: starting one for each would be most of what is measured.
        command = ["ip", "-n", self._node.host.netns, "-batch", "-"]
        self._ip = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)

    def flip(self, ready: bool) -> None:
        assert self._ip.stdin is not None
        self._ip.stdin.write(f"route {'add' if ready else 'del'} {FLIPPED}/128 dev lo proto static\n")
        self._ip.stdin.flush()

    def reconfigure(self, number: int) -> str:
        prefix = _prefix(number)
        head = "protocol static static6 {\n  ipv6;\n"
        text = self._written.replace(head, f"{head}  route {prefix} blackhole;\n")
        write(self._conf, text.encode(), mode=0o600)
        birdc(self._node.host, self._node.run_dir / "bird.ctl", "configure")
        return prefix

    def serve(self) -> None:
        for node in self.lab.nodes():
            node.host.run(["ip", "addr", "replace", f"{SERVICE}/128", "dev", "lo", "nodad"])
            node.host.run(["ip", "-6", "route", "replace", f"{SERVICE}/128", "dev", "lo", "proto", "static"])
            node.host.spawn("answer", [sys.executable, "-m", "flock.lab.traffic", "serve", node.name])

    def close(self) -> None:
        assert self._ip.stdin is not None
        self._ip.stdin.close()
        self._ip.wait()


def _prefix(number: int) -> str:
    return f"2001:db8:f{number:03x}::/64"

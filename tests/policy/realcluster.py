"""Nodes with real agents, pods made by our own ADD, objects written as manifests, and a host outside.

    outside ── n1 ── n2 ...      each node a namespace; veth between neighbours, static routes to each other's pods

`settle` returns when everything written before is in force: an ADD takes in pending changes before it decides, and its
transaction carries them.
"""

import contextlib
import json
import re
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from probing import Cell, Prober, Seat

from harness import BIN, Node, cni_outcome, eventually, run

OUTSIDE = {4: "198.51.100.9", 6: "2001:db8:ff::9"}
PORTS = (80, 81, 53)
Object = dict[str, Any]


WEB, NEAR, FAR = "x/web", "x/near", "y/far"  # pods that many tests have


def extra(number: int) -> tuple[str, str]:
    """What pods of a node may ask for beyond its CIDRs.  The first node grants all nodes' to everybody, the others
    know of their own."""
    return f"2001:db8:e{number}::/64", f"10.1.{number}.0/24"


class RealCluster:
    """Use as a context manager; everything it made is gone afterwards."""

    def __init__(
        self, directory: Path, *, families: tuple[int, ...] = (4, 6), nodes: int = 1, ports: Iterable[int] = PORTS
    ) -> None:
        self.families = families
        self.ports = tuple(ports)
        numbers = range(1, nodes + 1)
        self.grants = {n: [p for other in numbers if n in (1, other) for p in extra(other)] for n in numbers}
        self.nodes = [Node(directory / f"n{n}", name=f"n{n}", config=self.config(n)) for n in range(1, nodes + 1)]
        self.prober = Prober()
        self.pods: dict[str, Object] = {}
        self.policies: dict[str, Object] = {}
        self.cluster_policies: dict[str, Object] = {}
        self.node_labels: dict[str, dict[str, str]] = {}
        self.namespaces: dict[str, dict[str, str]] = {}
        self._homes: dict[str, Node] = {}
        self._written: dict[str, str] = {}
        self._settling: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "RealCluster":
        with contextlib.ExitStack() as stack:
            stack.callback(self.prober.close)
            for node in self.nodes:
                stack.enter_context(node)
            stack.callback(self.finish_settling)
            self._wire_up()
            for node in self.nodes:
                node.start()
                node.namespace("settle")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def config(self, number: int) -> Object:
        return {
            "apiVersion": "flock.fritzlab.net/v1alpha1",
            "kind": "NodeConfig",
            "metadata": {"name": f"n{number}"},
            "spec": {
                "cidr6": [f"2001:db8:{number}::/64"],
                "cidr4": [f"10.0.{number}.0/24"],
                "addresses": {"allowed": [{"prefixes": self.grants[number]}]},
                "defaults": {"ipv4": 4 in self.families, "ipv6": 6 in self.families},
            },
        }

    def _wire_up(self) -> None:
        """A node's neighbours are the one before it (or the host outside) and the one after it."""
        outside = self.nodes[0].namespace("outside")
        places = [outside.rpartition("/")[2], *(node.netns for node in self.nodes)]
        for place in places:
            run("ip", "-n", place, "link", "set", "lo", "up")
        for left in range(len(places) - 1):
            right = left + 1
            peer = ("peer", f"to{left}", "netns", places[right])
            run("ip", "-n", places[left], "link", "add", f"to{right}", "type", "veth", *peer)
            for place, end, last in ((places[left], f"to{right}", 1), (places[right], f"to{left}", 2)):
                for address in (f"2001:db8:f{left}::{last}/64", f"172.31.{left}.{last}/24"):
                    run("ip", "-n", place, "addr", "add", address, "dev", end, *(["nodad"] if ":" in address else []))
                run("ip", "-n", place, "link", "set", end, "up")
        for length, family in ((32, 4), (128, 6)):
            run("ip", "-n", places[0], "addr", "add", f"{OUTSIDE[family]}/{length}", "dev", "lo")
        for at, place in enumerate(places):
            for to in range(len(places)):
                if to != at:
                    self._route(place, at, to)
        self.prober.add("external", Seat(outside, {f: OUTSIDE[f] for f in self.families}, self.ports))

    @staticmethod
    def _route(place: str, at: int, to: int) -> None:
        link, last = (at, 2) if to > at else (at - 1, 1)
        via = {4: f"172.31.{link}.{last}", 6: f"2001:db8:f{link}::{last}"}
        pods = [f"2001:db8:{to}::/64", f"10.0.{to}.0/24", *extra(to)]
        for target in pods if to else OUTSIDE.values():
            run("ip", "-n", place, "route", "add", target, "via", via[6 if ":" in target else 4])

    # --- objects ---

    def namespace(self, name: str, **labels: str) -> None:
        self.namespaces[name] = {**self.namespaces.get(name, {}), **labels}
        metadata = {"name": name, "labels": self.namespaces[name]}
        self._write(f"namespace-{name}", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})

    def unlabel_namespaces(self) -> None:
        for name in list(self.namespaces):
            self.namespaces[name] = {}
            self.namespace(name)

    def add(
        self,
        key: str,
        labels: dict[str, str],
        *,
        ports: Iterable[tuple[str, int, str]] = (),
        node: int = 0,
        addresses: Sequence[dict[int, str]] = (),
    ) -> None:
        """Write the object, make a namespace, ADD.  A second pair of `addresses` is a seat of its own, KEY+."""
        namespace, name = key.split("/")
        listed = [{"name": n, "containerPort": number, "protocol": protocol} for n, number, protocol in ports]
        texts = [address for pair in addresses for address in pair.values()]
        asked = {"flock.fritzlab.net/addresses": ",".join(texts)} if texts else {}
        self.pods[key] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "labels": labels, "annotations": asked},
            "spec": {"containers": [{"name": "c", "image": "i", "ports": listed}]},
        }
        self.write_pod(key)
        home = self._homes[key] = self.nodes[node]
        container = key.replace("/", "-")
        result = home.pod(container, args=f"K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name}")
        first: dict[int, str] = {}
        for text in (ip["address"].partition("/")[0] for ip in result["ips"]):
            first.setdefault(6 if ":" in text else 4, text)
        self.pods[key]["status"] = {
            "phase": "Running",
            "podIPs": [{"ip": address} for address in first.values()],
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        self.write_pod(key)
        self.prober.add(key, Seat(home.path(container), first, self.ports))
        for pair in addresses[1:]:
            self.prober.add(f"{key}+", Seat(home.path(container), pair, ()))
        wanted = set(texts)
        eventually(lambda: wanted <= {route["dst"] for route in home.routes()}, what="routed, being Ready")

    def remove(self, *keys: str) -> None:
        """DEL all of them at once, and remove the namespaces and the objects."""
        under_way = []
        for key in keys:
            for seat in {key, f"{key}+"} & self.prober.seats.keys():
                self.prober.remove(seat)
            container = key.replace("/", "-")
            under_way.append((self._homes[key], container, self._homes.pop(key).cni_start("DEL", container)))
            del self.pods[key]
        for home, container, process in under_way:
            finish(process)
            home.remove_namespace(container)
            self._remove(f"pod-{container}")

    def home(self, key: str) -> Node:
        return self._homes[key]

    def label_pod(self, key: str, labels: dict[str, str]) -> None:
        self.pods[key]["metadata"]["labels"] = labels
        self.write_pod(key)

    def write_pod(self, key: str) -> None:
        self._write(f"pod-{key.replace('/', '-')}", self.pods[key])

    def set_policies(self, policies: Iterable[Object]) -> None:
        """These, and no others."""
        wanted = {f"policy-{p['metadata']['namespace']}-{p['metadata']['name']}": p for p in policies}
        for name in self.policies.keys() - wanted.keys():
            self._remove(name)
        for name, policy in wanted.items():
            self._write(name, policy)
        self.policies = wanted

    def set_cluster_policies(self, policies: Iterable[Object]) -> None:
        """These, and no others."""
        wanted = {f"cluster-policy-{p['metadata']['name']}": p for p in policies}
        for name in self.cluster_policies.keys() - wanted.keys():
            self._remove(name)
        for name, policy in wanted.items():
            self._write(name, policy)
        self.cluster_policies = wanted

    def set_node(self, name: str, labels: dict[str, str], addresses: Iterable[str]) -> None:
        """The Node object, for all to read."""
        listed = [{"type": "InternalIP", "address": address} for address in addresses]
        metadata = {"name": name, "labels": labels}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"addresses": listed}}
        self._write(f"node-{name}", node)

    def _write(self, name: str, obj: Object) -> None:
        text = json.dumps(obj)
        if self._written.get(name) != text:
            self._written[name] = text
            for node in self.nodes:
                node.write(name, obj)

    def _remove(self, name: str) -> None:
        del self._written[name]
        for node in self.nodes:
            (node.manifests / f"{name}.json").unlink()

    def settle(self) -> None:
        """The pod that was added for it goes again meanwhile."""
        self.finish_settling()
        args = "K8S_POD_NAMESPACE=settling;K8S_POD_NAME=settle"
        for adding in [node.cni_start("ADD", "settle", args=args) for node in self.nodes]:
            finish(adding)
        for node in self.nodes:
            eventually(lambda node=node: not node.ask("status")["policiesWaiting"], what="all changes are in force")
        self._settling = [node.cni_start("DEL", "settle") for node in self.nodes]

    def finish_settling(self) -> None:
        while self._settling:
            finish(self._settling.pop())

    # --- asking ---

    def address(self, name: str, family: int) -> str:
        return self.prober.seats[name].addresses[family]

    def assert_reached(self, cells: list[Cell], *, expected: Iterable[Cell], what: object = "") -> None:
        wanted = set(expected)
        reached = self.prober.reached(cells, expected=wanted)
        assert not wanted - reached, f"kept out, though allowed: {sorted(wanted - reached)} {what}"
        assert not reached - wanted, f"let through, though denied: {sorted(reached - wanted)} {what}"

    def filled_in(self, obj: Object) -> Object:
        """`$HOST(pod)` and `$BIG(pod)` are the pod's own address and the /4 around it: a peer of each family."""
        copy: Object = json.loads(json.dumps(obj))
        for rule in (*copy["spec"].get("ingress", ()), *copy["spec"].get("egress", ())):
            for field in {"from", "to"} & rule.keys():
                rule[field] = [json.loads(text) for peer in rule[field] for text in self._per_family(json.dumps(peer))]
        return copy

    def _per_family(self, text: str) -> list[str]:
        if "$" not in text:
            return [text]
        found = []
        for family in self.families:

            def block(match: re.Match[str], family: int = family) -> str:
                length = "4" if match[1] == "BIG" else "32" if family == 4 else "128"
                return f"{self.address(match[2], family)}/{length}"

            found.append(re.sub(r"\$(HOST|BIG)\(([^)]*)\)", block, text))
        return found


def finish(process: "subprocess.Popen[bytes]") -> None:
    out, err = process.communicate(timeout=60)
    cni_outcome(process.returncode, out, err)


def flockctl(node: Node, *command: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
    return run(BIN / "flockctl", "--run-dir", node.run_dir, *command, check=check)


def policy(name: str, spec: Object, *, namespace: str = "x", **annotations: str) -> Object:
    metadata = {"name": name, "namespace": namespace, "annotations": annotations}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata, "spec": spec}

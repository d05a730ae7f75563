"""Who is measured: flock, the reference plugins, and the floor.

A contender lives on a node (network namespace) of its own, so that neither the number of links nor a daemon that
watches them is shared, and turns a pod into the command a runtime would execute for it.
"""

import contextlib
import ipaddress
import json
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flock.edge.rpc_client import AgentError, ask
from launching import HERE, BenchError, Command, Run, build
from world import Pod, World

REFERENCE_DIR = Path("/usr/lib/cni")
FLOCK = HERE.parent / "build" / "flock"
START_LIMIT = 30.0  # seconds until an agent must serve ADD
SETTLE = 0.5  # seconds for an agent to take in new manifests, so that no ADD is charged for them
ENTRY_BYTES = 520  # of the state file, per pod, where flock's own file cannot be asked
POOL4, POOL6 = "10.64.0.0/16", "2001:db8:64::/64"


class Contender(ABC):
    """One way of giving a pod its network.  `label` names it in tables."""

    label: str

    def __init__(self, world: World, *, node: str) -> None:
        self.world = world
        self.node = world.node(node)

    def expect(self, pods: Sequence[Pod]) -> None:  # noqa: B027 - most need nothing
        """These pods are about to be added: what a cluster would know of them by then, make known."""

    def forget(self, pods: Sequence[Pod]) -> None:  # noqa: B027 - likewise
        """These pods are gone for good."""

    @abstractmethod
    def add(self, pod: Pod) -> Command:
        """What a runtime would execute."""

    @abstractmethod
    def delete(self, pod: Pod, added: Run) -> Command:
        """`added` is the run of the ADD, whose result a runtime hands over again."""


def cni_environment(verb: str, pod: Pod, path: Path) -> dict[str, str]:
    """What containerd sets for a plugin, in its order."""
    return {
        "CNI_COMMAND": verb,
        "CNI_CONTAINERID": pod.container_id,
        "CNI_NETNS": str(pod.netns),
        "CNI_ARGS": f"IgnoreUnknown=1;K8S_POD_NAMESPACE={pod.namespace};K8S_POD_NAME={pod.name};"
        f"K8S_POD_INFRA_CONTAINER_ID={pod.container_id};K8S_POD_UID={pod.uid}",
        "CNI_IFNAME": "eth0",
        "CNI_PATH": str(path),
        "PATH": os.defpath,
    }


class Reference(Contender):
    """`ptp` with `host-local` from the reference plugins; IPv4 only, or dual-stack, which waits for DAD."""

    def __init__(self, world: World, *, node: str, dual: bool) -> None:
        self.label = "reference dual-stack" if dual else "reference IPv4"
        if not (REFERENCE_DIR / "ptp").exists():
            raise BenchError(f"{self.label}: no {REFERENCE_DIR / 'ptp'}; install containernetworking-plugins")
        super().__init__(world, node=node)
        families = {POOL4: "0.0.0.0/0", POOL6: "::/0"} if dual else {POOL4: "0.0.0.0/0"}
        self._config: dict[str, Any] = {
            "cniVersion": "1.0.0",
            "name": node,
            "type": "ptp",
            "mtu": 1500,
            "ipam": {
                "type": "host-local",
                "dataDir": str(world.durable / node),
                "ranges": [[{"subnet": subnet}] for subnet in families],
                "routes": [{"dst": destination} for destination in families.values()],
            },
        }

    def add(self, pod: Pod) -> Command:
        env = cni_environment("ADD", pod, REFERENCE_DIR)
        return Command(self.node, [REFERENCE_DIR / "ptp"], env, self._config)

    def delete(self, pod: Pod, added: Run) -> Command:
        env = cni_environment("DEL", pod, REFERENCE_DIR)
        return Command(self.node, [REFERENCE_DIR / "ptp"], env, {**self._config, "prevResult": added.result})


def reference_conflist(ours: Mapping[str, Any]) -> dict[str, Any]:
    """The same, IPv4 only, in the place of our plugin in our list; what is chained after it stays."""
    ipam = {"type": "host-local", "ranges": [[{"subnet": POOL4}]], "routes": [{"dst": "0.0.0.0/0"}]}
    first = {"type": "ptp", "mtu": 1500, "ipam": ipam}
    return {"cniVersion": ours["cniVersion"], "name": "reference", "plugins": [first, *ours["plugins"][1:]]}


class Flock(Contender):
    """The CNI executable and an agent in manifest mode, with a manifest for every pod."""

    patience = START_LIMIT

    def __init__(
        self,
        world: World,
        *,
        node: str = "flock",
        label: str = "flock",
        objects: Sequence[Mapping[str, Any]] = (),
        source: Sequence[str | Path] = (),
    ) -> None:
        """`objects` are known to the agent from the start.  `source`: flags that name another one than manifests."""
        self.label = label
        agent = Path(sys.executable).parent / "flock-agent"
        for needed in (FLOCK, agent):
            if not needed.exists():
                raise BenchError(f"flock: {needed.relative_to(HERE.parent)} is missing; run `make build`")
        super().__init__(world, node=node)
        self._home = world.durable / node
        self._manifests = self._home / "manifests"
        run_dir = world.scratch / node  # in memory, as /run is
        self._listed: dict[Pod, Path] = {}  # which file lists which pod
        for directory in (self._manifests, self._home / "state", self._home / "bird", run_dir):
            directory.mkdir(parents=True)
        self.tell("objects", [node_config(node), *objects])
        self._config = {
            "cniVersion": "1.0.0",
            "name": "flock",
            "type": "flock",
            "capabilities": {"io.kubernetes.cri.pod-annotations": True},
            "socket": str(run_dir / "flock.sock"),
            "wait": 10,
        }
        self._log = world.scratch / f"{node}.log"
        home = self._home
        self._command: list[str | Path] = [sys.executable, agent, "--node", node]
        self._command += source or ["--manifests", self._manifests]
        self._command += ["--state-dir", home / "state", "--run-dir", run_dir, "--bird-dir", home / "bird"]
        self._command += ["--http", "127.0.0.1:9465"]
        self.start()
        self.wait_until_ready()

    def start(self) -> None:
        self._agent = self.world.start(self._command, node=self.node, log=self._log)

    def kill(self) -> None:
        self._agent.kill()
        self._agent.wait()

    @property
    def pid(self) -> int:
        return self._agent.pid

    def tell(self, name: str, objects: Sequence[Mapping[str, Any]]) -> None:
        """What the cluster says under this name from now on: one manifest, replaced as a whole."""
        partial = self._home / f"{name}.json"
        partial.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
        partial.rename(self._manifests / f"{name}.json")

    def state_bytes(self) -> int:
        file = self._home / "state" / "allocations.json"
        return file.stat().st_size if file.exists() else 0

    def expect(self, pods: Sequence[Pod]) -> None:
        """One List of Pod manifests per call, as the API would have told the agent of them."""
        name = f"pods-{pods[0].serial}"
        self.tell(name, [_pod_manifest(pod) for pod in pods])
        self._listed.update(dict.fromkeys(pods, self._manifests / f"{name}.json"))
        time.sleep(SETTLE)

    def forget(self, pods: Sequence[Pod]) -> None:
        for manifest in {self._listed[pod] for pod in pods}:
            manifest.unlink(missing_ok=True)

    def add(self, pod: Pod) -> Command:
        return Command(self.node, [FLOCK], cni_environment("ADD", pod, FLOCK.parent), self._with_annotations({}))

    def delete(self, pod: Pod, added: Run) -> Command:
        env = cni_environment("DEL", pod, FLOCK.parent)
        return Command(self.node, [FLOCK], env, self._with_annotations({"prevResult": added.result}))

    def _with_annotations(self, more: Mapping[str, Any]) -> dict[str, Any]:
        annotations = {"io.kubernetes.cri.pod-annotations": {"kubernetes.io/config.source": "api"}}
        return {**self._config, "runtimeConfig": annotations, **more}

    def ask(self, op: str, *parameters: str) -> Any:
        return ask(Path(self._config["socket"]).parent, op, *parameters)

    def wait_until_ready(self) -> None:
        """Until the agent serves ADD."""
        deadline = time.monotonic() + self.patience
        while time.monotonic() < deadline and self._agent.poll() is None:
            with contextlib.suppress(AgentError):
                if self.ask("status")["ready"]:
                    return
            time.sleep(0.05)
        state = "ended" if self._agent.poll() is not None else f"is not ready after {self.patience:.0f} s"
        log = self._log.read_text(errors="replace").splitlines()
        raise BenchError("\n    ".join([f"flock: the agent {state}; its last words:", *log[-25:]]))


def node_config(node: str) -> dict[str, Any]:
    return {
        "apiVersion": "flock.fritzlab.net/v1alpha1",
        "kind": "NodeConfig",
        "metadata": {"name": node},
        "spec": {"cidr6": [POOL6], "cidr4": [POOL4], "mtu": 1500},
    }


def _pod_manifest(pod: Pod) -> dict[str, Any]:
    owner = {"kind": "ReplicaSet", "name": "web-5d78c9869d", "uid": pod.uid, "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod.name,
            "namespace": pod.namespace,
            "uid": pod.uid,
            "labels": {"app": "web", "pod-template-hash": "5d78c9869d", "pod": pod.name},
            "annotations": {"kubernetes.io/config.source": "api"},
            "ownerReferences": [owner],
        },
        "spec": {"containers": [{"name": "web", "image": "registry.example/web:1.2.3"}]},
    }


class Floor(Contender):
    """The C program with flock's kernel work and `flushes` durable writes of a state file as large as flock's."""

    def __init__(self, world: World, *, node: str, flushes: int) -> None:
        self.label = f"floor, {flushes} flush" + ("es" if flushes != 1 else "")
        super().__init__(world, node=node)
        self._program = build("floor")
        self._flushes = str(flushes)
        self._directory = world.durable / node
        self._directory.mkdir()
        self._held = 0
        self._base, self._entry = 0, ENTRY_BYTES

    def resemble(self, *, base: int, entry: int) -> None:
        """From now on write as much as a flock whose file has `base` bytes and grows by `entry` with each pod."""
        self._base, self._entry = base, entry

    def add(self, pod: Pod) -> Command:
        ip6 = ipaddress.IPv6Network(POOL6)[pod.serial + 1]
        ip4 = ipaddress.IPv4Network(POOL4)[pod.serial + 1]
        macs = [f"02:00:{side}:{pod.serial >> 16 & 255:02x}:{pod.serial >> 8 & 255:02x}:{pod.serial & 255:02x}"
                for side in ("00", "01")]  # fmt: skip
        self._held += 1
        argv = [self._program, "add", pod.netns, _link(pod), *macs, str(ip6), str(ip4), *self._state()]
        return Command(self.node, argv)

    def delete(self, pod: Pod, added: Run) -> Command:
        self._held -= 1
        return Command(self.node, [self._program, "del", _link(pod), *self._state()])

    def _state(self) -> list[str | Path]:
        size = self._base + self._held * self._entry
        return [self._directory / "allocations.json", str(size), self._flushes]


def _link(pod: Pod) -> str:
    return f"flock{pod.container_id[:8]}"

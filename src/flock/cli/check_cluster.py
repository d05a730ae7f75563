"""`flockctl check cluster`: the ground is a cluster, reached by kubectl alone.

Each check has a namespace of its own, which goes in the end with all that is in it.  It says who runs the check: one
whose runner is gone is removed by the next, whatever killed it.  Pods end by themselves after a while, too.
"""

import os
import random
import secrets
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from flock.core import checkpods
from flock.core.annotations import CHECK
from flock.core.checkup import (
    ASKED,
    ASKING,
    NAMESPACE,
    Asker,
    Look,
    Place,
    Probe,
    Question,
    Reply,
    Row,
    by_family,
    node_rows,
    skipped,
)
from flock.core.errors import FlockError
from flock.core.spareaddress import spare_addresses
from flock.edge.boot import boot_id
from flock.edge.examining import REPLICA
from flock.edge.kubectl import Kubectl, KubectlRefused, in_agent

START_PATIENCE = 25.0  # seconds until pods run; a kubelet takes two or three
LOOK_AGAIN = 0.7
EXEC_PATIENCE = 30.0  # seconds for all questions of one asker
AT_ONCE = 8  # kubectls
FORGOTTEN = 180.0  # seconds after which the check of another machine is over, whatever became of it
HOST = "h"  # the pod with a host port
HOST_PORTS = range(61500, 62500)  # beyond what NodePorts and connections use
ASK = ("python3", "-m", "flock.edge.probe", "ask")
LOOK = ("python3", "-m", "flock.edge.nodelook")


class ClusterGround:
    """FlockError if the cluster cannot be reached, or flock runs on none of the nodes."""

    def __init__(self, kubectl: Kubectl, *, nodes: Sequence[str], agents: Mapping[str, dict[str, Any]]) -> None:
        self.places: Sequence[Place] = ()
        self.anycast: Mapping[str, str] | str = "it takes two nodes with pods"
        self._kubectl = kubectl
        self._agents = {node: agents[node] for node in nodes}
        self._namespace = f"{NAMESPACE}-{secrets.token_hex(3)}"
        self._looks: dict[str, Look] = {}
        self._addresses = _node_addresses(kubectl)
        self._host_port = 0
        self._made = False

    def prepare(self) -> list[Row]:
        self._remove_leftovers()
        with ThreadPoolExecutor(AT_ONCE) as threads:
            self._looks = dict(zip(self._agents, threads.map(self._look, self._agents), strict=True))
        usable = list(self._agents)  # by the kubelet's word, not by ours: an agent that is away may not be asked for
        if any("portmap" in self._looks[node].chained for node in usable[:1]):
            self._host_port = random.choice(HOST_PORTS)
        self._choose_anycast(usable[:2])
        started = self._start(usable)
        self.places = [place for place in started.values() if isinstance(place, Place)]
        rows = []
        for node, look in self._looks.items():
            outcome = started[node]
            attach = outcome if isinstance(outcome, str) else ""
            rows += node_rows(node, look, attach=attach, command=partial(self._flockctl, node))
        return rows

    def more(self) -> tuple[list[Question], list[Row]]:
        if not self.places:
            return [], [skipped(check, "no pod runs") for check in ("pod to Service", "names", "host ports")]
        found = [*self._service(), *self._names(), *self._host_ports()]
        return [q for q in found if isinstance(q, Question)], [row for row in found if isinstance(row, Row)]

    def withdraw(self, node: str) -> None:
        self._kubectl.run("delete", "pod", f"{REPLICA}-{node}", f"--namespace={self._namespace}", "--wait=false")

    def ask(self, asker: Asker, probes: Sequence[Probe]) -> Sequence[Reply]:
        if asker.pod:
            where = ["exec", "--stdin", f"--namespace={self._namespace}", f"{asker.pod}-{asker.node}", "--", *ASK]
        else:
            where = in_agent(self._agents[asker.node], *ASK, stdin=True)
        said = self._kubectl.run(*where, stdin=msgspec.json.encode(probes), patience=EXEC_PATIENCE)
        return msgspec.json.decode(said, type=list[Reply])

    def owner(self, address: str) -> str:
        for place in self.places:
            if any(address in pod.values() for pod in place.pods.values()):
                return f"a pod of {place.node}"
        peers = {s["address"]: s["peer"] for look in self._looks.values() for s in look.status.get("sessions", ())}
        return self._addresses.get(address) or peers.get(address) or address

    def look(self, node: str, command: Sequence[str]) -> str:
        if command[0] == "flockctl":
            return self._flockctl(node, *command[1:])
        return " ".join(command) if command[0] == "kubectl" else f"{' '.join(command)}   (on {node})"

    def stop(self) -> None:
        self._kubectl.stop()

    def clean(self) -> None:
        """It is enough that the API server knows: the rest is done by the cluster, in its own time."""
        if self._made:
            try:
                _delete(self._kubectl.anew(), self._namespace)
            except KubectlRefused as error:
                left = f"namespace {self._namespace} is left: {error.msg}; the next check removes it"
                print(f"flockctl: {left}", file=sys.stderr)

    # --- nodes --------------------------------------------------------------------------------------------------

    def _look(self, node: str) -> Look:
        try:
            said = self._kubectl.run(*in_agent(self._agents[node], *LOOK), patience=EXEC_PATIENCE)
            return msgspec.json.decode(said, type=Look)
        except (KubectlRefused, msgspec.MsgspecError) as error:
            unknown = "cannot tell: the agent's pod cannot be asked"
            return Look(away=str(getattr(error, "msg", error)), sessions=unknown, rules=unknown)

    def _flockctl(self, node: str, *words: str) -> str:
        return " ".join([*self._kubectl.words, *in_agent(self._agents[node], "flockctl", *words)])

    # --- objects ------------------------------------------------------------------------------------------------

    def _choose_anycast(self, nodes: Sequence[str]) -> None:
        if len(nodes) < 2:
            return
        labels = {CHECK: "", "kubernetes.io/metadata.name": self._namespace}
        specs = [self._looks[node].spec for node in nodes]
        try:
            taken = self._taken()
        except KubectlRefused as error:
            self.anycast = f"cannot tell which addresses are free: {error.msg}"
            return
        found = spare_addresses(specs, labels=labels, taken=taken, draw=random.randrange)
        self.anycast = found or (
            f"spec.anycast.allowed grants a namespace with the label {CHECK} nothing on {' and '.join(nodes)}"
        )

    def _taken(self) -> set[str]:
        """Addresses that any pod of the cluster carries."""
        path = r'{range .items[*]}{.metadata.annotations.flock\.fritzlab\.net/anycast}{","}{end}'
        said = self._kubectl.run("get", "pods", "--all-namespaces", f"--output=jsonpath={path}").decode()
        return {address.strip() for address in said.split(",")}

    def _start(self, nodes: Sequence[str]) -> dict[str, Place | str]:
        """Places of nodes whose pods run, else why they do not."""
        objects = checkpods.frame(self._namespace, owner=_whoami(), host_ports=bool(self._host_port))
        wanted: dict[str, tuple[str, ...]] = dict.fromkeys(nodes, (ASKING, ASKED))
        if not isinstance(self.anycast, str):
            wanted |= dict.fromkeys(nodes[:2], (ASKING, ASKED, REPLICA))
        pods = [self._pod(name, node) for node, names in wanted.items() for name in names]
        pods += [self._pod(HOST, nodes[0], host_port=self._host_port)] if self._host_port else []
        self._made = True
        self._create(objects)
        self._create(pods, tries=5)  # a moment until the account is known everywhere
        found: dict[str, dict[str, Any]] = {}
        deadline = time.monotonic() + START_PATIENCE
        while time.monotonic() < deadline:
            listed = self._kubectl.get("pods", f"--namespace={self._namespace}")
            found = {pod["metadata"]["name"]: pod for pod in listed}
            if not any(checkpods.trouble(pod) for pod in found.values()):
                break
            time.sleep(LOOK_AGAIN)
        return {node: self._place(node, names, found) for node, names in wanted.items()}

    def _pod(self, name: str, node: str, *, host_port: int = 0) -> dict[str, Any]:
        image = next(c["image"] for c in self._agents[node]["spec"]["containers"] if c["name"] == "agent")
        carried = "" if isinstance(self.anycast, str) or name != REPLICA else ",".join(self.anycast.values())
        return checkpods.pod(
            name, namespace=self._namespace, node=node, image=image, anycast=carried, host_port=host_port
        )

    def _create(self, objects: Sequence[dict[str, Any]], *, tries: int = 1) -> None:
        content = msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        for left in reversed(range(tries)):
            try:
                self._kubectl.run("apply", "--filename=-", stdin=content)
                return
            except KubectlRefused:
                if not left:
                    raise
                time.sleep(LOOK_AGAIN)

    def _place(self, node: str, names: Sequence[str], found: Mapping[str, dict[str, Any]]) -> Place | str:
        pods: dict[str, Mapping[str, str]] = {}
        for name in names:
            pod = found.get(f"{name}-{node}", {})
            if why := checkpods.trouble(pod):
                return f"pod {name}-{node} is {why}{self._last_event(f'{name}-{node}')}"
            pods[name] = by_family(each["ip"] for each in pod["status"]["podIPs"])
        return Place(node, pods)

    def _last_event(self, pod: str) -> str:
        try:
            selector = f"--field-selector=involvedObject.name={pod},type=Warning"
            events = self._kubectl.get("events", f"--namespace={self._namespace}", selector)
        except KubectlRefused:
            return ""
        return f": {events[-1].get('message', '')[:300]}" if events else ""

    # --- what only a cluster has --------------------------------------------------------------------------------

    def _service(self) -> Sequence[Question | Row]:
        first = self.places[0].node
        if not self._looks[first].proxied:
            return [skipped("pod to Service", f"no kube-proxy on {first}", source=first)]
        spec = self._kubectl.get("service", checkpods.SERVICE, f"--namespace={self._namespace}")["spec"]
        addresses = by_family(spec.get("clusterIPs") or [spec["clusterIP"]])
        look = ("kubectl", "--namespace=kube-system", "logs", "--selector=k8s-app=kube-proxy", "--tail=20")
        return [
            Question(
                check="pod to Service",
                asker=Asker(first, ASKING),
                target=address,
                family=family,
                probe=Probe(address=address, flows=4),
                look=look,
            )
            for family, address in addresses.items()
            if self.places[0].address(ASKING, family)
        ]

    def _names(self) -> Sequence[Question | Row]:
        selector = "--selector=k8s-app=kube-dns"
        if not self._kubectl.get("services", "--namespace=kube-system", selector):
            return [skipped("names", "no Service with the label k8s-app=kube-dns in kube-system")]
        name = "kubernetes.default.svc"
        look = ("kubectl", "--namespace=kube-system", "get", "pods", selector, "-o", "wide")
        asker = Asker(self.places[0].node, ASKING)
        return [
            Question(
                check="names", asker=asker, target=name, family="", probe=Probe(address=name, kind="name"), look=look
            )
        ]

    def _host_ports(self) -> Sequence[Question | Row]:
        node = next(iter(self._agents))
        if not self._host_port:
            return [skipped("host ports", f"no portmap is chained on {node}", source=node)]
        asker = self.places[-1]
        addresses = by_family(address for address, name in self._addresses.items() if name == node)
        return [
            Question(
                check="host ports",
                asker=Asker(asker.node, ASKING),
                target=f"{node}:{self._host_port}",
                family=family,
                probe=Probe(address=address, port=self._host_port),
                by=f"{HOST}-{node}",
            )
            for family, address in addresses.items()
            if asker.address(ASKING, family)
        ]

    # --- what is left of others ---------------------------------------------------------------------------------

    def _remove_leftovers(self) -> None:
        for namespace in self._kubectl.get("namespaces", f"--selector={CHECK}"):
            metadata = namespace["metadata"]
            owner = metadata.get("annotations", {}).get(CHECK)
            # somebody may have given the label to a namespace of their own, for the grants that go with it
            ours = metadata["name"].startswith(f"{NAMESPACE}-") and owner is not None
            if ours and "deletionTimestamp" not in metadata and not _is_alive(owner, now=time.time()):
                _delete(self._kubectl, metadata["name"])


def cluster_ground(*, kubeconfig: Path | None, context: str, chosen: Any) -> ClusterGround:
    """`chosen` picks among the nodes that have an agent."""
    kubectl = Kubectl(kubeconfig=kubeconfig, context=context)
    agents = kubectl.agents()
    nodes = chosen(sorted(agents))
    if unknown := [node for node in nodes if node not in agents]:
        raise FlockError(f"no agent of flock runs on {', '.join(unknown)}")
    if not nodes:
        raise FlockError("no agent of flock runs in this cluster")
    return ClusterGround(kubectl, nodes=nodes, agents=agents)


def _delete(kubectl: Kubectl, namespace: str) -> None:
    kubectl.run("delete", "namespace", namespace, "--wait=false", "--ignore-not-found")


def _node_addresses(kubectl: Kubectl) -> dict[str, str]:
    return {
        each["address"]: node["metadata"]["name"]
        for node in kubectl.get("nodes")
        for each in node["status"].get("addresses", ())
        if each["type"] == "InternalIP"
    }


def _whoami() -> str:
    """This process, as nobody else is called: machine since boot, pid, its start; and when."""
    return f"{boot_id()} {os.getpid()} {_started(os.getpid())} {int(time.time())}"


def _is_alive(owner: str, *, now: float) -> bool:
    """One of another machine is believed for a while."""
    try:
        boot, pid, started, at = owner.split(" ")
        if boot == boot_id():
            return _started(int(pid)) == started
        return now - float(at) < FORGOTTEN
    except ValueError:
        return False


def _started(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""

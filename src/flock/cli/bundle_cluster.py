"""What a cluster tells for a bundle by way of kubectl: commands that let its agents pack, their logs, and objects."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from flock.cli.nodeparts import encoded, objects
from flock.core.errors import FlockError
from flock.core.redacting import Redactor
from flock.edge.kubectl import Kubectl, KubectlRefused, in_agent

AT_ONCE = 8
LINES = 4000  # of each container's log
BIRDS = "app.kubernetes.io/name=flock,app.kubernetes.io/component=bird"
KINDS = (
    "nodeconfigs.flock.fritzlab.net",
    "nodeconfigtemplates.flock.fritzlab.net",
    "networkpolicies.networking.k8s.io",
    "clusternetworkpolicies.policy.networking.k8s.io",
    "namespaces",
    "nodes",
    "services",
)


class Evidence:
    """Of these nodes, or of all that have an agent.  FlockError if one has none."""

    def __init__(self, *, kubeconfig: Path | None, context: str, nodes: Sequence[str]) -> None:
        self._kubectl = Kubectl(kubeconfig=kubeconfig, context=context)
        agents = self._kubectl.agents()
        if unknown := [node for node in nodes if node not in agents]:
            raise FlockError(f"no agent of flock runs on {', '.join(unknown)}")
        if not agents:
            raise FlockError("no agent of flock runs in this cluster")
        self._agents = {node: agents[node] for node in nodes or sorted(agents)}
        self._birds = self._kubectl.on_nodes(BIRDS)
        packing = ("flockctl", "bundle", "-o", "-", "--log", "/dev/stdin")
        self.commands = {
            node: self._kubectl.command(*in_agent(pod, *packing, stdin=True)) for node, pod in self._agents.items()
        }
        with ThreadPoolExecutor(AT_ONCE) as threads:
            self.logs = dict(zip(self._agents, threads.map(self._log, self._agents), strict=True))

    def redacted(self, log: bytes) -> bytes:
        """By its looks alone: whoever knows the passwords could not be asked."""
        return encoded(Redactor(), log.decode(errors="replace"))

    def objects(self) -> dict[str, bytes]:
        notes: list[str] = []
        found = objects(Redactor(), self._listed(notes))
        if notes:
            found["notes.txt"] = Redactor().text("".join(notes)).encode(errors="replace")
        return {f"objects/{name}": content for name, content in found.items()}

    def _listed(self, notes: list[str]) -> Iterator[dict[str, Any]]:
        lists: list[tuple[str, tuple[str, ...]]] = [(kind, ("--all-namespaces",)) for kind in KINDS]
        lists += [("pods", ("--all-namespaces", f"--field-selector=spec.nodeName={node}")) for node in self._agents]
        for kind, options in lists:
            try:
                yield from self._kubectl.get(kind, *options)
            except KubectlRefused as error:
                notes.append(f"{kind}: {error.msg}\n")

    def _log(self, node: str) -> bytes:
        said = b""
        for pod in filter(None, (self._agents[node], self._birds.get(node))):
            metadata = pod["metadata"]
            where = (f"--namespace={metadata['namespace']}", metadata["name"], "--all-containers")
            said += f"--- {metadata['name']}\n".encode()
            try:
                said += self._kubectl.run("logs", *where, f"--tail={LINES}", "--timestamps")
            except KubectlRefused as error:
                said += f"{error.msg}\n".encode()
        return said

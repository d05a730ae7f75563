"""A Kubernetes cluster on this machine: a network with routers, a control plane and nodes, and its state for tests.

    with Cluster(nodes=2, images=[archive]) as cluster:
        deploy_flock(cluster)
        cluster.wait_for_nodes()

Everything of it is in namespaces and one directory, and gone at the end.  Nodes are ready only when something has given
them a network, which is up to the caller (`deployment`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import images
from control_plane import ControlPlane
from homes import new_home
from network import API_ADDRESS, CONTROL, Network
from node import Node
from places import SHOWN, Failed, Place, eventually, tail
from workloads import PORT

from flock.lab.errors import LabError

# wget's own time limit crashes when it is statically linked.
_ASK_ALL = 'for url; do timeout 5 wget -q -O- "$url" || echo; done'
NODE_PATIENCE = 180.0  # seconds until a node with a network, or a pod, is ready; a loaded machine takes a minute

ROLLOUT_PATIENCE = 180.0  # one pod after the other


class Cluster:
    """Use as a context manager; entered, the control plane serves and the kubelets have registered.

    `images` are archives that all nodes know from the start; `kubelet` has more settings for all kubelets."""

    def __init__(
        self,
        *,
        nodes: int = 2,
        routers: int = 2,
        images: Sequence[Path] = (),
        kubelet: Mapping[str, Any] | None = None,
    ) -> None:
        self._size = nodes, routers
        self._images = images
        self._kubelet = kubelet or {}
        self._stack = ExitStack()

    def __enter__(self) -> "Cluster":
        with ExitStack() as stack:
            self._build(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _build(self, stack: ExitStack) -> None:
        nodes, routers = self._size
        home = self._home = stack.enter_context(new_home())
        self.network = stack.enter_context(Network(home / "network", name=home.name, nodes=nodes, routers=routers))
        control = stack.enter_context(Place(CONTROL, directory=home / CONTROL, netns=self.network.netns(CONTROL)))
        self.plane = ControlPlane(control, address=API_ADDRESS, controllers=True)
        self.nodes = {name: stack.enter_context(self._node(name, directory=home / name)) for name in self.network.nodes}
        at_once(self.plane.start, *(partial(self._start_runtime, node) for node in self.nodes.values()))
        for node in self.nodes.values():
            node.start_kubelet(self.plane)
        eventually(lambda: len(self.plane.get("nodes")) == nodes, what="the kubelets to register")
        for namespace in ("default", "kube-system"):  # without it no pod is admitted
            account = partial(self.plane.get, "serviceaccount", "default", f"--namespace={namespace}")
            eventually(account, what=f"the service account of {namespace}")

    def _node(self, name: str, *, directory: Path) -> Node:
        addresses = self.network.node(name).addresses
        return Node(
            name,
            directory=directory,
            netns=self.network.netns(name),
            addresses=sorted(addresses, key=lambda a: ":" in a),  # the API server's family first
            kubelet=self._kubelet,
        )

    def _start_runtime(self, node: Node) -> None:
        node.start_containerd()
        for archive in (images.toolbox(), *self._images):
            node.import_image(archive)

    def import_image(self, archive: Path) -> None:
        """Make an image known to all nodes."""
        at_once(*(partial(node.import_image, archive) for node in self.nodes.values()))

    # --- what is going on -----------------------------------------------------------------------------------

    def wait_for_nodes(self) -> None:
        eventually(lambda: not self._unready_nodes(), what="all nodes to be ready", patience=NODE_PATIENCE)

    def _unready_nodes(self) -> list[str]:
        unready = [node["metadata"]["name"] for node in self.plane.get("nodes") if not is_true(node, "Ready")]
        if unready:
            raise Failed(f"{', '.join(unready)} not ready")
        return unready

    def pods(self, selector: str = "", *, namespace: str = "default") -> list[dict[str, Any]]:
        """Pods as the API server shows them, those that are being deleted included."""
        pods: list[dict[str, Any]] = self.plane.get("pods", "--namespace", namespace, f"--selector={selector}")
        return pods

    def ready_pods(self, count: int, selector: str = "", *, namespace: str = "default") -> list[dict[str, Any]]:
        """The pods, once there are exactly so many and all are ready; fails with the events when that does not come.

        Those that are being deleted do not count: this kubelet takes up to a minute to let go of them."""

        def settled() -> bool:
            found = self._remaining(selector, namespace=namespace)
            unready = [pod["metadata"]["name"] for pod in found if not is_true(pod, "Ready")]
            if unready or len(found) != count:
                latest = self.events(namespace=namespace).splitlines()[-SHOWN:]
                raise Failed("\n".join([f"{len(found)} pods, not ready: {unready}", *latest]))
            return True

        eventually(settled, what=f"{count} ready pods", patience=NODE_PATIENCE, pause=0.3)
        return self._remaining(selector, namespace=namespace)

    def _remaining(self, selector: str, *, namespace: str) -> list[dict[str, Any]]:
        pods = self.pods(selector, namespace=namespace)
        return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]

    def wait_for_rollout(self, what: str, *, namespace: str = "default") -> None:
        """Until all pods of a Deployment or DaemonSet are of its latest version."""
        patience = (f"--namespace={namespace}", f"--timeout={ROLLOUT_PATIENCE:.0f}s")
        command = self.plane.kubectl_command("rollout", "status", what, *patience)
        self.plane.place.run(*command, timeout=ROLLOUT_PATIENCE + 10)

    @contextmanager
    def running(self, deployment: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
        """A deployment's pods, all ready; it is deleted at the end, and they go in their own time, a minute or so."""
        name, namespace = deployment["metadata"]["name"], deployment["metadata"]["namespace"]
        self.plane.apply(deployment)
        try:
            yield self.ready_pods(deployment["spec"]["replicas"], f"app={name}", namespace=namespace)
        finally:
            self.plane.kubectl("delete", "deployment", name, f"--namespace={namespace}")

    def fetch(self, address: str, port: int, *, source: Node | None = None) -> str:
        """What a pod of `workloads` says at this address, asked by the client behind the routers or a node."""
        command = ["curl", "--silent", "--show-error", "--max-time", "5", _url(address, port)]
        try:
            return (source.place.run(*command) if source else self.network.client.run(command)).strip()
        except LabError as error:
            raise Failed(f"{error.msg}: {error.details}") from None

    def refuses(self, address: str, port: int) -> bool:
        """Whether the client behind the routers gets no answer there."""
        try:
            return not self.fetch(address, port)
        except Failed:
            return True

    def fetch_from(self, pod: dict[str, Any], addresses: Sequence[str], port: int = PORT) -> list[str]:
        """The same, asked by a pod, for many addresses in one go; an empty answer is none."""
        where = (pod["metadata"]["name"], "--namespace", pod["metadata"]["namespace"])
        urls = (_url(address, port) for address in addresses)
        return self.plane.kubectl("exec", *where, "--", "sh", "-c", _ASK_ALL, "sh", *urls).splitlines()

    def events(self, *, namespace: str = "default") -> str:
        return self.plane.kubectl("get", "events", "--namespace", namespace, "--sort-by=.lastTimestamp")

    def logs(self) -> str:
        """The ends of the logs of all daemons, routers, and flock's own pods."""
        texts = [place.logs() for place in (self.plane.place, *(node.place for node in self.nodes.values()))]
        for pattern in ("network/*/*.log", "n*/log/pods/flock-system_*/*/*.log"):
            texts += [f"--- {file.relative_to(self._home)}\n{tail(file)}" for file in sorted(self._home.glob(pattern))]
        return "\n".join(texts)


def at_once(*steps: Callable[[], None]) -> None:
    """Take steps that do not depend on each other; the first failure is raised when all have ended."""
    with ThreadPoolExecutor() as pool:
        for step in [pool.submit(step) for step in steps]:
            step.result()


def _url(address: str, port: int) -> str:
    return f"http://[{address}]:{port}/" if ":" in address else f"http://{address}:{port}/"


def is_true(thing: dict[str, Any], condition: str) -> bool:
    """Whether an object has a condition with status True."""
    conditions = thing.get("status", {}).get("conditions", ())
    return any(c["type"] == condition and c["status"] == "True" for c in conditions)


def addresses(pod: dict[str, Any]) -> tuple[str, ...]:
    return tuple(entry["ip"] for entry in pod["status"].get("podIPs", ()))

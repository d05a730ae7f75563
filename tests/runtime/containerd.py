"""A private containerd on a test's node, driven over the runtime interface (CRI) the way a kubelet drives it.

Everything containerd can be told to keep elsewhere is under the node's directory; what it cannot be told is covered
by the node's own /run and /var/lib.  The CNI executables are linked into a directory of their own, where the
runtime also finds the reference `loopback` that it runs for every sandbox.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from signal import SIGTERM
from typing import Any

import grpc  # type: ignore[import-untyped]
from cri_api.v1 import api_pb2 as cri
from cri_api.v1.api_pb2_grpc import RuntimeServiceStub
from pause_image import IMAGE
from runtime_node import PATIENCE, Node

REFERENCE_PLUGINS = Path("/usr/lib/cni")  # where Debian's containernetworking-plugins puts them

_CONFIG = """
version = 2
root = "{directory}/root"
state = "{directory}/state"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.devmapper"]

[debug]
  level = "warn"

[grpc]
  address = "{directory}/containerd.sock"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{image}"
  disable_apparmor = true
  restrict_oom_score_adj = true  # the test may lack the right to lower it
  netns_mounts_under_state_dir = true

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{directory}/cni"
    conf_dir = "{directory}/net.d"
    ip_pref = "cni"  # the first address is the one the plugin lists first

  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"  # needs nothing of the file system below

    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"

      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        Root = "{directory}/runc"
"""


class Containerd:
    """A running containerd whose sandboxes get their network from `conflist`."""

    def __init__(self, node: Node, *, archive: Path, executables: Sequence[Path], conflist: Mapping[str, Any]) -> None:
        self.node = node
        self._config = node.directory / "containerd.toml"
        self._config.write_text(_CONFIG.format(directory=node.directory, image=IMAGE))
        self._socket = node.directory / "containerd.sock"
        (node.directory / "net.d").mkdir()
        (node.directory / "net.d" / f"01-{conflist['name']}.conflist").write_text(json.dumps(conflist))
        (node.directory / "cni").mkdir()
        for executable in (REFERENCE_PLUGINS / "loopback", *executables):
            (node.directory / "cni" / executable.name).symlink_to(executable)
        self._start()
        node.run("ctr", "--address", self._socket, "--namespace", "k8s.io", "images", "import", archive)

    def _start(self) -> None:
        self._process = self.node.start("containerd", "containerd", "--config", self._config)
        self.node.wait_for("containerd's runtime and network to be ready", self._ready, process=self._process)

    def _ready(self) -> bool:
        try:
            answer = self.call("Status", cri.StatusRequest())
        except grpc.RpcError:
            return False
        return all(condition.status for condition in answer.status.conditions)

    def restart(self) -> None:
        """Stop and start it; sandboxes keep running under their shims."""
        self._process.end(SIGTERM)
        self._start()

    def call(self, method: str, request: Any) -> Any:
        """One call of the runtime service, on a connection of its own; errors are `grpc.RpcError`."""
        with grpc.insecure_channel(f"unix://{self._socket}") as channel:
            service = RuntimeServiceStub(channel)  # type: ignore[no-untyped-call]
            return getattr(service, method)(request, timeout=PATIENCE)

    def run_pod(
        self, name: str, *, annotations: Mapping[str, str] | None = None, host_ports: Mapping[int, int] | None = None
    ) -> "Sandbox":
        """Run a pod's sandbox; `host_ports` maps ports of the node to ports of the pod."""
        config = cri.PodSandboxConfig(
            metadata=cri.PodSandboxMetadata(name=name, namespace="default", uid=f"uid-of-{name}"),
            hostname=name,
            annotations=annotations,
            port_mappings=[cri.PortMapping(host_port=h, container_port=c) for h, c in (host_ports or {}).items()],
            linux=cri.LinuxPodSandboxConfig(cgroup_parent=self.node.cgroup),
        )
        answer = self.call("RunPodSandbox", cri.RunPodSandboxRequest(config=config))
        return Sandbox(self, name=name, sandbox_id=answer.pod_sandbox_id)

    def sandboxes(self) -> list[str]:
        """The names of the pods whose sandboxes exist, running or not."""
        items = self.call("ListPodSandbox", cri.ListPodSandboxRequest()).items
        return sorted(item.metadata.name for item in items)


class Sandbox:
    """One pod as the runtime knows it."""

    def __init__(self, runtime: Containerd, *, name: str, sandbox_id: str) -> None:
        self.name = name
        self.id = sandbox_id
        self._runtime = runtime
        request = cri.PodSandboxStatusRequest(pod_sandbox_id=sandbox_id, verbose=True)
        answer = runtime.call("PodSandboxStatus", request)
        self.addresses = [answer.status.network.ip, *(ip.ip for ip in answer.status.network.additional_ips)]
        self.pid: int = json.loads(answer.info["info"])["pid"]  # as the node counts processes

    def ping(self, address: str) -> None:
        """One echo from inside the pod; it has to come back."""
        self._runtime.node.run("ping", "-n", "-c", "1", "-W", "5", address, netns_of=self.pid)

    def stop(self) -> None:
        self._runtime.call("StopPodSandbox", cri.StopPodSandboxRequest(pod_sandbox_id=self.id))

    def remove(self) -> None:
        self._runtime.call("RemovePodSandbox", cri.RemovePodSandboxRequest(pod_sandbox_id=self.id))

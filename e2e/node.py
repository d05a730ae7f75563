"""A node of the cluster: containerd and a kubelet on a machine of its own, as far as they can tell.

The machine is a network namespace of the cluster's network with mounts of its own: /run and /var/log are new, what is
written to /etc, /opt and /var/lib goes to copies, so manifests with host paths work as they are.  The few kernel
settings that a kubelet insists on and that have no namespace are covered by files with the values it wants.  Pods'
cgroups are below one of this node's own.  Where systemd shows which services are up, some are.  The CNI directories are
the usual ones and hold the reference plugins, but no configuration: bringing one is the work of the network that is
tested.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from signal import SIGTERM
from typing import Any

import cgroups
from control_plane import NAME_SERVICE, ControlPlane
from images import SANDBOX
from places import Place

REFERENCE_PLUGINS = Path("/usr/lib/cni")  # where Debian's containernetworking-plugins puts them
CNI_PROGRAMS = Path("/opt/cni/bin")  # on the node
CNI_CONFIGURATION = Path("/etc/cni/net.d")
CONTAINERD = "/run/containerd/containerd.sock"
UNITS = Path("/run/systemd/units")
_SERVICES = "dbus systemd-logind systemd-user-sessions networking containerd kubelet"

# What the kubelet would set on the whole machine.
_SYSCTLS = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1000000,
    "kernel/keys/root_maxbytes": 25000000,
}

_SETUP = """
mount -t tmpfs node-run /run
mkdir -p /run/netns /run/lock {units}
for service in {services}; do ln -s 5f1c7c3a0b8e4d0c8f0e6a1b2c3d4e5f {units}/invocation:$service.service; done
for top in etc opt var/lib; do
  mkdir -p {own}/upper/$top {own}/work/$top
  mount -t overlay -o lowerdir=/$top,upperdir={own}/upper/$top,workdir={own}/work/$top node-overlay /$top
done
rm -rf /opt/cni /etc/cni  # what the machine has there is no business of the node's
mkdir -p {own}/log /opt/cni/bin /etc/cni/net.d
mount --bind {own}/log /var/log
for name in {sysctls}; do
  mount --bind {own}/sysctl/$name /proc/sys/$name
done
mount --make-rshared /  # pods may ask to see mounts that come later
"""

_CONTAINERD = """
version = 2
root = "{own}/containerd"
state = "/run/containerd/state"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.devmapper"]

[debug]
  level = "warn"

[grpc]
  address = "{socket}"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{sandbox}"
  disable_apparmor = true
  restrict_oom_score_adj = true  # the test may lack the right to lower it

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni_programs}"
    conf_dir = "{cni_configuration}"
    ip_pref = "cni"  # the first address is the one the plugin lists first
"""


class Node:
    """Use as a context manager.  Nothing runs until `start_containerd` and `start_kubelet`."""

    def __init__(
        self, name: str, *, directory: Path, netns: Path, addresses: Sequence[str], kubelet: Mapping[str, Any]
    ) -> None:
        """`kubelet` has settings beyond those that every one needs here."""
        self.name = name
        self._kubelet = kubelet
        self.addresses = tuple(addresses)
        self.directory = directory
        self.cgroup = f"{directory.parent.name}-{name}"
        cgroups.make(self.cgroup)
        for sysctl, value in _SYSCTLS.items():
            file = directory / "sysctl" / sysctl
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{value}\n")
        setup = _SETUP.format(own=directory, sysctls=" ".join(_SYSCTLS), units=UNITS, services=_SERVICES)
        try:
            self.place = Place(name, directory=directory, netns=netns, setup=setup)
        except BaseException:
            cgroups.remove(self.cgroup)  # nobody else would
            raise

    def __enter__(self) -> "Node":
        return self

    def __exit__(self, *_: object) -> None:
        self.place.close()
        cgroups.remove(self.cgroup)

    # --- the runtime ----------------------------------------------------------------------------------------

    def start_containerd(self) -> None:
        """Start it, again after `stop_containerd`."""
        config = self.directory / "containerd.toml"
        config.write_text(
            _CONTAINERD.format(
                own=self.directory,
                socket=CONTAINERD,
                sandbox=SANDBOX,
                cni_programs=CNI_PROGRAMS,
                cni_configuration=CNI_CONFIGURATION,
            )
        )
        for plugin in REFERENCE_PLUGINS.iterdir():
            shutil.copy(plugin, self.path(CNI_PROGRAMS / plugin.name))
        self.place.start("containerd", "containerd", "--config", config)
        ready = lambda: self.place.attempt("ctr", "--address", CONTAINERD, "version").returncode == 0  # noqa: E731
        self.place.wait("containerd to answer", ready, role="containerd")

    def stop_containerd(self) -> None:
        """Pods run on under their shims."""
        self.place.stop("containerd", by=SIGTERM)

    def import_image(self, archive: Path) -> None:
        self.place.run("ctr", "--address", CONTAINERD, "--namespace", "k8s.io", "images", "import", archive)

    # --- the kubelet ----------------------------------------------------------------------------------------

    def start_kubelet(self, plane: ControlPlane) -> None:
        """Start it, again after `stop_kubelet`; it registers the node, which is ready once it has a network."""
        config = self.directory / "kubelet.json"
        config.write_text(json.dumps(self._kubelet_settings(plane.authority.ca.certificate)))
        credentials = self.directory / "kubelet.kubeconfig"
        if not credentials.exists():
            user = f"system:node:{self.name}"
            shutil.copy(plane.kubeconfig_for(user, groups=["system:nodes"]), credentials)
        self.place.start(
            "kubelet",
            *(plane.bin / "kubelet", f"--config={config}", f"--kubeconfig={credentials}"),
            *(f"--hostname-override={self.name}", f"--node-ip={','.join(self.addresses)}"),
            *("--container-runtime=remote", f"--container-runtime-endpoint=unix://{CONTAINERD}"),
            *(f"--root-dir={self.directory}/kubelet", f"--pod-infra-container-image={SANDBOX}"),
        )

    def stop_kubelet(self) -> None:
        self.place.stop("kubelet", by=SIGTERM)

    def _kubelet_settings(self, ca: Path) -> dict[str, Any]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {"anonymous": {"enabled": False}, "x509": {"clientCAFile": str(ca)}},
            "featureGates": {"IPv6DualStack": True},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.cgroup}",
            "resolvConf": "",  # no names but the cluster's own
            "clusterDNS": [NAME_SERVICE],
            "clusterDomain": "cluster.local",
            "volumePluginDir": str(self.directory / "volume-plugins"),  # it makes the directory
            # The machine's disk may be full of other things: evict nothing and keep images, no registry has them.
            "evictionHard": {"memory.available": "1Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
            "imageGCHighThresholdPercent": 100,
            "readOnlyPort": 0,
            "nodeStatusUpdateFrequency": "2s",
            **self._kubelet,
        }

    # --- kube-proxy, where a test wants one -----------------------------------------------------------------

    def start_kube_proxy(self, plane: ControlPlane) -> None:
        """In mode iptables; it leaves alone what it would set for the whole machine, and says what it programs when."""
        credentials = plane.kubeconfig_for("system:kube-proxy")
        self.place.start(
            "kube-proxy",
            *(plane.bin / "kube-proxy", f"--kubeconfig={credentials}", f"--hostname-override={self.name}"),
            *("--proxy-mode=iptables", "--feature-gates=IPv6DualStack=true", "--iptables-min-sync-period=100ms"),
            *("--conntrack-max-per-core=0", "--conntrack-min=0", "--healthz-bind-address=", "--metrics-bind-address="),
            "-v=3",
        )

    def stop_kube_proxy(self) -> None:
        """Its rules stay."""
        self.place.stop("kube-proxy", by=SIGTERM)

    # --- what is on it --------------------------------------------------------------------------------------

    def path(self, path: Path) -> Path:
        """Where a file of the node is found from outside: seen through its keeper, mounts included."""
        return Path(f"/proc/{self.place.pid}/root{path}")

    def write(self, path: Path, content: str) -> None:
        file = self.path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)

    def unit(self, service: str) -> Path:
        """What systemd shows of a service that is up."""
        return self.path(UNITS / f"invocation:{service}.service")

    def pod_links(self) -> set[str]:
        """The interfaces that lead to pods."""
        links = json.loads(self.place.run("ip", "-json", "link", "show", "type", "veth"))
        return {link["ifname"] for link in links if link["ifname"] != "eth0"}

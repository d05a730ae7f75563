"""A real control plane: etcd and the API server, and with them the controller manager and the scheduler.

`api_server()` gives the first two alone, on loopback ports of this machine, in a few seconds: enough for whoever
lists and watches.  A cluster runs all four in a network namespace of their own.

The API server is always killed: on SIGTERM it waits for its watches, which nobody needs.
"""

import base64
import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from signal import SIGKILL
from typing import Any

from pki import Authority, write_kubeconfig
from places import PATIENCE, Place

BUILDER = Path(__file__).with_name("build-kubernetes")

# Two pod addresses need it everywhere in this release; later ones have it on.
GATES = "--feature-gates=IPv6DualStack=true"
SERVICES = "10.96.0.0/16,fd00:96::/112"
NAME_SERVICE = "10.96.0.10"  # where pods ask for names, if a test serves them there
# For nodes whose NodeConfig names no CIDR; the controller manager gives each node one of either family.
CLUSTER_CIDRS = "100.66.0.0/16,2001:db8:6600::/48"


def programs() -> Path:
    """The directory with Kubernetes' programs, which are built first if they are not there."""
    built = subprocess.run([BUILDER], check=True, stdout=subprocess.PIPE, text=True)
    return Path(built.stdout.strip()) / "bin"


class ControlPlane:
    """etcd and the API server, running when `start` returns.  `kubeconfig` is that of an administrator.

    `address` is what others reach the API server by; `controllers` says whether a controller manager will run:
    without one there are no service accounts, and pods must do without.
    """

    def __init__(
        self, place: Place, *, address: str, port: int = 6443, etcd_port: int = 2379, controllers: bool
    ) -> None:
        self.place = place
        self.bin = programs()
        self.url = f"https://{address}:{port}"
        self.authority = Authority(place.directory / "pki")
        self.kubeconfig = self.kubeconfig_for("admin", groups=["system:masters"])
        self._address = address
        self._port = port
        self._etcd = f"http://127.0.0.1:{etcd_port}"
        self._etcd_peer = f"http://127.0.0.1:{etcd_port + 1}"
        self._controllers = controllers
        hosts = ["127.0.0.1", address, "kubernetes.default.svc", "10.96.0.1"]
        self._serving = self.authority.issue("kube-apiserver", groups=["system:masters"], hosts=hosts)
        self._accounts = self.authority.issue("service-accounts")

    def start(self) -> None:
        self.start_etcd()
        self.start_api_server()
        if self._controllers:
            self.start_controllers()

    def start_etcd(self) -> None:
        """Fresh or, after `place.stop("etcd")`, with the data it had."""
        self.place.start(
            "etcd",
            *("etcd", "--data-dir", self.place.directory / "etcd", "--name", "e2e", "--log-level", "warn"),
            *("--listen-client-urls", self._etcd, "--advertise-client-urls", self._etcd),
            *("--listen-peer-urls", self._etcd_peer, "--initial-advertise-peer-urls", self._etcd_peer),
            *("--initial-cluster", f"e2e={self._etcd_peer}"),
        )

    def start_api_server(self) -> None:
        """Start it, again after `kill_api_server`; returns when it is ready."""
        serving, accounts, ca = self._serving, self._accounts, self.authority.ca.certificate
        alone = ("--endpoint-reconciler-type=none", "--disable-admission-plugins=ServiceAccount")
        self.place.start(
            "kube-apiserver",
            *(self.bin / "kube-apiserver", GATES, f"--etcd-servers={self._etcd}", f"--secure-port={self._port}"),
            *(f"--advertise-address={self._address}", "--allow-privileged=true"),
            *(f"--client-ca-file={ca}", f"--tls-cert-file={serving.certificate}"),
            *(f"--tls-private-key-file={serving.key}", "--authorization-mode=Node,RBAC"),
            *(f"--kubelet-client-certificate={serving.certificate}", f"--kubelet-client-key={serving.key}"),
            *("--kubelet-preferred-address-types=InternalIP", f"--service-cluster-ip-range={SERVICES}"),
            *(
                f"--service-account-key-file={accounts.certificate}",
                f"--service-account-signing-key-file={accounts.key}",
            ),
            *("--service-account-issuer=https://kubernetes.default.svc", "--enable-admission-plugins=NodeRestriction"),
            *(() if self._controllers else alone),
        )
        self.place.wait("the API server to be ready", self.ready, role="kube-apiserver")

    def kill_api_server(self) -> None:
        self.place.stop("kube-apiserver", by=SIGKILL)

    def ready(self) -> bool:
        return self.place.attempt(*self.kubectl_command("get", "--raw", "/readyz")).returncode == 0

    def start_controllers(self) -> None:
        """The controller manager and the scheduler; both come to terms with an API server that is away."""
        manager = self.kubeconfig_for("system:kube-controller-manager")
        ca = self.authority.ca
        self.place.start(
            "kube-controller-manager",
            *(self.bin / "kube-controller-manager", GATES, f"--kubeconfig={manager}", "--leader-elect=false"),
            *(f"--service-account-private-key-file={self._accounts.key}", f"--root-ca-file={ca.certificate}"),
            *("--use-service-account-credentials=true", "--allocate-node-cidrs=true"),
            *(f"--cluster-cidr={CLUSTER_CIDRS}", f"--service-cluster-ip-range={SERVICES}"),
            *("--node-monitor-grace-period=40s", "--port=0", "--secure-port=10257"),
        )
        scheduler = self.kubeconfig_for("system:kube-scheduler")
        self.place.start(
            "kube-scheduler",
            *(self.bin / "kube-scheduler", GATES, f"--kubeconfig={scheduler}", "--leader-elect=false", "--port=0"),
        )

    # --- who may talk to it ---------------------------------------------------------------------------------

    def kubeconfig_for(self, user: str, *, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig with a client certificate for any user, whose rights are RBAC's business."""
        return self.authority.kubeconfig(user, server=self.url, groups=groups)

    def kubeconfig_with_token(self, path: Path, *, token_file: Path) -> None:
        """A kubeconfig whose user is whoever the token in the file stands for, read again when it is rotated."""
        ca = self.authority.ca.certificate
        write_kubeconfig(path, server=self.url, ca=ca, user={"tokenFile": str(token_file)})

    def token(self, account: str, *, namespace: str = "default", seconds: int = 3600) -> str:
        """A fresh token of a service account that exists."""
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds},
        }
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        answer = json.loads(self.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(request)))
        token: str = answer["status"]["token"]
        return token

    # --- what is asked of it --------------------------------------------------------------------------------

    def kubectl_command(self, *argv: str | Path) -> list[str | Path]:
        return [self.bin / "kubectl", f"--kubeconfig={self.kubeconfig}", *argv]

    def kubectl(self, *argv: str | Path, stdin: str = "", patience: float = PATIENCE) -> str:
        """What kubectl prints; it has to succeed."""
        return self.place.run(*self.kubectl_command(*argv), stdin=stdin, timeout=patience)

    def get(self, *argv: str) -> Any:
        """An object, or a list's items."""
        answer = json.loads(self.kubectl("get", *argv, "--output=json"))
        return answer["items"] if answer["kind"] == "List" else answer

    def apply(self, *objects: dict[str, Any]) -> None:
        self.kubectl("apply", "-f", "-", stdin="\n".join(map(json.dumps, objects)))

    # --- past the API server --------------------------------------------------------------------------------

    def compact(self) -> None:
        """Make etcd forget all history: whoever watches from an older version gets 410."""
        status = self.place.run("curl", "--silent", "--fail", "--data", "{}", f"{self._etcd}/v3/maintenance/status")
        revision = json.loads(status)["header"]["revision"]
        self.ask_etcd("kv/compaction", [{"revision": revision, "physical": True}])

    def erase(self, *keys: str) -> None:
        """Delete from etcd, one after the other; a key that ends in a slash stands for all below it."""
        requests = []
        for key in (f"/registry/{key}" for key in keys):
            end = {"range_end": b64(f"{key[:-1]}0")} if key.endswith("/") else {}  # 0 comes after the slash
            requests.append({"key": b64(key), **end})
        self.ask_etcd("kv/deleterange", requests)

    def ask_etcd(self, method: str, requests: Iterable[Mapping[str, Any]]) -> None:
        """All requests over one connection."""
        common = f'silent\nshow-error\nfail\noutput = /dev/null\nurl = "{self._etcd}/v3/{method}"\n'
        config = "next\n".join(f"{common}data = {json.dumps(json.dumps(request))}\n" for request in requests)
        self.place.run("curl", "--config", "-", stdin=config)


def b64(text: str) -> str:
    """As etcd wants keys and values."""
    return base64.b64encode(text.encode()).decode()


@contextmanager
def api_server() -> Iterator[ControlPlane]:
    """etcd and an API server on free loopback ports of this machine; gone, with all data, at the end."""
    directory = Path(tempfile.mkdtemp(prefix="flock-api-"))
    try:
        with Place("api-server", directory=directory) as place:
            port, etcd_port = _free_ports()
            plane = ControlPlane(place, address="127.0.0.1", port=port, etcd_port=etcd_port, controllers=False)
            plane.start()
            yield plane
    finally:
        shutil.rmtree(directory)


def _free_ports() -> tuple[int, int]:
    """A free port, and the first of a pair; they are in the lower range that no connection takes by itself."""
    free: list[int] = []
    for port in range(20000 + os.getpid() % 9000, 32000):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                free.clear()
                continue
        free.append(port)
        if len(free) == 3:
            return free[0], free[1]
    raise OSError("no three free ports in a row")

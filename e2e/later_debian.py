"""containerd 2, from a later Debian than this machine's, on a node of its own.

It comes as a root file system that `mmdebstrap` makes from this machine's mirror and that is kept in the cache, and
runs in a chroot of it; node, network and processes are those of `tests/runtime`.  The agent runs beside it, on this
machine's own Debian, and the CNI executables are copies: static, or of its packages, which run there as well.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import grpc  # type: ignore[import-untyped]
from cri_api.v1 import api_pb2 as cri
from cri_api.v1.api_pb2_grpc import RuntimeServiceStub
from images import cache

sys.path.append(str(Path(__file__).parents[1] / "tests" / "runtime"))

from runtime_agent import EXECUTABLE
from runtime_node import Node

SUITE = "forky"
PACKAGES = "base-files,containerd,runc"
PLUGINS = Path("/usr/lib/cni")  # of this machine's Debian: reference plugins of 2022
PATIENCE = 30.0
_ROOT = "/run/later-debian"

_SETUP = """
set -e
mkdir {root}
mount -t tmpfs node-root {root}
mkdir {root}/upper {root}/work {root}/merged
mount -t overlay -o lowerdir={lower},upperdir={root}/upper,workdir={root}/work node-root {root}/merged
cd {root}/merged
for place in proc sys dev run; do mkdir -p $place; mount --rbind /$place $place; done
mkdir -p .{directory}
mount --bind {directory} .{directory}
"""
_CONFIG = """
version = 2
root = "{directory}/root"
state = "{directory}/state"

[grpc]
  address = "{directory}/containerd.sock"

[plugins."io.containerd.grpc.v1.cri"]
  disable_apparmor = true
  restrict_oom_score_adj = true  # the test may lack the right to lower it

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{directory}/cni"
    conf_dir = "{directory}/net.d"

  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"  # needs nothing of the file system below
"""


def root() -> Path:
    """The root file system, made once."""
    result = cache() / f"root-{SUITE}"
    if not result.exists():
        partial = result.with_suffix(".partial.tar")
        unpacked = result.with_suffix(".partial")
        # The list of a suite that is still in the making is valid for a week only, and a mirror may be behind.
        options = ["--variant=extract", "--mode=root", '--aptopt=Acquire::Check-Valid-Until "false"']
        made = subprocess.run(
            ["mmdebstrap", *options, f"--include={PACKAGES}", SUITE, partial, _mirror()], capture_output=True, text=True
        )
        assert made.returncode == 0, made.stderr
        shutil.rmtree(unpacked, ignore_errors=True)
        unpacked.mkdir()
        subprocess.run(["tar", "-xf", partial, "-C", unpacked], check=True)
        partial.unlink()
        unpacked.rename(result)
    return result


def _mirror() -> str:
    """Where this machine has its own packages from."""
    candidates = (Path("/etc/apt/sources.list.d/debian.sources"), Path("/etc/apt/sources.list"))
    text = next(path for path in candidates if path.exists()).read_text()
    found = re.search(r"^(?:URIs:|deb )[^#\n]*?(https?://\S+)", text, re.MULTILINE)
    assert found is not None, "no mirror is configured"
    return found[1]


class Containerd2:
    """Running when constructed.  Its network is what is in `conf_dir`; `bin_dir` has flock and the plugins given."""

    def __init__(self, node: Node, *, plugins: tuple[str, ...]) -> None:
        self._node = node
        directory = node.directory
        self.conf_dir, self.bin_dir = directory / "net.d", directory / "cni"
        self.conf_dir.mkdir()
        self.bin_dir.mkdir()
        for executable in (EXECUTABLE, *(PLUGINS / name for name in plugins)):
            shutil.copy(executable, self.bin_dir)
        config = directory / "containerd.toml"
        config.write_text(_CONFIG.format(directory=directory))
        self._socket = directory / "containerd.sock"
        node.run("sh", "-c", _SETUP.format(root=_ROOT, lower=root(), directory=directory))
        process = node.start("containerd", "chroot", f"{_ROOT}/merged", "containerd", "--config", config)
        node.wait_for("containerd to answer", self._answers, process=process)

    def _answers(self) -> bool:
        try:
            self.network_problem()
        except grpc.RpcError:
            return False
        return True

    def network_problem(self) -> str:
        """Why the network is not ready, as a kubelet hears it: it asks every few seconds.  Empty if it is."""
        with grpc.insecure_channel(f"unix://{self._socket}") as channel:
            service = RuntimeServiceStub(channel)  # type: ignore[no-untyped-call]
            answer = service.Status(cri.StatusRequest(), timeout=PATIENCE)
        condition = next(c for c in answer.status.conditions if c.type == "NetworkReady")
        return "" if condition.status else f"{condition.reason}: {condition.message}"

    def version(self) -> str:
        with grpc.insecure_channel(f"unix://{self._socket}") as channel:
            service = RuntimeServiceStub(channel)  # type: ignore[no-untyped-call]
            version: str = service.Version(cri.VersionRequest(), timeout=PATIENCE).runtime_version
        return version

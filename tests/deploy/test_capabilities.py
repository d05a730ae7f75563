"""The capabilities in the manifests suffice for what agent and BIRD do, and each is needed.

The programs run with exactly those, and without a way to more, in a node's namespace of their own."""

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness import BIN, CniFailure, Node, eventually, run

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
BIRD_CONF = """
log stderr all;
router id 192.0.2.1;
protocol device { }
protocol kernel { ipv4 { export all; }; }
protocol static { ipv4; route 198.51.100.0/24 blackhole; }
protocol bgp {
  local 203.0.113.1 as 64601; neighbor 203.0.113.2 as 64600; password "secret"; passive;
  ipv4 { import none; export none; };
}
protocol ospf v2 { ipv4; area 0 { interface "uplink" { type ptp; }; }; }
"""


def capabilities(file: str, container: str) -> list[str]:
    for document in yaml.safe_load_all((DEPLOY / file).read_text()):
        if document["kind"] == "DaemonSet":
            for found in document["spec"]["template"]["spec"]["containers"]:
                if found["name"] == container:
                    added: list[str] = found["securityContext"]["capabilities"]["add"]
                    return added
    raise AssertionError(container)


def confined(netns: str, allowed: Sequence[str]) -> list[str]:
    bounds = ",".join(["-all", *(f"+{name.lower()}" for name in allowed)])
    return ["nsenter", f"--net=/run/netns/{netns}", "setpriv", f"--bounding-set={bounds}", "--no-new-privs"]


class ConfinedNode(Node):
    allowed: Sequence[str] = ()

    def start(self, *flags: str, fault: str = "", wait: bool = True) -> None:
        command = [*confined(self.netns, self.allowed), str(BIN / "flock-agent"), "--node", self.name]
        command += ["--manifests", str(self.manifests), "--state-dir", str(self.state_dir)]
        command += ["--run-dir", str(self.run_dir), "--bird-dir", str(self.directory / "bird"), "--http", "", *flags]
        with self.log.open("ab") as log:
            self.agent = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        if wait:
            eventually(self.is_ready, what=f"agent ready\n{self.log_text()}")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ConfinedNode]:
    with ConfinedNode(tmp_path) as node:
        node.allowed = capabilities("agent.yaml", "agent")
        yield node


def test_the_agent_attaches_and_detaches_pods(node: ConfinedNode) -> None:
    node.start()
    node.pod("client")
    result: Any = node.pod("web")
    for address in result["ips"]:
        assert node.ping(address["address"].partition("/")[0], inside="client")
    node.cni("CHECK", "web", prevResult=result)
    node.cni("DEL", "web")
    node.cni("DEL", "client")
    assert node.links() == {}


def test_without_sys_admin_it_cannot_enter_a_pod(node: ConfinedNode) -> None:
    node.allowed = ["NET_ADMIN"]
    node.start()
    with pytest.raises(CniFailure):
        node.pod("web")


def test_without_net_admin_it_is_not_ready(node: ConfinedNode) -> None:
    node.allowed = ["SYS_ADMIN"]
    node.start(wait=False)
    status = eventually(lambda: _status(node), what="an answer")
    assert not status["ready"]


def _status(node: Node) -> Any:
    try:
        return node.ask("status")
    except OSError:
        return None


def test_bird_speaks_and_installs_routes(tmp_path: Path) -> None:
    with Node(tmp_path) as node:
        node.ip("link", "add", "uplink", "type", "veth", "peer", "name", "downlink")
        node.ip("address", "add", "203.0.113.1/24", "dev", "uplink")
        node.ip("link", "set", "uplink", "up")
        node.ip("link", "set", "downlink", "up")
        (tmp_path / "bird.conf").write_text(BIRD_CONF)
        command = [*confined(node.netns, capabilities("bird.yaml", "bird")), "/usr/sbin/bird", "-f", "-R"]
        command += ["-c", str(tmp_path / "bird.conf"), "-s", str(tmp_path / "bird.ctl")]
        with (tmp_path / "bird.log").open("wb") as log:
            bird = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            birdc = ("/usr/sbin/birdc", "-s", tmp_path / "bird.ctl")
            eventually(lambda: run(*birdc, "show", "status", check=False).returncode == 0, what="BIRD answers")
            eventually(lambda: "198.51.100.0/24" in node.ip("-4", "route"), what="a route in the kernel")
            listening = ("ss", "--listening", "--tcp", "--numeric")
            eventually(lambda: ":179" in node.execute(*listening).stdout, what="BIRD listens")
            assert "uplink" in run(*birdc, "show", "ospf", "interface").stdout
            run(*birdc, "graceful", "restart")
            assert bird.wait(20) == 0
            assert "198.51.100.0/24" in node.ip("-4", "route")
            assert "permitted" not in (tmp_path / "bird.log").read_text()
        finally:
            bird.kill()
            bird.wait()

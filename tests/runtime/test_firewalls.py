"""ufw and firewalld themselves: each drops pods' packets, `flockctl doctor` says so, and its cure lets them pass."""

import json
from pathlib import Path
from typing import Any

import pytest
from runtime_agent import COMMANDS, EXECUTABLE, Agent
from runtime_node import Node
from unpacking import unpacked

pytestmark = pytest.mark.slow

PYTHON = "/usr/bin/python3"  # Debian's, for which their modules are made
START_FIREWALLD = "from firewall.core.fw import Firewall; Firewall().start()"  # without D-Bus
ASK = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], 80), timeout=int(sys.argv[2]))
except ConnectionRefusedError:
    pass
"""
POLICY = """<?xml version="1.0" encoding="utf-8"?>
<policy target="ACCEPT"><ingress-zone name="ANY"/><egress-zone name="ANY"/></policy>
"""  # what the three commands of the cure leave behind


@pytest.fixture
def pods(node: Node) -> tuple[str, str]:
    """The namespace of one pod, and the address of another."""
    agent = Agent(node)
    socket = node.directory / "flock-run" / "flock.sock"
    for name in ("a", "b"):
        node.run("ip", "netns", "add", name)
        config = json.dumps({"cniVersion": "1.0.0", "name": "flock", "type": "flock", "socket": str(socket)})
        env = [f"CNI_CONTAINERID={name}", f"CNI_NETNS=/run/netns/{name}", "CNI_IFNAME=eth0", "CNI_PATH=/opt/cni/bin"]
        node.run("sh", "-c", f"echo '{config}' | env CNI_COMMAND=ADD {' '.join(env)} {EXECUTABLE}")
    return "a", agent.allocations()["b"][1]


def lay_over(node: Node, **packages: Path) -> None:
    """Files of packages over the host's, on this node alone: what is written there goes with it."""
    for directory, files in packages.items():
        over, where = f"/run/over-{directory}", f"/{directory.replace('_', '/')}"
        node.run("mkdir", "-p", f"{over}/upper", f"{over}/work")
        layers = f"lowerdir={files}:{where},upperdir={over}/upper,workdir={over}/work"
        node.run("mount", "-t", "overlay", "-o", layers, "over", where)


def reaches(node: Node, pods: tuple[str, str], *, within: int = 20) -> bool:
    """A connection is answered, with a refusal: nobody listens there.  ufw lets a ping pass."""
    inside, address = pods
    asked = node.attempt("nsenter", f"--net=/run/netns/{inside}", PYTHON, "-c", ASK, address, str(within))
    return asked.returncode == 0


def findings(node: Node) -> list[dict[str, Any]]:
    told = node.attempt(COMMANDS / "flockctl", "--run-dir", node.directory / "flock-run", "doctor", "-o", "json")
    return [finding for finding in json.loads(told.stdout) if finding["about"] == "firewall"]


def test_ufw(node: Node, pods: tuple[str, str]) -> None:
    root = unpacked("ufw", "ufw")
    if root is None:
        pytest.skip("Debian's ufw cannot be had here")
    lay_over(node, etc=root / "etc", usr_share=root / "usr/share", usr_lib=root / "lib")
    node.run("sh", "-c", "cp /usr/share/ufw/iptables/*.rules /usr/share/ufw/ufw.conf /etc/ufw/")
    ufw = ("env", f"PYTHONPATH={root}/usr/lib/python3/dist-packages", PYTHON, f"{root}/usr/sbin/ufw")
    assert reaches(node, pods)
    node.run(*ufw, "--force", "enable")
    assert not reaches(node, pods, within=1)
    four, six = findings(node)
    assert four["finding"] == "the chain ip filter FORWARD of ufw drops what pods send or are sent: policy drop"
    assert four["cure"] == six["cure"]
    for command in four["cure"].split("; "):
        node.run(*ufw, *command.split()[1:])
    assert findings(node) == [] and reaches(node, pods)


def test_firewalld(node: Node, pods: tuple[str, str]) -> None:
    modules = ("python3-firewall", "python3-nftables", "libnftables1", "python3-dbus", "python3-gi", "python3-cap-ng")
    root = unpacked("firewalld", "firewalld", *modules)
    if root is None:
        pytest.skip("Debian's firewalld cannot be had here")
    lay_over(node, etc=root / "etc", usr_lib=root / "usr/lib")
    assert reaches(node, pods)
    node.run(PYTHON, "-c", START_FIREWALLD)
    assert not reaches(node, pods, within=1)
    [found] = findings(node)
    assert "of firewalld drops what pods send or are sent: reject with icmpx admin-prohibited" in found["finding"]
    assert found["cure"].startswith("firewall-cmd --permanent --new-policy flock; ")
    node.run("sh", "-c", f"mkdir -p /etc/firewalld/policies; echo '{POLICY}' > /etc/firewalld/policies/flock.xml")
    node.run("nft", "delete", "table", "inet", "firewalld")
    node.run(PYTHON, "-c", START_FIREWALLD)
    assert findings(node) == [] and reaches(node, pods)

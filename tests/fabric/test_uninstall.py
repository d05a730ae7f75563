"""flock taken off a node: routers are told at once, and nothing of it is left in the kernel or in its directories."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fabric_parts import (
    AGGREGATES,
    BOTH,
    OWN,
    MakeLab,
    becomes,
    follows,
    node_configs,
    received,
    stop_agent,
    write_configs,
)

from flock.lab.fabric import Lab
from flock.lab.nodes import AGENT
from flock.lab.router_bird import ROLE as BIRD
from harness import eventually

EXECUTABLE = Path(__file__).parents[2] / "build/flock"
FOREIGN = ("2001:db8:f0::/64", "203.0.113.0/24")


@pytest.fixture
def node(make_lab: MakeLab, tmp_path: Path) -> Lab:
    """One node with graceful restart and without BFD: its routers keep for minutes what nobody withdraws."""
    directory = write_configs(tmp_path / "configs", node_configs(nodes=1, routers=1))
    lab = make_lab(nodes=1, routers=1, topology="leaf-spine", router="bird", nodeconfigs=directory)
    lab.pods.add("any", node="n1", annotations={f"{OWN}/anycast": BOTH}, ready=True)
    lab.host("n1").run(["ip", "-6", "route", "add", "blackhole", FOREIGN[0], "proto", "static"])
    lab.host("n1").run(["ip", "-4", "route", "add", "blackhole", FOREIGN[1], "proto", "static"])
    lab.host("n1").run(["nft", "add", "table", "inet", "flocks-of-others"])
    return lab


def uninstall(lab: Lab, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    own = lab.node("n1")
    directories = {
        "--bin-dir": tmp_path / "bin",
        "--conf-dir": tmp_path / "net.d",
        "--run-dir": own.run_dir,
        "--bird-dir": own.bird_dir,
    }
    flags = [f"{flag}={path}" for flag, path in directories.items()]
    none = [f"--{name}-dir=" for name in ("networkd", "networkd-conf", "networkmanager", "rt-protos")]
    program = [str(Path(sys.executable).with_name("flock-installer")), f"--executable={EXECUTABLE}"]
    command = lab.host("n1").inside([*program, *flags, *none, "--uninstall"])
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def left_in_the_kernel(lab: Lab) -> dict[str, list[str]]:
    """Routes, next hops and tables that are neither the kernel's own nor an administrator's."""
    host = lab.host("n1")
    routes = [
        f"{route['dst']} proto {route['protocol']}"
        for family in ("-6", "-4")
        for route in json.loads(host.run(["ip", "-json", family, "route", "show"]) or "[]")
        if route["protocol"] not in ("kernel", "static", "ra")
    ]
    tables = [
        line for line in host.run(["nft", "list", "tables"]).splitlines() if line != "table inet flocks-of-others"
    ]
    return {"routes": routes, "nexthops": host.run(["ip", "nexthop"]).splitlines(), "tables": tables}


def assert_nothing_is_left(lab: Lab) -> None:
    assert left_in_the_kernel(lab) == {"routes": [], "nexthops": [], "tables": []}
    own = lab.node("n1")
    assert not own.run_dir.exists() or list(own.run_dir.iterdir()) == []
    assert list(own.bird_dir.iterdir()) == []
    shown = "".join(lab.host("n1").run(["ip", family, "route", "show", "proto", "static"]) for family in ("-6", "-4"))
    assert all(prefix in shown for prefix in FOREIGN)


def test_a_node_without_pods_is_as_it_was_and_its_routers_know_at_once(node: Lab, tmp_path: Path) -> None:
    eventually(lambda: set(received(node, "n1")) > AGGREGATES["n1"], what="the pod's own addresses are announced, too")
    node.pods.delete("any")
    stop_agent(node, "n1", signal.SIGTERM)
    done = uninstall(node, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "ended BIRD: routers were told" in done.stdout
    follows(lambda: set(received(node, "n1")), set())
    assert_nothing_is_left(node)
    assert not node.host("n1").running(BIRD)
    again = uninstall(node, tmp_path)
    assert (again.returncode, again.stdout) == (0, "")


def test_what_a_bird_that_ended_before_left_in_the_kernel_goes_and_routers_are_said_to_keep_it(
    node: Lab, tmp_path: Path
) -> None:
    node.pods.delete("any")
    stop_agent(node, "n1", signal.SIGTERM)
    node.host("n1").run(["birdc", "-s", str(node.node("n1").run_dir / "bird.ctl"), "graceful", "restart"])
    becomes(lambda: node.host("n1").running(BIRD), False)
    assert any(route.endswith("proto bird") for route in left_in_the_kernel(node)["routes"])
    done = uninstall(node, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "BIRD had ended before" in done.stdout
    assert_nothing_is_left(node)


def test_a_node_with_pods_stays_as_it_is_and_says_which(node: Lab, tmp_path: Path) -> None:
    stop_agent(node, "n1", signal.SIGTERM)
    before = left_in_the_kernel(node), set(received(node, "n1"))
    done = uninstall(node, tmp_path)
    assert done.returncode == 1
    assert "1 pods of flock are on this host; nothing was removed" in done.stderr and "default/any" in done.stderr
    assert (left_in_the_kernel(node), set(received(node, "n1"))) == before
    assert (node.node("n1").bird_dir / "bird.conf").exists()


def test_a_node_with_an_agent_stays_as_it_is(node: Lab, tmp_path: Path) -> None:
    node.pods.delete("any")
    done = uninstall(node, tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "flock-agent runs on this host" in done.stderr
    assert node.host("n1").running(AGENT)
    follows(lambda: set(received(node, "n1")), AGGREGATES["n1"])

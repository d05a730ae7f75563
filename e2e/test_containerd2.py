"""containerd 2 chooses the newest version of CNI that is offered, and asks STATUS of every plugin whenever it is asked
itself.  A node is ready if all of them succeed."""

import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from signal import SIGKILL, SIGTERM, Signals
from threading import Event

import pytest
from later_debian import Containerd2
from runtime_agent import Agent
from runtime_node import Node

OLD_PLUGINS = ("portmap", "bandwidth")
EVERY = 0.2  # seconds; a kubelet asks every five


@pytest.fixture
def node() -> Iterator[Node]:
    with Node() as node:
        try:
            yield node
        finally:
            print(node.logs())  # shown if the test failed


def start(node: Node, *plugins: str) -> tuple[Containerd2, Agent]:
    """A runtime that waits for its network, and the agent that gives it one."""
    runtime = Containerd2(node, plugins=plugins)
    assert runtime.version().startswith("2.")
    assert "cni plugin not initialized" in runtime.network_problem()
    agent = Agent(node, "--cni-conf-dir", runtime.conf_dir, "--cni-bin-dir", runtime.bin_dir)
    return runtime, agent


def ready(runtime: Containerd2) -> bool:
    return not runtime.network_problem()


def offered(runtime: Containerd2) -> list[str]:
    versions: list[str] = json.loads((runtime.conf_dir / "01-flock.conflist").read_text())["cniVersions"]
    return versions


def test_with_chained_plugins_of_2022_the_node_becomes_ready_and_follows_when_they_go(node: Node) -> None:
    runtime, agent = start(node, *OLD_PLUGINS)
    node.wait_for("the network to be ready", lambda: ready(runtime))
    assert offered(runtime) == ["0.4.0", "1.0.0"]

    for name in OLD_PLUGINS:
        (runtime.bin_dir / name).unlink()
    node.wait_for("the newest version to be offered", lambda: "1.1.0" in offered(runtime))
    node.wait_for("the network to be ready", lambda: ready(runtime))
    agent.kill()
    age(node, 61)
    node.wait_for("STATUS to be asked", lambda: not ready(runtime))  # as it is only of that version


def age(node: Node, seconds: float) -> None:
    """As if the agent could last serve so long ago."""
    then = time.time() - seconds
    os.utime(node.directory / "flock-run" / "serving", (then, then))


@pytest.mark.parametrize("by", [SIGKILL, SIGTERM])
def test_the_node_stays_ready_while_the_agent_restarts(node: Node, by: Signals) -> None:
    runtime, agent = start(node)
    node.wait_for("the network to be ready", lambda: ready(runtime))
    assert offered(runtime)[-1] == "1.1.0"
    over, answers = Event(), []

    def ask() -> None:
        while not over.wait(EVERY):
            answers.append(runtime.network_problem())

    with ThreadPoolExecutor(1) as meanwhile:
        asking = meanwhile.submit(ask)
        try:
            for _ in range(4):
                agent.kill(by)
                time.sleep(3)  # longer than any pause between questions: each absence is noticed
                agent.start()
        finally:
            over.set()
        asking.result()
    assert len(answers) > 4 * 3 / EVERY / 2, "it was asked all the time"
    assert set(answers) == {""}

    agent.kill()
    age(node, 61)
    node.wait_for("an agent that stays away to be noticed", lambda: not ready(runtime))
    agent.start()
    node.wait_for("the network to be ready", lambda: ready(runtime))

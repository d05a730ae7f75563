"""STATUS, asked every few seconds: what it answers while the agent restarts, and what it writes into the log."""

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from looking import failure

from harness import NODE_CONFIG, Node, eventually


def status(node: Node) -> Any:
    """None while nobody listens."""
    with contextlib.suppress(OSError):
        return node.ask("status")
    return None


def lines(node: Node) -> list[str]:
    return [line for line in node.log.read_text().splitlines() if "op=STATUS" in line]


def test_a_status_that_says_the_same_again_is_no_line_of_the_log(fresh: Node) -> None:
    (fresh.manifests / "nodeconfig.json").unlink()
    fresh.start(wait=False)
    eventually(lambda: failure(fresh, "STATUS").msg.startswith("no NodeConfig"), what="the last reason of a start")
    eventually(lambda: "no NodeConfig" in "".join(lines(fresh)[-1:]), what="its line, which comes after the answer")
    before = len(lines(fresh))
    for _ in range(5):
        assert failure(fresh, "STATUS").code == 50
    assert len(lines(fresh)) == before
    fresh.write("nodeconfig", NODE_CONFIG)
    eventually(fresh.is_ready)
    for _ in range(5):
        fresh.cni("STATUS")
    eventually(lambda: len(lines(fresh)) == before + 1)
    assert "code=0" in lines(fresh)[-1]


# --- while the agent restarts ----------------------------------------------------------------------------------------


def age(node: Node, seconds: float) -> None:
    """As if the agent could last serve so long ago."""
    then = time.time() - seconds
    os.utime(node.run_dir / "serving", (then, then))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "ended"])
def test_a_restart_of_the_agent_is_no_reason_for_status_to_fail(node: Node, number: signal.Signals) -> None:
    for _ in range(3):
        node.stop(number)
        node.cni("STATUS")
        node.start(wait=False)
        asked = 0
        while not node.is_ready():
            node.cni("STATUS")
            asked += 1
        assert asked, "it was asked while the agent started"


def test_an_agent_that_does_not_come_back_is_not_available_after_a_minute(node: Node) -> None:
    node.kill()
    age(node, 55)
    node.cni("STATUS")
    age(node, 61)
    assert failure(node, "STATUS").code == 50


def test_an_agent_that_starts_for_longer_than_a_minute_is_not_available(node: Node) -> None:
    node.kill()
    (node.manifests / "nodeconfig.json").unlink()
    node.start(wait=False)
    eventually(lambda: "no NodeConfig" in str(status(node)), what="the new agent")
    node.cni("STATUS")
    age(node, 61)
    failed = failure(node, "STATUS")
    assert failed.code == 50 and "no NodeConfig" in failed.msg


def test_an_agent_that_could_not_serve_when_it_ended_is_not_available(fresh: Node, tmp_path: Path) -> None:
    """Only what it could do last counts, not what it could at some time."""
    switches = fake_switches(tmp_path)
    fresh.start("--sysctl-dir", str(switches))
    fresh.cni("STATUS")
    (switches / "ipv4" / "ip_forward").unlink()
    (switches / "ipv4" / "ip_forward").mkdir()
    fresh.ip("link", "add", "x0", "type", "veth", "peer", "name", "x1")  # an event, at which the agent looks again
    eventually(lambda: not fresh.is_ready(), what="the agent notices")
    assert failure(fresh, "STATUS").code == 51
    fresh.kill()
    assert failure(fresh, "STATUS").code == 50


def test_an_agent_that_never_could_serve_is_not_available(fresh: Node) -> None:
    (fresh.manifests / "nodeconfig.json").unlink()
    fresh.start(wait=False)
    eventually(lambda: status(fresh), what="the agent")
    assert failure(fresh, "STATUS").code == 50
    fresh.kill()
    assert failure(fresh, "STATUS").code == 50


def fake_switches(directory: Path) -> Path:
    """A /proc/sys/net of our own, in which nothing forwards yet."""
    switches = directory / "sysctl"
    (switches / "ipv6" / "conf" / "all").mkdir(parents=True)
    (switches / "ipv4").mkdir()
    (switches / "ipv6" / "conf" / "all" / "forwarding").write_text("0")
    (switches / "ipv4" / "ip_forward").write_text("0")
    return switches

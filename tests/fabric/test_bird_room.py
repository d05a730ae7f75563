"""BIRD in a room of its own below the run directory, as its pod has it: the agent finds it, moving in and out."""

import signal
from pathlib import Path

import pytest
from fabric_parts import AGGREGATES, becomes, degraded, established, node_birdc, received

from flock.lab import router_bird
from flock.lab.fabric import Lab
from flock.lab.router_bird import ROLE as BIRD


def start_in_its_room(lab: Lab, node: str) -> Path:
    own = lab.node(node)
    router_bird.run(own.host, config=own.bird_dir / "bird.conf", socket=own.run_dir / "bird/bird.ctl")
    return own.run_dir / "bird.ctl"


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])  # the latter leaves a socket nobody answers at
def test_a_bird_that_moves_into_its_room_is_found_under_the_name_everybody_knows(lab: Lab, end: signal.Signals) -> None:
    lab.host("n1").stop(BIRD, by=end)
    name = start_in_its_room(lab, "n1")
    becomes(lambda: degraded(lab, "n1"), "")
    assert name.is_symlink()
    assert "bgp_r1" in node_birdc(lab, "n1", "show protocols")
    becomes(lambda: set(received(lab, "n1")), AGGREGATES["n1"])
    lab.host("n1").stop(BIRD, by=end)
    lab.node("n1").start_bird()
    becomes(lambda: degraded(lab, "n1"), "")
    assert name.is_socket() and not name.is_symlink()


def test_a_bird_that_restarts_in_its_room_is_found_again(lab: Lab) -> None:
    lab.host("n1").stop(BIRD)
    start_in_its_room(lab, "n1")
    becomes(lambda: degraded(lab, "n1"), "")
    lab.host("n1").stop(BIRD, by=signal.SIGKILL)
    start_in_its_room(lab, "n1")
    becomes(lambda: degraded(lab, "n1"), "")
    becomes(lambda: established(lab, "n1"), True)
    lab.host("n1").stop(BIRD)

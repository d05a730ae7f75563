"""All that comes to be in a run directory is known where it is made, so that taking flock off a host takes it along."""

import subprocess
import sys
from pathlib import Path

import pytest
from fault_steps import await_death

from flock.cli.uninstall import made_in
from harness import Node, eventually, run

GOING_DOWN = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1"},
    "status": {"conditions": [{"type": "Ready", "status": "False", "message": "node is shutting down"}]},
}


def found_in(directory: Path) -> set[Path]:
    return {path.relative_to(directory) for path in directory.rglob("*")}


def unknown(node: Node) -> set[str]:
    made = {path.relative_to(node.run_dir) for path in made_in(node.run_dir, bird=True)}
    return {str(path) for path in found_in(node.run_dir) - made}


def uninstall(node: Node, *more: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-c", "from flock.cli.installer import main; main()", "--uninstall"]
    elsewhere = [f"--{name}-dir={node.directory}/no/{name}" for name in ("bin", "conf", "networkd", "networkd-conf")]
    elsewhere += [f"--{name}-dir={node.directory}/no/{name}" for name in ("networkmanager", "rt-protos", "systemd")]
    own = [f"--run-dir={node.run_dir}", f"--bird-dir={node.directory}/bird"]
    return node.execute(*program, *own, *elsewhere, *more)


def test_an_agent_makes_nothing_in_its_run_directory_that_uninstalling_would_not_know(node: Node) -> None:
    """Running, with a BIRD in its room, on a node that goes down; then killed in the middle of work, then away."""
    room = node.run_dir / "bird"
    socket = room / "bird.ctl"
    command = ["bird", "-f", "-c", str(node.directory / "bird/bird.conf"), "-s", str(socket)]
    bird = subprocess.Popen(["nsenter", f"--net=/run/netns/{node.netns}", *command], stderr=subprocess.DEVNULL)
    try:
        node.write("node", GOING_DOWN)
        eventually((node.run_dir / "bird.ctl").is_symlink, what="the agent finds BIRD")
        eventually((room / "going-down").exists, what="BIRD is told that the node goes down")
        eventually((node.run_dir / "serving").exists, what="the agent says that it serves")
        assert unknown(node) == set()
        node.pod("old")
        node.stop()
        node.start(fault="add.pending=kill@1")
        node.namespace("half")
        adding = node.cni_start("ADD", "half", wait=1)
        await_death(node)
        adding.communicate(timeout=60)
        node.cni("DEL", "old", deferDel=True)
        assert {path.parent.name for path in node.run_dir.rglob("*")} >= {"pending", "deferred", "bird"}
        assert unknown(node) == set()
        for name in ("flock.sock", "bird.ctl"):  # an agent that was killed while it put them in place
            (node.run_dir / name).rename(node.run_dir / f".{name}.4711")
        assert unknown(node) == set()
    finally:
        bird.kill()
        bird.wait()


def test_uninstalling_takes_what_is_flocks_out_of_a_directory_and_leaves_the_rest(node: Node) -> None:
    (node.run_dir / "thesis.txt").write_text("years of work")
    (node.run_dir / "notes").mkdir()
    (node.run_dir / "notes/first").write_text("mine")
    (node.run_dir / "pending/letter.txt").write_text("mine")
    (node.run_dir / "deferred/todo").write_text("mine")
    (node.run_dir / "bird/bird.conf").write_text("mine")
    theirs = {Path(name) for name in ("thesis.txt", "notes", "notes/first", "pending", "pending/letter.txt")}
    theirs |= {Path(name) for name in ("deferred", "deferred/todo", "bird", "bird/bird.conf")}
    node.stop()
    said = uninstall(node).stdout
    assert found_in(node.run_dir) == theirs
    assert f"left alone {node.run_dir}: not flock's are bird, deferred, notes, pending, thesis.txt" in said


def test_a_run_directory_goes_when_nothing_else_is_in_it(node: Node) -> None:
    node.stop()
    assert f"removed {node.run_dir}" in uninstall(node).stdout
    assert not node.run_dir.exists()


@pytest.mark.parametrize("place", ["bird", "run"])
def test_a_bird_of_others_and_its_file_stay_whichever_directory_is_named(fresh: Node, place: str) -> None:
    """As `/etc/bird` and `/run` are on a host with the distribution's BIRD."""
    bird_dir = fresh.directory / "bird"
    conf, socket = bird_dir / "bird.conf", fresh.run_dir / "bird/bird.ctl"
    socket.parent.mkdir()
    conf.write_text("router id 192.0.2.1;\nprotocol device { }\n")
    command = ["bird", "-f", "-c", str(conf), "-s", str(socket)]
    with subprocess.Popen(["nsenter", f"--net=/run/netns/{fresh.netns}", *command], stderr=subprocess.DEVNULL) as bird:
        try:
            asked = ("birdc", "-s", socket, "show", "status")
            eventually(lambda: run(*asked, check=False).returncode == 0, what="BIRD answers")
            said = uninstall(fresh).stdout if place == "run" else uninstall(fresh, "--run-dir=/nowhere").stdout
            assert f"left alone {conf}: flock did not write it" in said
            assert conf.exists() and socket.is_socket()
            assert run(*asked).returncode == 0 and bird.poll() is None
        finally:
            bird.kill()

"""`flockctl view --lab`: all nodes and routers of a lab, what is cut, and who went away and came back."""

import json
import signal
import subprocess
import urllib.request
from pathlib import Path
from unittest.mock import Mock

import pytest
from viewing import watching

from flock.lab.errors import LabError
from flock.lab.fabric import Lab
from flock.lab.home import Home
from flock.lab.nodes import AGENT
from flock.view import lab as module
from flock.view.lab import LabSource
from flock.view.source import CannotTell
from harness import BIN
from looping import looped


@looped
async def test_nodes_routers_and_cut_links_of_a_lab_are_seen(seen_lab: Lab) -> None:
    async with watching(LabSource(seen_lab.home)) as view:
        for name in ("n1", "n2"):
            await view.until(lambda v, name=name: v.node(name)["reached"], f"{name} is reached")
            assert view.node(name)["status"]["node"] == name and view.node(name)["problem"] == ""
        for name in ("r1", "r2", "client"):
            await view.until(lambda v, name=name: not v.router(name)["trouble"], f"{name} is seen")
            assert {"peer", "up", "state", "bfd", "since", "last_error"} <= {*view.router(name)["sessions"][0]}
        assert view.cut == [] and "n1" in view.router("r1")["routes"]["2001:db8:1::/64"]
        seen_lab.cut("n1-r1")
        try:
            await view.until(lambda v: v.cut == ["n1-r1"], "the cut")
            await view.until(
                lambda v: not next(s for s in v.router("r1")["sessions"] if s["peer"] == "n1")["up"], "the session"
            )
        finally:
            seen_lab.mend("n1-r1")
        await view.until(lambda v: all(s["up"] for s in v.router("r1")["sessions"]) and not v.cut, "all is well")
    seen_lab.wait()


@looped
async def test_an_agent_that_is_killed_is_shown_with_since_when_and_taken_up_when_it_is_back(seen_lab: Lab) -> None:
    node = seen_lab.node("n2")
    async with watching(LabSource(seen_lab.home)) as view:
        await view.until(lambda v: v.node("n1")["reached"] and v.node("n2")["reached"], "both are reached")
        node.host.stop(AGENT, by=signal.SIGKILL)
        try:
            await view.until(lambda v: v.node("n2")["reached"] is False, "n2 is missed")
            missed = view.node("n2")
            assert missed["seen"] > 0 and "does not answer" in missed["problem"] and missed["status"]["node"] == "n2"
            assert view.node("n1")["reached"]
        finally:
            node.start_agent()
        await view.until(lambda v: v.node("n2")["reached"], "n2 is back")
        assert view.node("n2")["seen"] > missed["seen"]
    node.wait_ready()


@looped
async def test_routers_that_cannot_be_asked_are_shown_as_last_seen(
    seen_lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ROUTERS_EVERY", 0.1)
    async with watching(LabSource(seen_lab.home)) as view:
        await view.until(lambda v: not v.router("r1")["trouble"] and v.node("n1")["reached"], "r1 and n1")
        for error in (subprocess.TimeoutExpired("ip", 30), FileNotFoundError("speaker.json"), ValueError("no JSON")):
            with monkeypatch.context() as broken:
                broken.setattr(module, "observe_routers", Mock(side_effect=error))
                await view.until(lambda v: "cannot be asked" in v.router("r1")["trouble"], f"{error}")
                assert view.router("r1")["sessions"] and view.node("n1")["reached"]
            await view.until(lambda v: not v.router("r1")["trouble"], "r1 again")


@looped
async def test_sockets_are_asked_and_refuse_what_they_do_not_know(seen_lab: Lab) -> None:
    source = LabSource(seen_lab.home)
    assert json.loads(await source.ask("n1", "check")) == []
    [answer] = json.loads(await source.ask("n1", "policy", "why", "2001:db8::1", "2001:db8::2", "80/TCP"))
    assert answer["verdict"] == "allow"
    with pytest.raises(CannotTell, match="no-such-pod"):
        await source.ask("n1", "policy", "why", "default/no-such-pod", "2001:db8::2", "80")
    for hostile in ("a\nb", "--help", "", "$(id)", "x" * 400):
        with pytest.raises(CannotTell, match="is no pod"):
            await source.ask("n1", "policy", "why", hostile, "2001:db8::2", "80")


def test_without_a_lab_there_is_nothing_to_see() -> None:
    with pytest.raises(LabError, match="no lab"):
        LabSource(Home(Path("/run/flock-lab/there-is-none")))


def test_the_command_prints_an_address_that_works_and_ends_when_interrupted(seen_lab: Lab) -> None:
    command = [str(BIN / "flockctl"), "view", "--lab", seen_lab.name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as view:
        assert view.stdout is not None
        address = view.stdout.readline().strip()
        with urllib.request.urlopen(address, timeout=30) as page:
            assert page.status == 200
        with urllib.request.urlopen(f"{address}api/stream", timeout=30) as stream:
            assert stream.readline().startswith(b"retry")
            view.send_signal(signal.SIGINT)
            out, error = view.communicate(timeout=30)
    assert (view.returncode, out, error) == (0, "", "")

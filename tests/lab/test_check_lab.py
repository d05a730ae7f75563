"""`flockctl check lab`: a lab that works is green, and of one that does not the right line is red."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lab_making import new_name, remove

from flock.core.checkup import NAMESPACE, Row
from flock.edge.examining import examine
from flock.lab import namespaces
from flock.lab.checkup import LabGround
from flock.lab.errors import LabError
from flock.lab.fabric import Lab
from flock.lab.hosts import wait_until
from flock.lab.nodes import AGENT
from listening import listen

FLOCKCTL = str(Path(sys.executable).with_name("flockctl"))
SETTLE = 15.0


@pytest.fixture(scope="module")
def shared() -> Iterator[Lab]:
    name = new_name()
    try:
        yield Lab.up(name=name, nodes=2, routers=2)
    finally:
        remove(name)


@pytest.fixture
def lab(shared: Lab) -> Iterator[Lab]:
    """Settled before, and nothing of a check is left behind."""
    shared.wait()
    yield shared
    assert not left(shared)


def left(lab: Lab) -> list[str]:
    pods = [pod.key for pod in lab.pods if pod.namespace == NAMESPACE]
    files = [str(p) for p in lab.home.path.rglob("*") if NAMESPACE in p.name or p.name.startswith("check.a-")]
    return [*pods, *files, *(n for n in namespaces.present(lab.name) if NAMESPACE in n)]


def checked(lab: Lab, *options: str) -> tuple[int, list[Row]]:
    done = subprocess.run(
        [FLOCKCTL, "check", "lab", lab.name, "-o", "json", *options], capture_output=True, text=True, timeout=100
    )
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, [Row(**row) for row in json.loads(done.stdout)]


def red(rows: list[Row]) -> set[tuple[str, str]]:
    return {(row.check, row.source.partition("/")[0]) for row in rows if row.result == "fail"}


@pytest.fixture
def mending() -> Iterator[Callable[[Callable[[], object]], None]]:
    """What is broken in a test is mended after it, last first."""
    repairs: list[Callable[[], object]] = []
    yield repairs.append
    for repair in reversed(repairs):
        repair()


def test_a_lab_that_works_is_green_and_says_what_it_did_not_try(lab: Lab) -> None:
    code, rows = checked(lab)
    assert (code, red(rows)) == (0, set())
    done = {row.check for row in rows if row.result == "pass"}
    assert done >= {"agent", "sessions", "policy rules", "pods attach", "pod to pod", "node to pod", "full size"}
    assert done >= {"policy denies", "anycast moves"}
    assert {row.check: bool(row.said) for row in rows if row.result == "skip"} == {
        "pod to Service": True,
        "names": True,
        "host ports": True,
    }
    assert {row.family for row in rows if row.check == "anycast moves"} == {"ipv6", "ipv4"}


@pytest.mark.slow
def test_a_link_that_is_cut_shows_as_its_session(lab: Lab, mending: Callable[..., None]) -> None:
    lab.cut("n1-r1")
    mending(lambda: lab.mend("n1-r1"))
    assert wait_until(lambda: bool(lab.missing_sessions()), timeout=SETTLE)
    code, rows = checked(lab)
    assert (code, red(rows)) == (1, {("sessions", "n1")})
    (row,) = (row for row in rows if row.result == "fail")
    assert row.said.startswith("r1: ") and row.look.endswith("bgp")


@pytest.mark.slow
def test_a_router_with_a_smaller_mtu_is_named_and_only_full_size_fails(lab: Lab, mending: Callable[..., None]) -> None:
    for router in ("r1", "r2"):
        lab.host(router).run(["ip", "link", "set", "n1", "mtu", "1400"])
        mending(lambda r=router: lab.host(r).run(["ip", "link", "set", "n1", "mtu", "1500"]))
    code, rows = checked(lab)
    assert (code, {check for check, _ in red(rows)}) == (1, {"full size"})
    towards = [row for row in rows if (row.check, row.source, row.target) == ("full size", "n2/a", "n1/b")]
    assert {row.family for row in towards} == {"ipv6", "ipv4"}
    for row in towards:
        assert row.hop.split()[0] in ("r1", "r2") and "no packet over 1400 bytes" in row.said


@pytest.mark.slow
def test_a_bird_that_is_stopped_shows_as_sessions_of_its_node_and_across(
    lab: Lab, mending: Callable[..., None]
) -> None:
    node = lab.node("n2")
    node.host.stop("bird")
    mending(node.start_bird)
    code, rows = checked(lab)
    assert code == 1 and {node for check, node in red(rows) if check == "sessions"} == {"n2"}
    assert not {row.check for row in rows if row.result == "fail"} & {"policy rules", "policy denies", "node to pod"}
    assert all(row.said.startswith("BIRD") for row in rows if (row.check, row.source) == ("sessions", "n2"))


@pytest.mark.slow
def test_rules_that_are_gone_while_the_agent_stands_still_are_told_by_the_kernel(
    lab: Lab, mending: Callable[..., None]
) -> None:
    process = lab.node("n1").host.process(AGENT)
    assert process is not None
    os.kill(process.pid, signal.SIGSTOP)
    mending(lambda: os.kill(process.pid, signal.SIGCONT))
    lab.host("n1").run(["nft", "flush", "ruleset"])
    code, rows = checked(lab)
    assert code == 1 and ("policy rules", "n1") in red(rows) and ("agent", "n1") in red(rows)
    assert not {row.source for row in rows if row.result == "fail"} & {"n2"}


@pytest.mark.slow
def test_rules_that_go_while_pods_are_there_let_a_denied_packet_through(lab: Lab, mending: Callable[..., None]) -> None:
    agent = lab.node("n1").host.process(AGENT)
    assert agent is not None
    mending(lambda: os.kill(agent.pid, signal.SIGCONT))

    class Faulty(LabGround):
        def prepare(self) -> list[Row]:
            rows = super().prepare()
            os.kill(agent.pid, signal.SIGSTOP)
            lab.host("n1").run(["nft", "flush", "ruleset"])
            return rows

        def clean(self) -> None:
            os.kill(agent.pid, signal.SIGCONT)  # a DEL would wait for it
            super().clean()

    heard = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    rows = examine(Faulty(lab, nodes=["n1", "n2"]))
    assert heard == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    bitten = {row.source: row for row in rows if row.check == "policy denies" and row.family == "ipv6"}
    assert (bitten["n1/a"].result, bitten["n2/a"].result) == ("fail", "pass")
    assert "does not bite" in bitten["n1/a"].said


@pytest.mark.slow
@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL], ids=lambda s: s.name)
def test_an_interrupted_check_leaves_nothing_and_a_killed_one_is_cleaned_up_by_the_next(
    lab: Lab, by: signal.Signals
) -> None:
    with subprocess.Popen(
        [FLOCKCTL, "check", "lab", lab.name], stdout=subprocess.DEVNULL, preexec_fn=listen
    ) as process:
        assert wait_until(lambda: len([p for p in lab.pods if p.result]) >= 3, timeout=SETTLE)
        process.send_signal(by)
        assert process.wait(timeout=60) == (1 if by != signal.SIGKILL else -signal.SIGKILL)
    if by == signal.SIGKILL:
        assert left(lab)
        (lab.home.manifests / f".pod-{NAMESPACE}.b-n1.json.1.tmp").touch()  # in the middle of a file, too
        assert checked(lab)[0] == 0


def test_a_lab_is_not_checked_twice_at_once(lab: Lab) -> None:
    ground = LabGround(lab, nodes=["n1"])
    try:
        with pytest.raises(LabError, match="already"):
            LabGround(lab, nodes=["n1"])
    finally:
        ground.clean()


def test_one_node_is_enough_for_what_needs_one(lab: Lab) -> None:
    code, rows = checked(lab, "--nodes", "n2")
    assert code == 0
    assert {row.source.partition("/")[0] for row in rows if row.result == "pass"} == {"n2"}
    assert {"across nodes", "anycast moves"} <= {row.check for row in rows if row.result == "skip"}

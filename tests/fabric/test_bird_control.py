"""The agent and its BIRD: absent, late, dead and back, or unwilling.  Pods never notice, people always do."""

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from fabric_parts import (
    AGGREGATES,
    BOTH,
    OWN,
    V6,
    MakeLab,
    Spec,
    becomes,
    bird_conf,
    change_config,
    degraded,
    established,
    eventually,
    flockctl,
    received,
    reloads,
    senders,
    start_agent,
    status,
    stop_agent,
    told,
    up_since,
)

from flock.lab.fabric import Lab
from flock.lab.router_bird import ROLE as BIRD

REFUSED = "64601:666"
FAKE_BIRD = """#!/bin/sh
# Refuses what names the community of the beast, and has the real one judge the rest.
for last; do :; done
if grep -q "64601, 666" "$last"; then echo "$last:6:6 syntax error, unexpected beast" >&2; exit 1; fi
exec {real} "$@"
"""


def tag(community: str) -> object:
    def change(spec: Spec) -> None:
        for peer in spec["bgp"]["peers"]:
            peer["communities"] = [community]

    return change


@pytest.fixture
def picky(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """The agent of n1 checks files with a BIRD that refuses one thing the running one would take."""
    program = tmp_path / "bird"
    program.write_text(FAKE_BIRD.format(real="/usr/sbin/bird"))
    program.chmod(0o755)
    stop_agent(lab, "n1", signal.SIGTERM)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        start_agent(lab, "n1")
    yield lab
    stop_agent(lab, "n1", signal.SIGTERM)
    start_agent(lab, "n1")


def test_a_file_bird_would_refuse_is_never_put_in_place_and_the_reason_is_seen(picky: Lab) -> None:
    conf, since, count = bird_conf(picky, "n1"), up_since(picky, "n1"), reloads(picky, "n1")
    change_config(picky, "n1", tag(REFUSED))
    eventually(lambda: degraded(picky, "n1"), lambda text: "unexpected beast" in text)
    shown = flockctl(picky, "n1", "status")
    assert (shown.returncode, "unexpected beast" in shown.stdout) == (0, True)
    assert (bird_conf(picky, "n1"), up_since(picky, "n1"), reloads(picky, "n1")) == (conf, since, count)
    assert [path.name for path in picky.node("n1").bird_dir.iterdir()] == ["bird.conf"]
    picky.pods.add("a", node="n1", annotations={f"{OWN}/anycast": BOTH}, ready=True)  # and life goes on
    becomes(lambda: senders(picky, V6), {"n1"})
    change_config(picky, "n1", tag("64601:667"))
    becomes(lambda: degraded(picky, "n1"), "")
    assert "64601, 667" in bird_conf(picky, "n1")
    assert up_since(picky, "n1") == since


class UnwillingBird:
    """A control socket that answers `configure` with BIRD's own words for a file it does not take."""

    def __init__(self, path: Path, *, version: str = "2.0.12") -> None:
        self._version, self.heard = version, list[str]()
        self._listener = socket.socket(socket.AF_UNIX)
        path.unlink(missing_ok=True)
        self._listener.bind(str(path))
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                with connection, connection.makefile("rw") as talk:
                    talk.write(f"0001 BIRD {self._version} ready.\n")
                    talk.flush()
                    for line in talk:
                        self.heard.append(line)
                        refusal = "0002-Reading configuration from bird.conf\n8002 bird.conf:6:6 unexpected beast\n"
                        talk.write(refusal if line.startswith("configure") else "0013 Daemon is up and running\n")
                        talk.flush()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def test_a_bird_that_refuses_to_reconfigure_is_told_of(make_lab: MakeLab) -> None:
    lab = make_lab(nodes=1, routers=1)
    lab.node("n1").host.stop(BIRD)
    unwilling = UnwillingBird(lab.node("n1").run_dir / "bird.ctl")
    try:
        eventually(lambda: degraded(lab, "n1"), lambda text: "refused" in text and "unexpected beast" in text)
        assert status(lab, "n1")["ready"]
    finally:
        unwilling.close()


def test_bird_3_is_refused_by_name_and_told_nothing(make_lab: MakeLab) -> None:
    lab = make_lab(nodes=1, routers=1)
    lab.node("n1").host.stop(BIRD)
    later = UnwillingBird(lab.node("n1").run_dir / "bird.ctl", version="3.1.7")
    try:
        eventually(lambda: degraded(lab, "n1"), lambda text: "it is BIRD 3.1.7, and flock knows BIRD 2 alone" in text)
        assert status(lab, "n1")["ready"] and later.heard == []
    finally:
        later.close()


def test_without_bird_pods_are_attached_and_what_is_announced_waits_for_it(lab: Lab) -> None:
    """BIRD dies, stays away while things change, and comes back to the right picture."""
    lab.node("n1").host.stop(BIRD, by=signal.SIGKILL)
    eventually(lambda: degraded(lab, "n1"), lambda text: "BIRD" in text)
    shown = flockctl(lab, "n1", "status")
    assert (shown.returncode, "BIRD" in shown.stdout) == (0, True)
    assert flockctl(lab, "n1", "bgp").returncode != 0
    lab.pods.add("a", node="n1", annotations={f"{OWN}/anycast": BOTH}, ready=True)
    change_config(lab, "n1", lambda spec: spec["cidr6"].append("2001:db8:1:1::/64"))
    eventually(lambda: bird_conf(lab, "n1"), lambda text: "2001:db8:1:1::/64" in text)
    lab.node("n1").start_bird()
    wanted = AGGREGATES["n1"] | {"2001:db8:1:1::/64", "2001:db8:53::1/128", "192.0.2.1/32"}
    becomes(lambda: set(received(lab, "n1")), wanted)
    becomes(lambda: degraded(lab, "n1"), "")


def test_an_agent_that_starts_without_bird_is_ready_and_finds_it_when_it_comes(lab: Lab) -> None:
    stop_agent(lab, "n1", signal.SIGTERM)
    lab.node("n1").host.stop(BIRD)
    conf = bird_conf(lab, "n1")
    start_agent(lab, "n1")
    eventually(lambda: degraded(lab, "n1"), lambda text: "BIRD" in text)
    lab.pods.add("a", node="n1", annotations={f"{OWN}/anycast": BOTH}, ready=True)
    lab.node("n1").start_bird()
    becomes(lambda: senders(lab, V6), {"n1"})
    becomes(lambda: degraded(lab, "n1"), "")
    assert bird_conf(lab, "n1") == conf


def test_a_bird_that_runs_something_else_is_put_right(lab: Lab) -> None:
    """The agent was dead when the NodeConfig changed, or died between writing the file and telling BIRD."""
    stop_agent(lab, "n1", signal.SIGKILL)
    change_config(lab, "n1", lambda spec: spec["cidr6"].append("2001:db8:1:1::/64"))
    start_agent(lab, "n1")
    becomes(lambda: set(received(lab, "n1")), AGGREGATES["n1"] | {"2001:db8:1:1::/64"})
    # now the file is right and BIRD is not
    stop_agent(lab, "n1", signal.SIGKILL)
    right = bird_conf(lab, "n1")
    conf = lab.node("n1").bird_dir / "bird.conf"
    lab.node("n1").host.stop(BIRD)
    conf.write_text(right.replace("route 2001:db8:1:1::/64 blackhole;", ""))
    lab.node("n1").start_bird()
    conf.write_text(right)
    becomes(lambda: set(received(lab, "n1")), AGGREGATES["n1"])
    start_agent(lab, "n1")
    becomes(lambda: set(received(lab, "n1")), AGGREGATES["n1"] | {"2001:db8:1:1::/64"})


def test_before_a_nodeconfig_there_is_a_file_bird_can_start_with(make_lab: MakeLab, tmp_path: Path) -> None:
    lab = make_lab(nodes=1, routers=1, settled=False)
    lab.wait()
    good = (lab.home.manifests / "nodeconfig-n1.json").read_bytes()
    conf = lab.node("n1").bird_dir / "bird.conf"
    stop_agent(lab, "n1", signal.SIGTERM)
    lab.node("n1").host.stop(BIRD)
    (lab.home.manifests / "nodeconfig-n1.json").unlink()
    conf.unlink()
    lab.node("n1").start_agent()
    lab.node("n1").start_bird()
    eventually(lambda: status(lab, "n1").get("not_ready", []), lambda why: "no NodeConfig named n1" in why)
    assert conf.stat().st_mode & 0o777 == 0o600
    assert "bgp" not in conf.read_text()
    (lab.home.manifests / "nodeconfig-n1.json").write_bytes(good)
    becomes(lambda: established(lab, "n1"), True)
    assert conf.stat().st_mode & 0o777 == 0o600


def happened(lab: Lab, node: str, *kinds: str) -> list[tuple[str, str]]:
    """Kinds and peers, in order; asking for it makes nobody look at BIRD."""
    rows = told(lab, node, "happened")["happened"]
    return [(row["happening"], row["peer"]) for row in rows if row["happening"] in kinds]


def test_a_session_that_goes_and_comes_is_told_at_once_though_nobody_looks(lab: Lab) -> None:
    """The agent itself looks every 30 s."""
    kinds = ("SessionDown", "SessionUp", "BfdDown", "BfdUp")
    becomes(lambda: {row["bfd"] for row in told(lab, "n1", "bgp")}, {"up"})
    known = happened(lab, "n1", *kinds)
    assert {("SessionUp", "r2"), ("BfdUp", "r2")} <= {*known}
    lab.cut("n1-r2")
    try:
        eventually(lambda: happened(lab, "n1", *kinds), lambda seen: ("SessionDown", "r2") in seen[len(known) :])
        assert happened(lab, "n1", *kinds)[len(known) :] == [("BfdDown", "r2"), ("SessionDown", "r2")]
    finally:
        lab.mend("n1-r2")
    eventually(
        lambda: happened(lab, "n1", *kinds)[len(known) + 2 :],
        lambda seen: {*seen} == {("SessionUp", "r2"), ("BfdUp", "r2")},
    )


def test_sessions_are_reported_with_state_since_prefixes_and_address(lab: Lab) -> None:
    lab.pods.add("a", node="n1", annotations={f"{OWN}/anycast": BOTH}, ready=True)
    rows = eventually(lambda: told(lab, "n1", "bgp"), lambda rows: all(row["exported"] == 4 for row in rows))
    assert [(row["peer"], row["asn"], row["address"], row["state"]) for row in rows] == [
        ("r1", 64521, "2001:db8:ff1:1::1", "Established"),
        ("r2", 64522, "2001:db8:ff2:1::1", "Established"),
    ]
    assert all(row["since"] and row["imported"] == 2 and not row["last_error"] for row in rows)  # the default routes
    assert json.loads(flockctl(lab, "n1", "bgp", "-o", "json").stdout) == rows
    lab.cut("n1-r2")
    try:
        down = eventually(lambda: told(lab, "n1", "bgp"), lambda rows: not rows[1]["up"])
        assert down[0]["up"] and down[1]["last_error"]
        assert flockctl(lab, "n1", "bgp").returncode == 1
    finally:
        lab.mend("n1-r2")

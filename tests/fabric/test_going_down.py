"""A host that goes down: told by what systemd leaves where a pod can look, or by the kubelet in the Node object."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from fabric_parts import (
    AGGREGATES,
    BOTH,
    OWN,
    V4,
    V6,
    becomes,
    follows,
    host_prefix,
    kernel_routes,
    received,
    start_agent,
    stop_agent,
    up_since,
    why_not,
)

from flock.lab.fabric import Lab
from flock.lab.home import write_object

ANYCAST = {f"{OWN}/anycast": BOTH}
EVERYTHING = AGGREGATES["n1"] | {host_prefix(a) for a in (V6, V4)}
UNITS = (
    "dbus",
    "kubelet",
    "containerd",
    "networking",
    "systemd-logind",
    "systemd-update-utmp",
    "systemd-user-sessions",
)
# What `systemctl reboot` of systemd 252 takes out of /run/systemd/units, in its order, up to where the network goes.
REBOOT = ("kubelet", "systemd-logind", "systemd-user-sessions", "containerd", "dbus", "networking")


def link(units: Path, name: str) -> Path:
    return units / f"invocation:{name}.service"


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """A host's /run/systemd/units while nothing happens."""
    for name in UNITS:
        link(tmp_path, name).symlink_to("5f1c7c3a0b8e4d0c8f0e6a1b2c3d4e5f")
    return tmp_path


@pytest.fixture
def announcing(lab: Lab, units: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """n1 announces anycast, and its agent sees the units."""
    monkeypatch.setenv("FLOCK_UNITS_DIR", str(units))
    stop_agent(lab, "n1", signal.SIGTERM)
    start_agent(lab, "n1")
    lab.pods.add("any", node="n1", annotations=ANYCAST, ready=True)
    follows(lambda: set(received(lab, "n1")), EVERYTHING)
    yield lab
    monkeypatch.undo()
    stop_agent(lab, "n1", signal.SIGTERM)


def told_bird(lab: Lab) -> bool:
    """Whether BIRD's pod knows that it need not come back."""
    return (lab.node("n1").run_dir / "bird/going-down").exists()


def say_ready(lab: Lab, node: str, *, status: str, message: str) -> None:
    """The Node as its kubelet keeps it."""
    condition = {"type": "Ready", "status": status, "reason": "KubeletNotReady", "message": message}
    manifest = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node},
        "status": {"conditions": [{"type": "MemoryPressure", "status": "False"}, condition]},
    }
    write_object(lab.home.manifests, f"00-node-{node}", manifest)


def test_a_shutdown_withdraws_anycast_with_the_session_up_before_the_network_goes(announcing: Lab, units: Path) -> None:
    since = up_since(announcing, "n1")
    before_the_network = REBOOT[: REBOOT.index("containerd")]
    for name in before_the_network:
        link(units, name).unlink()
    follows(lambda: set(received(announcing, "n1")), AGGREGATES["n1"])
    assert up_since(announcing, "n1") == since
    assert why_not(announcing, "n1")["default/any", V6] == "the node is going down"
    assert told_bird(announcing)
    for name in REBOOT[len(before_the_network) :]:
        link(units, name).unlink()
    stop_agent(announcing, "n1", signal.SIGTERM)
    assert kernel_routes(announcing, "n1") == {}


def test_a_kubelet_that_stops_alone_is_no_shutdown(announcing: Lab, units: Path) -> None:
    link(units, "kubelet").unlink()
    # a later change of the same kind has been taken in, so the kubelet's end has too
    announcing.pods.add("later", node="n1", annotations={f"{OWN}/anycast": "2001:db8:53::2"}, ready=True)
    follows(lambda: set(received(announcing, "n1")), EVERYTHING | {"2001:db8:53::2/128"})
    assert not told_bird(announcing)


def test_a_shutdown_that_is_taken_back_restores_what_was_announced(announcing: Lab, units: Path) -> None:
    sign = link(units, "systemd-user-sessions")
    sign.unlink()
    follows(lambda: set(received(announcing, "n1")), AGGREGATES["n1"])
    sign.symlink_to("00000000000000000000000000000000")
    follows(lambda: set(received(announcing, "n1")), EVERYTHING)
    becomes(lambda: told_bird(announcing), False)


def test_a_host_that_never_had_the_sign_announces(lab: Lab, units: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another init, or systemd without user sessions."""
    link(units, "systemd-user-sessions").unlink()
    monkeypatch.setenv("FLOCK_UNITS_DIR", str(units))
    stop_agent(lab, "n1", signal.SIGTERM)
    start_agent(lab, "n1")
    lab.pods.add("any", node="n1", annotations=ANYCAST, ready=True)
    follows(lambda: set(received(lab, "n1")), EVERYTHING)
    monkeypatch.undo()
    stop_agent(lab, "n1", signal.SIGTERM)


def test_a_kubelet_that_ends_pods_for_a_shutdown_says_so_in_the_node(announcing: Lab) -> None:
    """Graceful node shutdown: systemd waits for the kubelet, so nothing of it can be seen on the host yet."""
    since = up_since(announcing, "n1")
    say_ready(announcing, "n1", status="False", message="node is shutting down")
    follows(lambda: set(received(announcing, "n1")), AGGREGATES["n1"])
    becomes(lambda: told_bird(announcing), True)
    say_ready(announcing, "n1", status="True", message="kubelet is posting ready status")
    follows(lambda: set(received(announcing, "n1")), EVERYTHING)
    assert up_since(announcing, "n1") == since


def test_a_node_that_is_not_ready_for_another_reason_announces_on(announcing: Lab) -> None:
    say_ready(announcing, "n1", status="False", message="container runtime is down")
    announcing.pods.add("later", node="n1", annotations={f"{OWN}/anycast": "2001:db8:53::2"}, ready=True)
    follows(lambda: set(received(announcing, "n1")), EVERYTHING | {"2001:db8:53::2/128"})

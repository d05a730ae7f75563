"""What an earlier life announced and enforced stays in force until this one has seen all of it."""

import asyncio
import copy
import json
import shutil
from ipaddress import ip_network
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from anycasting import ANYCAST, announced, anycast_pod, granting, route_changes
from looking import flockctl, settle

from flock.agent.aggregates import Aggregates
from flock.agent.happened import Happened
from flock.agent.healing import Healer
from flock.core.errors import KernelRefused
from flock.core.model import Allocation
from flock.core.naming import HOST_MAC
from flock.edge.kernel.observe import Observed
from flock.edge.kernel.threads import Kernel
from flock.edge.netlink import wire as w
from flock.edge.netlink.route import Link, Request
from harness import Node, eventually
from thoroughness import slowly

RETIRED = "2001:db8:1::/64"


@pytest.fixture
def retired(fresh: Node) -> Node:
    """A node whose one pod has an anycast address, and its own address in a prefix that was taken away."""
    fresh.write("nodeconfig", granting())
    fresh.start()
    anycast_pod(fresh)
    fresh.write("nodeconfig", granting(cidr6=["2001:db8:2::/64"]))
    eventually(lambda: "2001:db8:2::/64" in str(fresh.ask("config")), what="the new prefix is in force")
    eventually(lambda: len(blackholes(fresh)) == 3, what="both prefixes end in a blackhole")
    eventually(lambda: "2001:db8:2::/64" in bird_conf(fresh).read_text(), what="bird.conf is written")
    fresh.stop()
    return fresh


def blackholes(node: Node) -> set[str]:
    shown = [*node.ip_json("-6", "route"), *node.ip_json("-4", "route")]
    return {route["dst"] for route in shown if route.get("type") == "blackhole"}


def bird_conf(node: Node) -> Path:
    return node.directory / "bird" / "bird.conf"


@pytest.mark.parametrize("refused", [range(1, 31, 14), *slowly(range(1, 31, 2))], ids=["some", "all"])
def test_a_look_at_the_kernel_that_fails_withdraws_nothing(retired: Node, refused: range) -> None:
    """Whatever a start is refused: anycast, retired prefixes and BIRD's file survive it."""
    before, text = blackholes(retired), bird_conf(retired).read_text()
    assert RETIRED in before and RETIRED in text
    looks = ["kernel.look=EIO@1-2", "kernel.look=EIO@2-4"]
    for fault in [*looks, *(f"netlink.send=ENOBUFS@{count}" for count in refused)]:
        inode = bird_conf(retired).stat().st_ino
        with route_changes(retired) as changes:
            retired.start(fault=fault)
            eventually(lambda: ANYCAST in retired.ask("status")["announced"], what="a run of the announcer")
            assert announced(retired)
            assert blackholes(retired) == before
            retired.stop()
        assert not changes.about(ANYCAST), f"{fault}: {changes.about(ANYCAST)}"
        assert not changes.about(RETIRED), f"{fault}: {changes.about(RETIRED)}"
        assert bird_conf(retired).stat().st_ino == inode, f"{fault}: bird.conf was rewritten"


def test_a_first_look_that_fails_is_why_a_node_is_not_ready(fresh: Node) -> None:
    fresh.start(fault="kernel.look=EIO@2-9999", wait=False)
    eventually(lambda: serves(fresh) and "first look" in str(fresh.ask("status")["not_ready"]), what="it is said")
    eventually(lambda: "Input/output error" in str(fresh.ask("status")["not_ready"]), what="and why")


class RefusingBlackholes(Kernel):
    """A kernel with an empty table of routes that takes all but blackholes."""

    def __init__(self) -> None:
        self.applied: list[str] = []

    async def observe(self) -> Observed:
        link = Link.decode(bytes(16))._replace(index=7, name="flock00000001", up=True, mac=HOST_MAC)
        return Observed({link.name: link}, {}, [], {}, frozenset({7}))

    async def apply(self, requests: list[Request], *, ignore: Any = ()) -> None:
        for request in requests:
            if request.body[7] == w.RTN_BLACKHOLE and request.kind == w.RTM_NEWROUTE:
                raise KernelRefused("add a route: not now")
            self.applied.append(request.what)

    async def delete_links(self, indexes: Any) -> None:
        assert not indexes


def test_a_prefix_whose_blackhole_is_refused_keeps_no_pod_waiting() -> None:
    pod = Allocation(container_id="a", namespace="default", pod_name="a", owner_uid="", ip4="192.0.2.2",
                     state="committed", allocated_at="", host_interface="flock00000001")  # fmt: skip
    attached: Any = SimpleNamespace(
        entries=(pod,), of={"a": pod}.get, is_busy=lambda _: False, owner_of=lambda _: "a", note_links=lambda _: None
    )
    attachments: Any = SimpleNamespace(perhaps_half_rebuilt=list)

    configured: Any = SimpleNamespace(
        config=SimpleNamespace(aggregates=(ip_network("192.0.2.0/24"),)), subscribe=lambda _: None
    )
    preparing: Any = SimpleNamespace(trigger=lambda: None)

    async def story() -> None:
        kernel = RefusingBlackholes()
        healer = Healer(
            attached=attached,
            attachments=attachments,
            kernel=kernel,
            aggregates=Aggregates(configured),
            preparing=preparing,
            happened=Happened(),
            grace=0.0,
        )
        await healer.reconcile()
        assert "add a route" in kernel.applied, "the pod's route is repaired"
        assert "192.0.2.0/24" in healer.problem and "not now" in healer.problem

    asyncio.run(story())


def closed() -> dict[str, Any]:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "deny", "namespace": "default"},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
    }


def test_nothing_is_healed_before_the_rules_are_in_force(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link that comes up again carries packets at once."""
    node.write("policy", closed())
    name = node.pod("a")["interfaces"][0]["name"]
    eventually(lambda: node.ask("status")["policies"] == 1)
    node.stop()
    node.execute("nft", "flush", "ruleset")
    node.ip("link", "set", name, "down")
    programs = tmp_path / "programs"  # all but nft
    programs.mkdir()
    for program in ("nsenter", "bird"):
        (programs / program).symlink_to(shutil.which(program) or "")
    with monkeypatch.context() as poor:
        poor.setenv("PATH", str(programs))
        node.start(wait=False)
    eventually(
        lambda: serves(node) and "nft" in str(node.ask("status")["not_ready"]), what="the missing rules are shown"
    )
    node.ip("link", "add", "x0", "type", "veth", "peer", "name", "x1")  # wakes whoever listens
    write_config_anew(node)
    eventually(lambda: node.log.read_text().count("took NodeConfig") >= 3, what="a change that causes a pass")
    assert "UP" not in node.links()[name]["flags"]
    asked = flockctl(node, "check", "--repair")
    assert asked.returncode and "rules" in asked.stdout + asked.stderr, "nor when somebody asks for it"
    assert "UP" not in node.links()[name]["flags"]
    (programs / "nft").symlink_to(shutil.which("nft") or "")
    eventually(node.is_ready, what="everything comes up once the cause is gone")
    assert "UP" in node.links()[name]["flags"]
    settle(node)


def write_config_anew(node: Node) -> None:
    config = copy.deepcopy(json.loads((node.manifests / "nodeconfig.json").read_text()))
    config["spec"]["mtu"] = 1400
    node.write("nodeconfig", config)


def serves(node: Node) -> bool:
    try:
        return bool(node.ask("status"))
    except OSError:
        return False

"""NetworkPolicy as an operator meets it: bad objects, flushed rules, failing rules, what `flockctl policy` tells."""

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from probing import Cell
from realcluster import OUTSIDE, RealCluster, flockctl, policy

from harness import BIN, CniFailure, eventually

GUARD = policy("guard", {"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{"from": [{"podSelector": {}}]}]})
WEB, NEAR, FAR = "x/web", "x/near", "y/far"


@contextlib.contextmanager
def guarded_cluster(directory: Path) -> Iterator[RealCluster]:
    """x/web, which only its own namespace may reach, x/near and y/far."""
    with RealCluster(directory) as made:
        for name in ("x", "y"):
            made.namespace(name)
        made.set_policies([GUARD])
        made.add(WEB, {"app": "web"})
        made.add(NEAR, {})
        made.add(FAR, {})
        yield made


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    with guarded_cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture
def cluster(standing: RealCluster) -> RealCluster:
    standing.set_policies([GUARD])
    standing.settle()
    standing.finish_settling()
    return standing


def guarded(cluster: RealCluster, *, port: int = 80, protocol: str = "TCP", far: bool = False) -> None:
    """The near pod reaches the web pod, the far one does only if `far`."""
    cells = [Cell(source, WEB, family, protocol, port) for source in (NEAR, FAR) for family in (4, 6)]
    cluster.assert_reached(cells, expected=[c for c in cells if far or c.source == NEAR])


def ingress(rule: dict[str, Any]) -> dict[str, Any]:
    return {"podSelector": {}, "ingress": [rule]}


BAD = {
    "invalid CIDR": (ingress({"from": [{"ipBlock": {"cidr": "10.0.0.0/33"}}]}), "spec.ingress[0].from[0].ipBlock.cidr"),
    "exception outside": (
        ingress({"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["11.0.0.0/8"]}}]}),
        "spec.ingress[0].from[0].ipBlock.except[0]",
    ),
    "unknown operator": (
        {"podSelector": {"matchExpressions": [{"key": "app", "operator": "Like", "values": ["w*"]}]}},
        "spec.podSelector.matchExpressions[0]",
    ),
    "range backwards": (ingress({"ports": [{"port": 90, "endPort": 80}]}), "spec.ingress[0].ports[0].endPort"),
    "range beyond": (ingress({"ports": [{"port": 1, "endPort": 70000}]}), "spec.ingress[0].ports[0].endPort"),
    "10,000 ports": (ingress({"ports": [{"port": n} for n in range(1, 10_001)]}), "spec.ingress[0].ports"),
    "no list": ({"podSelector": {}, "ingress": "all"}, "spec.ingress"),
}


def test_bad_policies_are_refused_by_name_and_field_and_the_rest_stays_in_force(cluster: RealCluster) -> None:
    bad = [policy(f"bad{number}", spec) for number, (spec, _) in enumerate(BAD.values())]
    cluster.set_policies([GUARD, *bad])
    cluster.settle()
    shown = flockctl(cluster.nodes[0], "status")
    for number, (_, field) in enumerate(BAD.values()):
        (line,) = [line for line in shown.stdout.splitlines() if f"x/bad{number}" in line]
        assert field in line
    guarded(cluster)


def test_a_policy_that_turns_bad_stays_in_force_as_it_last_was_good(cluster: RealCluster) -> None:
    for spec, field in BAD.values():
        cluster.set_policies([policy("guard", spec)])
        cluster.settle()
        assert field in flockctl(cluster.nodes[0], "status").stdout
        guarded(cluster)
    cluster.nodes[0].kill()
    cluster.nodes[0].start()
    guarded(cluster)
    cluster.set_policies([])
    cluster.settle()
    assert "x/guard" not in flockctl(cluster.nodes[0], "status").stdout
    guarded(cluster, far=True)


def test_a_flushed_ruleset_is_closed_again(cluster: RealCluster) -> None:
    node = cluster.nodes[0]
    before = node.execute("nft", "-s", "list", "ruleset").stdout
    for command in ("flush ruleset", "delete table inet flock", "flush chain inet flock ingress"):
        node.execute("nft", command)
        eventually(lambda: tables(cluster) == tables_of(before), what=f"as it was before `nft {command}`")
        guarded(cluster)


def tables(cluster: RealCluster) -> list[str]:
    return tables_of(cluster.nodes[0].execute("nft", "-s", "list", "ruleset").stdout)


def tables_of(listing: str) -> list[str]:
    """Lines without counts, in an order of their own."""
    return sorted(line.strip() for line in listing.splitlines() if "packets" not in line)


# --- rules that cannot be installed --------------------------------------------------------------------------------


@pytest.fixture
def breakable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An nft that fails while the file exists."""
    broken, real = tmp_path / "broken", shutil.which("nft")
    (tmp_path / "bin").mkdir()
    wrapper = tmp_path / "bin" / "nft"
    complaint = 'echo "Error: no luck today" >&2; exit 1'
    wrapper.write_text(f'#!/bin/sh\nif [ -e {broken} ]; then {complaint}; fi\nexec {real} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return broken


@pytest.fixture
def fragile(breakable: Path, tmp_path: Path) -> Iterator[RealCluster]:
    """Whose agent uses that nft."""
    with guarded_cluster(tmp_path / "cluster") as made:
        yield made


def test_add_fails_and_leaves_nothing_where_its_rules_cannot_be_installed(
    breakable: Path, fragile: RealCluster
) -> None:
    node = fragile.nodes[0]
    nobodys_yet = policy("new", {"podSelector": {"matchLabels": {"app": "new"}}})  # so it is not in the kernel
    fragile.set_policies([GUARD, nobodys_yet])
    fragile.settle()
    links = set(node.links())
    breakable.touch()
    with pytest.raises(CniFailure) as failure:
        fragile.add("x/new", {"app": "new"})
    assert "rules cannot be put into force" in failure.value.msg and "no luck today" in failure.value.msg
    assert set(node.links()) <= links and "x-new" not in node.allocations()
    guarded(fragile)
    status = flockctl(node, "status", check=False)
    assert status.returncode == 1 and "no luck today" in status.stdout
    assert "not in the kernel as told here" in flockctl(node, "policy", "why", FAR, WEB, "80/TCP", check=False).stdout
    breakable.unlink()
    eventually(node.is_ready, what="ready again by itself")
    node.remove_namespace("x-new")
    fragile.add("x/new", {"app": "new"})
    cells = [Cell(NEAR, "x/new", family, "TCP", 80) for family in (4, 6)]
    fragile.assert_reached(cells, expected=[])
    guarded(fragile)


def test_an_agent_without_nft_takes_no_pods_and_says_why(breakable: Path, fragile: RealCluster) -> None:
    node = fragile.nodes[0]
    node.kill()
    breakable.touch()
    node.start(wait=False)
    eventually(lambda: "no luck today" in flockctl(node, "status", check=False).stdout, what="the reason is shown")
    node.namespace("late")
    with pytest.raises(CniFailure) as failure:
        node.cni("ADD", "late", wait=0.2)
    assert failure.value.code == 11 and "no luck today" in failure.value.msg
    guarded(fragile)  # the rules of the agent's earlier life
    breakable.unlink()
    eventually(node.is_ready, what="ready by itself")
    node.cni("ADD", "late")
    guarded(fragile)


# --- telling -------------------------------------------------------------------------------------------------------


def test_why_tells_the_verdict_and_the_policies_that_decided(cluster: RealCluster) -> None:
    node = cluster.nodes[0]
    denied = flockctl(node, "policy", "why", FAR, WEB, "80/TCP", check=False)
    assert denied.returncode == 1
    assert all(text in denied.stdout for text in ("deny", FAR, WEB, "x/guard", "isolated by"))
    allowed = flockctl(node, "policy", "why", NEAR, WEB, "80/TCP")
    assert "allow" in allowed.stdout and "x/guard ingress[0]" in allowed.stdout
    for family in (4, 6):
        question = (OUTSIDE[family], cluster.address(WEB, family), "53/udp")
        answer = flockctl(node, "policy", "why", *question, check=False)
        assert answer.returncode == 1 and OUTSIDE[family] in answer.stdout and WEB in answer.stdout
    answers = json.loads(flockctl(node, "policy", "why", WEB, OUTSIDE[4], "icmp", "-o", "json").stdout)
    assert [answer["verdict"] for answer in answers] == ["allow"]


def test_why_refuses_questions_that_make_no_sense(cluster: RealCluster) -> None:
    wrong_ports = [(NEAR, WEB, "80000/TCP"), (NEAR, WEB, "80/XYZ")]
    for question in (*wrong_ports, ("x/nobody", WEB, "80/TCP"), ("10.0.0.300", WEB, "80/TCP")):
        done = flockctl(cluster.nodes[0], "policy", "why", *question, check=False)
        assert done.returncode and not done.stdout, question
        assert done.stderr and "Traceback" not in done.stderr


def test_show_lists_what_applies_to_a_pod(cluster: RealCluster) -> None:
    node = cluster.nodes[0]
    web = flockctl(node, "policy", "show", WEB).stdout
    assert all(text in web for text in (WEB, "app=web", "x/guard", cluster.address(WEB, 4), cluster.address(WEB, 6)))
    assert "not isolated" in flockctl(node, "policy", "show", FAR).stdout


def test_drops_show_pod_peer_port_and_policy_once_and_as_they_come(cluster: RealCluster) -> None:
    node = cluster.nodes[0]
    command = [str(BIN / "flockctl"), "--run-dir", str(node.run_dir), "policy", "drops", "-f", "-o", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as follower:
        try:
            eventually(lambda: dropped(cluster), what="a drop is told")  # not each is, when there are many
            assert follower.stdout is not None
            lines = (json.loads(line) for line in follower.stdout)
            drop = next(drop for drop in lines if drop["protocol"] == "UDP")
        finally:
            follower.kill()
    expected = {"what": "ingress", "pod": WEB, "protocol": "UDP", "port": 53, "policies": "x/guard"}
    assert {key: drop[key] for key in expected} == expected
    assert (drop["source"], drop["destination"]) == (cluster.address(FAR, 4), cluster.address(WEB, 4))
    shown = flockctl(node, "policy", "drops").stdout
    assert all(text in shown for text in ("ingress", WEB, cluster.address(FAR, 4), "UDP/53", "x/guard"))


def dropped(cluster: RealCluster) -> bool:
    cluster.assert_reached([Cell(FAR, WEB, 4, "UDP", 53)], expected=[])
    return "UDP/53" in flockctl(cluster.nodes[0], "policy", "drops").stdout

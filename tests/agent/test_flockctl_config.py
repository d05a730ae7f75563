"""`flockctl config [NODE]`: what is in force and where it came from; templates and podCIDRs on the way there."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from looking import flockctl

from harness import Node, eventually

API = "flock.fritzlab.net/v1alpha1"


def node_config(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": API, "kind": "NodeConfig", "metadata": {"name": name}, "spec": spec}


def template(name: str, selector: dict[str, Any], **spec: Any) -> dict[str, Any]:
    body = {"nodeSelector": selector, "template": spec}
    return {"apiVersion": API, "kind": "NodeConfigTemplate", "metadata": {"name": name}, "spec": body}


def kubernetes_node(name: str, *cidrs: str, **labels: str) -> dict[str, Any]:
    metadata = {"name": name, "labels": labels}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"podCIDRs": list(cidrs)}}


def shown(node: Node, *arguments: str) -> dict[str, Any]:
    done = flockctl(node, "config", *arguments, "-o", "json")
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Node]:
    """A node for which nobody has written a NodeConfig."""
    with Node(tmp_path, config=None) as node:
        node.write("common", template("common", {}, mtu=1400, defaults={"ipv4": False}))
        node.write("rack", template("rack", {"matchLabels": {"rack": "1"}}, mtu=1300, bgp={"asn": 64601}))
        node.write("node", kubernetes_node("n1", "100.66.1.0/24", "2001:db8:66::/64", rack="1"))
        node.start()
        yield node


def test_without_a_node_config_templates_and_the_nodes_pod_cidrs_serve(bare: Node) -> None:
    config = shown(bare)
    assert config["spec"] == {
        "mtu": 1300,
        "defaults": {"ipv4": False},
        "bgp": {"asn": 64601},
        "cidr4": ["100.66.1.0/24"],
        "cidr6": ["2001:db8:66::/64"],
    }
    assert config["origins"] == {
        "spec.mtu": "NodeConfigTemplate rack",
        "spec.bgp.asn": "NodeConfigTemplate rack",
        "spec.defaults.ipv4": "NodeConfigTemplate common",
        "spec.cidr4": "Node spec.podCIDRs",
        "spec.cidr6": "Node spec.podCIDRs",
    }
    (address,) = bare.pod("a")["ips"]
    assert address["address"].startswith("2001:db8:66:")


def test_a_node_config_wins_over_templates_and_its_cidrs_over_the_nodes(bare: Node) -> None:
    bare.write("own", node_config("n1", cidr6=["2001:db8:1::/64"], mtu=1280))
    eventually(lambda: shown(bare)["origins"]["spec.mtu"] == "NodeConfig n1", what="the agent to take it up")
    config = shown(bare, "n1")
    assert config["spec"]["cidr6"] == ["2001:db8:1::/64"] and "cidr4" not in config["spec"]
    assert config["origins"]["spec.bgp.asn"] == "NodeConfigTemplate rack"
    assert "2001:db8:1::/64" in flockctl(bare, "config", "n1").stdout


def test_another_node_is_read_from_manifests_where_no_agent_runs(fresh: Node) -> None:
    fresh.write("common", template("common", {}, mtu=1400))
    fresh.write("n7", node_config("n7", cidr6=["2001:db8:7::/64"]))
    config = shown(fresh, "n7", "--manifests", str(fresh.manifests))
    assert config["node"] == "n7" and config["origins"] == {
        "spec.cidr6": "NodeConfig n7",
        "spec.mtu": "NodeConfigTemplate common",
    }


def test_a_configuration_that_would_be_refused_is_shown_with_the_reason(fresh: Node) -> None:
    fresh.write("n7", node_config("n7", cidr6=["2001:db8:7::1/64"]))
    done = flockctl(fresh, "config", "n7", "--manifests", str(fresh.manifests))
    assert done.returncode == 1 and "spec.cidr6[0]" in done.stderr and "2001:db8:7::1/64" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["n9", "--manifests", "/no/such/directory"], 1, "/no/such/directory"),
        (["--manifests", "."], 1, "NODE"),
        (["n9", "--kubeconfig", "/no/such/file"], 2, "/no/such/file"),
        (["n9", "--kubeconfig", "f", "--manifests", "d"], 2, "not allowed with"),
    ],
)
def test_what_cannot_be_read_is_named(fresh: Node, arguments: list[str], code: int, says: str) -> None:
    done = flockctl(fresh, "config", *arguments)
    assert (done.returncode, says in done.stderr, "Traceback" in done.stderr) == (code, True, False), done.stderr


def test_a_file_that_cannot_be_read_is_no_preview(fresh: Node) -> None:
    fresh.write("common", template("common", {}, mtu=1400))
    (fresh.manifests / "n7.yaml").write_text("kind: [NodeConfig")
    done = flockctl(fresh, "config", "n7", "--manifests", str(fresh.manifests))
    assert done.returncode == 1 and "n7.yaml" in done.stderr and "1400" in done.stdout


def test_an_agent_that_is_away_and_one_of_another_node_are_told(node: Node, tmp_path: Path) -> None:
    other = flockctl(node, "config", "n9")
    assert other.returncode == 1 and "this is n1" in other.stderr and "--kubeconfig" in other.stderr
    node.kill()
    away = flockctl(node, "config", "n1")
    assert away.returncode == 3 and "no answer from the agent" in away.stderr


def test_a_node_that_nobody_configured_has_none(fresh: Node) -> None:
    done = flockctl(fresh, "config", "n8", "--manifests", str(fresh.manifests))
    assert done.returncode == 1 and "no configuration for node n8" in done.stdout

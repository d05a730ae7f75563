"""`flockctl router-config`: its text makes the router of the nodes it was made for, with each daemon."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from fabric_parts import OWN, V6, MakeLab, becomes, degraded, eventually, host_prefix, node_configs, write_configs

from flock.lab import router_bird, router_frr, router_gobgp, router_openbgpd
from flock.lab.fabric import Lab
from flock.lab.speaker import Router

PAGE = Path(__file__).parents[2] / "docs/bgp.md"


def router_config(*arguments: str) -> subprocess.CompletedProcess[str]:
    run = [sys.executable, "-c", "from flock.cli.begin import main; main()", "router-config", *arguments]
    return subprocess.run(run, capture_output=True, text=True, timeout=60)


def printed(*arguments: str) -> str:
    done = router_config(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def take(router: Router, text: str) -> None:
    """The router's daemon runs what was printed, and nothing the lab wrote."""
    home, host = router.host.home, router.host
    router.stop()
    if isinstance(router, router_frr.FrrRouter):
        router.speaker = type(router.speaker)(**{**_fields(router.speaker), "neighbours": ()})
        router.start()
        (home / "frr.conf").write_text(text)
        host.run(["vtysh", "--vty_socket", str(home), "-f", str(home / "frr.conf")])
    elif isinstance(router, router_gobgp.GobgpRouter):
        (home / "gobgpd.json").write_text(text)
        router.run()
    elif isinstance(router, router_openbgpd.OpenbgpdRouter):
        router.run(text)
    else:
        (home / "bird.conf").write_text(text)
        router_bird.run(host, config=home / "bird.conf", socket=home / "bird.ctl")


def _fields(struct: Any) -> dict[str, Any]:
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


def told(lab: Lab) -> set[str]:
    return {prefix for prefix in lab.router("r1").routes() if not prefix.startswith(("2001:db8:ff", "2001:db8:c:"))}


@pytest.mark.slow
@pytest.mark.parametrize("daemon", ["bird", "frr", "gobgp", "openbgpd"])
def test_its_text_takes_from_each_node_what_is_the_nodes_and_comes_back_after_a_blip(
    make_lab: MakeLab, daemon: str, tmp_path: Path
) -> None:
    knows_bfd = daemon in ("bird", "frr")
    configs = node_configs(nodes=2, bfd=knows_bfd)
    for number, config in enumerate(configs, start=1):
        (peer,) = config["spec"]["bgp"]["peers"]
        peer["localAddress"] = f"2001:db8:ff1:{number}::2"
        if daemon == "openbgpd":
            peer["families"] = ["ipv6"]
    directory = write_configs(tmp_path / "configs", configs)
    lab = make_lab(nodes=2, routers=1, router=daemon, topology="leaf-spine", nodeconfigs=directory, settled=False)
    take(lab.router("r1"), printed(daemon, "--manifests", str(directory)))

    six = {"2001:db8:1::/64", "2001:db8:2::/64"}
    wanted = six if daemon == "openbgpd" else {*six, "100.64.1.0/24", "100.64.2.0/24"}
    becomes(lambda: told(lab), wanted)
    lab.pods.add("dns", node="n1", annotations={f"{OWN}/anycast": V6}, ready=True)
    becomes(lambda: told(lab), {*wanted, host_prefix(V6)})

    # What no grant names is not taken: the node announces it, for its own configuration was changed since.
    grown = json.loads(json.dumps(configs[0]))
    grown["spec"]["cidr6"].append("2001:db8:77::/64")
    (lab.home.manifests / "n1.yaml").unlink(missing_ok=True)
    write_configs(lab.home.manifests, [grown])
    eventually(lambda: lab.host("n1").run(["ip", "-6", "route", "show", "2001:db8:77::/64"]), bool)
    lab.cut("n1-r1")
    becomes(lambda: told(lab) & {"2001:db8:1::/64", host_prefix(V6)}, set[str]())
    lab.mend("n1-r1")
    becomes(lambda: told(lab), {*wanted, host_prefix(V6)})


def test_birds_text_sends_the_default_route_that_the_router_has_and_a_node_with_its_own_does_not_miss_it(
    make_lab: MakeLab, tmp_path: Path
) -> None:
    configs = node_configs(nodes=1)
    configs[0]["spec"]["bgp"]["peers"][0]["localAddress"] = "2001:db8:ff1:1::2"
    directory = write_configs(tmp_path / "configs", configs)
    lab = make_lab(nodes=1, routers=1, router="bird", topology="leaf-spine", nodeconfigs=directory, settled=False)
    take(lab.router("r1"), printed("bird", "--manifests", str(directory)))
    node, router = lab.host("n1"), lab.host("r1")
    eventually(lambda: degraded(lab, "n1"), lambda text: "no IPv4 route is taken from r1" in text)
    assert "no IPv6 route is taken from r1" in degraded(lab, "n1")

    node.run(["ip", "link", "add", "own0", "type", "bridge"])
    node.run(["ip", "link", "set", "own0", "up"])
    node.run(["ip", "route", "add", "default", "dev", "own0", "metric", "4096"])
    eventually(lambda: degraded(lab, "n1"), lambda text: "no IPv4 route" not in text)
    assert "no IPv6 route is taken from r1" in degraded(lab, "n1")

    router.run(["ip", "-6", "route", "add", "default", "dev", "lo", "proto", "ra"])
    eventually(lambda: node.run(["ip", "-6", "route", "show", "default", "proto", "bird"]), bool)
    becomes(lambda: degraded(lab, "n1"), "")


def test_the_pages_examples_are_what_is_printed(tmp_path: Path) -> None:
    told = PAGE.read_text().partition("## What a router has to be told")[2]
    (tmp_path / "node1.yaml").write_text(re.search(r"```yaml\n(.*?)```", told, re.DOTALL)[1])  # type: ignore[index]
    for title, daemon in (("BIRD", "bird"), ("FRR", "frr"), ("OpenBGPD", "openbgpd")):
        example = re.search(rf"^{title}:\n```\n(.*?)```", told, re.DOTALL | re.MULTILINE)
        assert example, title
        assert example[1] == printed(daemon, "--manifests", str(tmp_path)), title


def test_an_frr_in_use_keeps_its_name_and_number(tmp_path: Path) -> None:
    peer = {**NODE["spec"]["bgp"]["peers"][0], "localAddress": "2001:db8:ffff::11"}  # type: ignore[index]
    node = {**NODE, "spec": {**NODE["spec"], "bgp": {"asn": 64601, "peers": [peer]}}}  # type: ignore[dict-item]
    said = [line for line in printed("frr", "--manifests", written(tmp_path, node)).splitlines() if line[:1] != "!"]
    assert "router bgp 64600" in said
    assert not [line for line in said if "router-id" in line or "hostname" in line]


NODE = {
    "apiVersion": f"{OWN}/v1alpha1",
    "kind": "NodeConfig",
    "metadata": {"name": "node1"},
    "spec": {
        "cidr6": ["2001:db8:1::/64"],
        "bgp": {"asn": 64601, "peers": [{"name": "tor1", "address": "2001:db8:ffff::1", "asn": 64600}]},
    },
}


def written(tmp_path: Path, *objects: dict[str, Any]) -> str:
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(objects))
    return str(tmp_path)


def test_the_nodes_address_is_its_node_objects_where_its_peer_does_not_say(tmp_path: Path) -> None:
    addresses = [{"type": "Hostname", "address": "node1"}, {"type": "InternalIP", "address": "2001:db8:ffff::11"}]
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node1"}, "status": {"addresses": addresses}}
    assert "neighbor 2001:db8:ffff::11 as 64601;" in printed("bird", "--manifests", written(tmp_path, NODE, node))


def test_an_address_that_nobody_tells_is_asked_for_by_its_field(tmp_path: Path) -> None:
    refused = router_config("frr", "--manifests", written(tmp_path, NODE))
    assert refused.returncode == 1
    assert "NodeConfig node1: spec.bgp.peers[tor1].localAddress" in refused.stderr


def test_where_there_is_no_peer_its_field_is_named(tmp_path: Path) -> None:
    alone = {**NODE, "spec": {"cidr6": ["2001:db8:1::/64"]}}
    refused = router_config("frr", "--manifests", written(tmp_path, alone))
    assert refused.returncode == 1
    assert refused.stderr == (
        "flockctl: spec.bgp.peers: none in the NodeConfig of node1: there is no router to be told anything\n"
    )


@pytest.mark.parametrize(("arguments", "code"), [(["node7"], 1), (["--router", "2001:db8::9"], 2)])
def test_a_node_or_router_that_no_nodeconfig_knows_is_named(tmp_path: Path, arguments: list[str], code: int) -> None:
    refused = router_config("bird", *arguments, "--manifests", written(tmp_path, NODE))
    assert refused.returncode == code
    assert arguments[-1] in refused.stderr


def test_addresses_said_to_be_one_routers_become_one_configuration(tmp_path: Path) -> None:
    peers = [
        {"name": "six", "address": "2001:db8:ffff::1", "asn": 64600, "localAddress": "2001:db8:ffff::11"},
        {"name": "four", "address": "198.51.100.1", "asn": 64600, "localAddress": "198.51.100.11"},
    ]
    both = {**NODE, "spec": {**NODE["spec"], "cidr4": ["192.0.2.0/26"], "bgp": {"asn": 64601, "peers": peers}}}  # type: ignore[dict-item]
    directory = written(tmp_path, both)
    assert printed("openbgpd", "--manifests", directory).count("AS 64600") == 2
    one = printed("openbgpd", "--manifests", directory, "--router", "2001:db8:ffff::1", "--router", "198.51.100.1")
    assert one.count("AS 64600") == 1
    assert "router-id 198.51.100.1" in one
    assert re.findall(r"^neighbor (\S+)", one, re.MULTILINE) == ["2001:db8:ffff::11", "198.51.100.11"]


def test_no_password_is_printed_and_where_it_goes_is_said(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("Tr0ub4dor")
    peer = {**NODE["spec"]["bgp"]["peers"][0], "passwordFile": str(secret), "localAddress": "2001:db8::11"}  # type: ignore[index]
    guarded = {**NODE, "spec": {**NODE["spec"], "bgp": {"asn": 64601, "peers": [peer]}}}  # type: ignore[dict-item]
    done = router_config("bird", "--manifests", written(tmp_path, guarded))
    assert "Tr0ub4dor" not in done.stdout + done.stderr
    assert 'password "PASSWORD-OF-node1";' in done.stdout
    assert "PASSWORD-OF" in done.stderr


@pytest.mark.parametrize(
    ("daemon", "fields", "said"),
    [
        ("bird", {"address": "fe80::1%eth0", "localAddress": "fe80::2"}, "INTERFACE-TO-"),
        ("frr", {"bfd": {"multiplier": 1}}, "2 packets"),
        ("openbgpd", {"import": "all"}, "sent OpenBGPD's table"),
    ],
)
def test_what_a_text_leaves_to_do_is_said(tmp_path: Path, daemon: str, fields: dict[str, Any], said: str) -> None:
    peer = {**NODE["spec"]["bgp"]["peers"][0], "localAddress": "2001:db8::11", **fields}  # type: ignore[index]
    node = {**NODE, "spec": {**NODE["spec"], "bgp": {"asn": 64601, "peers": [peer]}}}  # type: ignore[dict-item]
    done = router_config(daemon, "--manifests", written(tmp_path, node))
    assert done.returncode == 0, done.stderr
    assert said in done.stderr


@pytest.mark.parametrize("more", ["spec: {}\n", "---\nkind: Other\nkind: Other\n"])
def test_a_key_that_is_there_twice_is_named_with_file_and_line(tmp_path: Path, more: str) -> None:
    file = tmp_path / "node1.yaml"
    file.write_text(yaml.safe_dump(NODE) + more)
    refused = router_config("bird", "--manifests", str(tmp_path))
    assert refused.returncode != 0
    assert re.search(r"node1.yaml.*line \d+: the key (spec|kind) is there twice", refused.stderr)

"""`flockctl doctor` on a node: each thing it knows is made, told with its cure, mended by that cure, and gone."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from looking import addresses_of, flockctl

from harness import BIN, FLOCK, Node, eventually, run, with_spec
from thoroughness import some

ACCEPTING = "type filter hook forward priority filter; policy accept;"
DROPPING = "type filter hook forward priority filter; policy drop;"


def findings(node: Node, *about: str) -> list[dict[str, Any]]:
    """Of the node: what files and daemons this machine has is its own business."""
    told = json.loads(flockctl(node, "doctor", "-o", "json").stdout)
    return [f for f in told if f["about"] in about]


def degraded(node: Node) -> str:
    return "\n".join(node.ask("status")["degraded"])


def nft(node: Node, script: str) -> None:
    run("nsenter", f"--net=/run/netns/{node.netns}", "nft", "-f", "-", input=f"{script}\n")


def cure(node: Node, finding: dict[str, Any]) -> None:
    """As it is told, by hand."""
    for command in finding["cure"].split("; "):
        node.execute("sh", "-c", command)


@pytest.fixture
def uplink(node: Node) -> Iterator[str]:
    """A machine beyond the node, and its address."""
    beyond = f"{node.prefix}b"
    run("ip", "netns", "add", beyond)
    try:
        run("ip", "-n", node.netns, "link", "add", "up0", "type", "veth", "peer", "name", "up0", "netns", beyond)
        for netns, address in ((node.netns, "198.51.100.1"), (beyond, "198.51.100.2")):
            run("ip", "-n", netns, "addr", "add", f"{address}/24", "dev", "up0")
            run("ip", "-n", netns, "link", "set", "up0", "up")
        run("ip", "-n", beyond, "route", "add", "default", "via", "198.51.100.1")
        node.ip("route", "add", "default", "via", "198.51.100.2")
        yield "198.51.100.2"
    finally:
        run("ip", "netns", "del", beyond)


def test_a_host_on_which_nothing_hurts_is_told_so(node: Node) -> None:
    assert findings(node, "firewall", "rp_filter", "accept_ra", "mtu", "conflist", "fabric", "plugins") == []
    assert not degraded(node)


# --- packet filters -------------------------------------------------------------------------------------------------

FILTERS = {
    "nft": f"add table inet mine; add chain inet mine through {{ {DROPPING} }}",
    "nft, last word": f"add table inet mine; add chain inet mine through {{ {ACCEPTING} }}; "
    "add chain inet mine last; add rule inet mine last counter drop; "
    "add rule inet mine through ct state established,related accept; add rule inet mine through jump last",
    "iptables": "iptables -P FORWARD DROP",
    "iptables-legacy": "iptables-legacy -P FORWARD DROP",
    "ufw": "iptables -N ufw-before-forward; iptables -A FORWARD -j ufw-before-forward; iptables -P FORWARD DROP",
}


@pytest.mark.parametrize("filter_", some(FILTERS))
def test_a_packet_filter_that_drops_is_told_with_its_rule_and_opened_by_the_cure(
    node: Node, uplink: str, filter_: str
) -> None:
    node.pod("a")
    assert node.ping(uplink, inside="a")
    command = FILTERS[filter_]
    if command.startswith("iptables"):
        node.execute("sh", "-ec", command)
    else:
        nft(node, command)
    assert not node.ping(uplink, inside="a")
    [found] = findings(node, "firewall")
    assert "drops what pods send or are sent: " in found["finding"]
    deciding = {"nft, last word": "inet mine last of nft", "iptables-legacy": ":FORWARD DROP"}
    assert deciding.get(filter_, "policy drop") in found["finding"]
    assert flockctl(node, "doctor").returncode == 1
    if filter_ != "iptables-legacy":  # which tells nobody of its changes: it is at the next look
        eventually(lambda: "drops what pods send or are sent" in degraded(node), what="it is a degraded line too")
    if filter_ == "ufw":
        assert found["cure"] == "ufw route allow in on flock+; ufw route allow out on flock+"
        for side in "io":  # which is what ufw makes of that
            node.execute("iptables", "-A", "ufw-before-forward", f"-{side}", "flock+", "-j", "ACCEPT")
    else:
        cure(node, found)
    assert findings(node, "firewall") == []
    assert node.ping(uplink, inside="a")


def test_a_packet_filter_that_comes_and_goes_is_noticed_at_once(node: Node) -> None:
    nft(node, f"add table inet mine; add chain inet mine through {{ {DROPPING} }}")
    eventually(lambda: "the chain inet mine through of nft drops" in degraded(node), what="its coming")
    nft(node, "delete table inet mine")
    eventually(lambda: "inet mine" not in degraded(node), what="its going")


def test_policy_why_says_that_somebody_else_decides(node: Node) -> None:
    addresses_of(node.pod("a"))
    beyond = ("policy", "why", "2001:db8:9::9", "default/a", "80/TCP")
    assert flockctl(node, *beyond).returncode == 0
    nft(node, f"add table ip6 mine; add chain ip6 mine through {{ {DROPPING} }}")
    nft(node, 'add rule ip6 mine through iifname "flock*" accept')
    shown = flockctl(node, *beyond)
    assert "somebody else decides: the chain ip6 mine through of nft drops what pods are sent" in shown.stdout
    assert shown.returncode == 1
    [answer] = json.loads(flockctl(node, *beyond, "-o", "json").stdout)
    assert answer["verdict"] == "allow" and len(answer["others"]) == 1
    for source, destination in (
        ("198.51.100.9", "default/a"),  # of the other family
        ("default/a", "2001:db8:9::9"),  # which it lets pass
        ("198.18.0.1", "default/a"),  # from the node itself: nothing is forwarded
    ):
        passed = flockctl(node, "policy", "why", source, destination, "80/TCP")
        assert "somebody else" not in passed.stdout and passed.returncode == 0


# --- the rest -------------------------------------------------------------------------------------------------------


@contextmanager
def second_bird(node: Node, directory: Path) -> Iterator[None]:
    """As the distribution starts it."""
    directory.mkdir()
    (directory / "bird.conf").write_text("router id 198.51.100.9;\nprotocol device {}\n")
    command = ["bird", "-f", "-c", str(directory / "bird.conf"), "-s", str(directory / "bird.ctl")]
    bird = subprocess.Popen(["nsenter", f"--net=/run/netns/{node.netns}", *command], stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        bird.terminate()
        bird.wait(10)


def running(node: Node) -> list[dict[str, Any]]:
    return [f for f in findings(node, "second-bird") if f["finding"].startswith("another BIRD runs")]


def test_a_second_bird_is_told_until_it_ends(node: Node, tmp_path_factory: pytest.TempPathFactory) -> None:
    with second_bird(node, tmp_path_factory.mktemp("other") / "bird"):
        [found] = eventually(lambda: running(node), what="the second BIRD")
        assert "bird.service" in found["cure"]
    assert running(node) == []


def test_a_bird_that_does_not_answer_is_told_where_it_is_expected_to_speak(node: Node) -> None:
    assert findings(node, "bird") == []
    peers = [{"address": "198.51.100.2", "asn": 64600}]
    node.write("nodeconfig", with_spec(bgp={"asn": 64601, "peers": peers}))
    [found] = eventually(lambda: findings(node, "bird"), what="a BIRD that is not there")
    assert found["finding"].startswith("BIRD does not answer at ") and "flock-bird" in found["cure"]
    assert flockctl(node, "doctor").returncode == 1


def test_strict_reverse_path_filters_are_told_and_mended_by_the_cure(node: Node, uplink: str) -> None:
    for switch in ("all", "up0"):
        node.execute("sysctl", "-w", f"net.ipv4.conf.{switch}.rp_filter=1")
    found = findings(node, "rp_filter")
    assert [f["finding"].split()[0] for f in found] == ["net.ipv4.conf.all.rp_filter", "net.ipv4.conf.up0.rp_filter"]
    for finding in found:
        cure(node, finding)
    assert uplink and findings(node, "rp_filter") == []


def test_an_uplink_smaller_than_pods_packets_is_told(fresh: Node) -> None:
    fresh.ip("link", "add", "up0", "type", "bridge")
    fresh.ip("link", "set", "up0", "mtu", "1400", "up")
    fresh.ip("route", "add", "default", "dev", "up0")
    fresh.write("nodeconfig", _with_mtu(9000))
    fresh.start()
    [found] = findings(fresh, "mtu")
    assert found["finding"] == "pods get an MTU of 9000, and up0 has 1400"
    fresh.write("nodeconfig", _with_mtu(1400))
    eventually(lambda: not findings(fresh, "mtu"), what="a smaller MTU")


def _with_mtu(mtu: int) -> dict[str, Any]:
    spec = {"cidr6": ["2001:db8:1::/64"], "cidr4": ["192.0.2.0/24"], "mtu": mtu}
    return {
        "apiVersion": "flock.fritzlab.net/v1alpha1",
        "kind": "NodeConfig",
        "metadata": {"name": "n1"},
        "spec": spec,
    }


def test_a_conflist_before_ours_is_told(fresh: Node, tmp_path: Path) -> None:
    conf, plugins = tmp_path / "net.d", tmp_path / "plugins"
    conf.mkdir()
    plugins.mkdir()
    shutil.copy(FLOCK, plugins / "flock")
    fresh.start("--cni-conf-dir", str(conf), "--cni-bin-dir", str(plugins))
    eventually((conf / "01-flock.conflist").exists)
    (conf / "00-other.conflist").write_text("{}")
    [found] = findings(fresh, "conflist")
    assert found["finding"] == "00-other.conflist comes before 01-flock.conflist"
    (conf / "00-other.conflist").rename(conf / "87-podman.conflist")
    assert findings(fresh, "conflist") == []


def test_without_an_agent_the_host_is_looked_at_and_its_absence_told(fresh: Node) -> None:
    told = fresh.execute(BIN / "flockctl", "--run-dir", fresh.run_dir, "doctor", "-o", "json", check=False)
    assert told.returncode == 1
    assert json.loads(told.stdout)[0]["finding"] == "no agent answers"


def test_a_manifest_whose_name_no_container_has_is_a_note_until_one_does(node: Node) -> None:
    def manifest(name: str, **more: Any) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, **more}

    node.pod("dns")
    elsewhere = manifest("peer", spec={"nodeName": "n7"}, status={"podIPs": [{"ip": "203.0.113.9"}]})
    node.write("pods", manifest("dsn"), elsewhere)
    [found] = eventually(lambda: findings(node, "pods"), what="the manifest")
    assert found["finding"] == "no container has the name of the Pod manifest default/dsn" and found["note"]
    assert "containers without a manifest: default/dns" in found["cure"]
    assert "default/dsn" in flockctl(node, "doctor").stdout
    node.write("pods", manifest("dns"), elsewhere)
    eventually(lambda: not findings(node, "pods"), what="the name was mended")

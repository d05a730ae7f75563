"""Packet filters of others that have chains without names, cannot be read, or speak of pods alone: what is told."""

import json
from typing import Any

from looking import addresses_of, flockctl

from harness import Node, run

FORWARD = "type filter hook forward priority filter; policy accept;"


def nft(node: Node, *rules: str) -> None:
    body = "\n".join(rules)
    script = f"table inet mine {{\nchain through {{ {FORWARD}\n{body}\n}}\n}}\n"
    run("nsenter", f"--net=/run/netns/{node.netns}", "nft", "-f", "-", input=script)


def findings(node: Node) -> list[dict[str, Any]]:
    told = json.loads(flockctl(node, "doctor", "-o", "json").stdout)
    return [finding for finding in told if finding["about"] == "firewall"]


def others(node: Node, source: str, destination: str) -> list[str]:
    [answer] = json.loads(flockctl(node, "policy", "why", source, destination, "80/TCP", "-o", "json").stdout)
    told: list[str] = answer["others"]
    return told


def test_a_chain_without_a_name_is_read(node: Node) -> None:
    """nft tells it as a word of its own, in JSON too."""
    node.pod("a")
    nft(node, 'iifname "flock*" jump { ct state established accept; drop; }')
    [found] = findings(node)
    assert found["finding"].startswith("the chain inet mine through of nft drops what pods send: drop, in a chain")
    assert len(others(node, "default/a", "2001:db8:9::9")) == 1
    node.execute("sh", "-c", found["cure"])
    assert findings(node) == [] and others(node, "default/a", "2001:db8:9::9") == []


def test_what_cannot_be_read_is_a_note(node: Node) -> None:
    node.execute("iptables-nft", "-A", "FORWARD", "-m", "bpf", "--bytecode", "1,6 0 0 0", "-j", "DROP")
    [found] = findings(node)
    assert found["note"] and "ip filter FORWARD may drop what pods send or are sent: the match bpf" in found["finding"]
    assert not any("bpf" in line for line in node.ask("status")["degraded"])


def test_what_pods_send_each_other_is_told_by_itself(node: Node) -> None:
    addresses = {name: addresses_of(node.pod(name)) for name in ("a", "b")}
    nft(node, 'iifname "flock*" oifname "flock*" drop')
    [found] = findings(node)
    assert "drops what pods of this node send each other: " in found["finding"]
    assert all(others(node, "default/a", address) for address in addresses["b"])
    assert others(node, "default/a", "2001:db8:9::9") == []
    node.execute("sh", "-c", found["cure"])
    assert findings(node) == []


def test_a_filter_before_routing_is_told_and_opened_by_the_cure(node: Node) -> None:
    script = "table inet early { chain first { type filter hook prerouting priority raw; tcp flags syn drop; }\n}\n"
    run("nsenter", f"--net=/run/netns/{node.netns}", "nft", "-f", "-", input=script)
    [found] = findings(node)
    assert "the chain inet early first of nft drops what pods send or are sent: " in found["finding"]
    for command in found["cure"].split("; "):
        node.execute("sh", "-c", command)
    assert findings(node) == []

"""`/status.json`: all that `flockctl status` tells, always, and lists of all there is; no secrets."""

import json
from pathlib import Path

from following import HTTP, Reader, status

from harness import NODE_CONFIG, Node, eventually, with_spec

KEYS = ["version", "node", "ready", "not_ready", "degraded", "mtu", "pods", "pools", "problems", "watches", "repairs"]
KEYS += ["sessions", "announced", "withdrawn", "policies", "clusterPolicies", "policiesWaiting"]
LISTS = ["at", "started", "config", "podList", "addressList", "policyList", "dropList", "latencies"]
PEER = {"name": "tor", "address": "198.18.0.9", "asn": 64512}


def test_every_key_of_flockctls_status_is_there_with_the_same_value(fresh: Node) -> None:
    fresh.start(*HTTP)
    fresh.pod("a")
    told, asked = status(fresh), fresh.ask("status")
    assert [*told] == [*KEYS, *LISTS]
    assert {key: told[key] for key in KEYS} == asked
    assert told["pods"] == {"committed": 1, "pending": 0, "dead": 0} and told["sessions"] == []


def test_every_key_is_there_while_the_agent_cannot_start(fresh: Node) -> None:
    (fresh.state_dir / "allocations.json").mkdir()
    fresh.start(*HTTP, wait=False)
    eventually(lambda: "the state file" in str(status_or_none(fresh)), what="the reason")
    told = status(fresh)
    assert [*told] == [*KEYS, *LISTS] and [*fresh.ask("status")] == KEYS
    assert told["podList"] == told["addressList"] == told["sessions"] == [] and not told["ready"]


def status_or_none(node: Node) -> object:
    try:
        return status(node)
    except OSError:
        return None


def test_lists_are_what_flockctl_lists(fresh: Node) -> None:
    fresh.write("nodeconfig", with_spec(anycast={"allowed": [{"prefixes": ["2001:db8:53::/64"]}]}))
    fresh.start(*HTTP)
    annotations = {"flock.fritzlab.net/anycast": "2001:db8:53::1"}
    fresh.pod("a", args="K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web", annotations=annotations)
    told = eventually(lambda: (seen := status(fresh))["latencies"]["ADD"]["count"] and seen, what="the call's end")
    assert [{**row, "policies": []} for row in told["podList"]] == [
        {**row, "policies": []} for row in fresh.ask("pods")
    ]
    assert told["addressList"] == fresh.ask("anycast")
    assert told["config"] == fresh.ask("config")
    assert told["latencies"]["ADD"]["count"] == 1 and 0 < told["latencies"]["ADD"]["p50"] < 60
    assert told["latencies"]["DEL"] == {"count": 0, "p50": None, "p95": None}


def test_a_password_is_nowhere(fresh: Node, tmp_path: Path) -> None:
    file = tmp_path / "tor"
    file.write_text("s3cr3t-of-tor")
    fresh.write("nodeconfig", with_spec(bgp={"asn": 64513, "peers": [{**PEER, "passwordFile": str(file)}]}))
    fresh.start(*HTTP)
    told = eventually(lambda: "s3cr3t" in (fresh.directory / "bird/bird.conf").read_text() and status(fresh))
    assert told["config"]["spec"]["bgp"]["peers"][0]["passwordFile"] == str(file)
    assert "s3cr3t" not in json.dumps(told)
    with Reader(fresh, "/happenings") as reader:
        reader.head()
        assert "s3cr3t" not in json.dumps(reader.until("NodeReady"))


def test_a_session_is_down_while_there_is_no_bird(fresh: Node) -> None:
    fresh.write("nodeconfig", with_spec(bgp={"asn": 64513, "peers": [PEER]}))
    fresh.start(*HTTP)
    (session,) = status(fresh)["sessions"]
    assert {"peer": "tor", "up": False, "imported": 0, "families": {}, "last_error": ""}.items() <= session.items()
    assert "BIRD" in session["state"]


def test_configuration_has_the_nodeconfigs_spec(fresh: Node) -> None:
    fresh.start(*HTTP)
    assert status(fresh)["config"]["spec"] == NODE_CONFIG["spec"]

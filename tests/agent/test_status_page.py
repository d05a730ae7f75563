"""`/status.json`: all that `flockctl status` tells, always, and lists of all there is; no secrets."""

import json
import socket
from base64 import b64encode
from pathlib import Path

from clustered import clustered
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
    assert {*KEYS, *LISTS} <= {*told} and {*KEYS} <= {*asked}
    assert {key: told[key] for key in asked} == asked
    assert told["pods"] == {"committed": 1, "pending": 0, "dead": 0} and told["sessions"] == []


def test_every_key_is_there_while_the_agent_cannot_start(fresh: Node) -> None:
    (fresh.state_dir / "allocations.json").mkdir()
    fresh.start(*HTTP, wait=False)
    eventually(lambda: "the state file" in str(status_or_none(fresh)), what="the reason")
    told = status(fresh)
    assert {*KEYS, *LISTS} <= {*told} and {*KEYS} <= {*fresh.ask("status")}
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


def test_a_password_in_a_secret_is_nowhere_either(fresh: Node) -> None:
    reference = {"name": "bgp", "key": "tor"}
    secret = {"metadata": {"name": "bgp", "namespace": "flock-system"}, "data": {"tor": b64encode(b"s3cr3t").decode()}}
    with clustered(fresh) as cluster:
        cluster.api.put({"kind": "Secret", **secret})
        cluster.configure(bgp={"asn": 64513, "peers": [{**PEER, "passwordSecretRef": reference}]})
        cluster.start(*HTTP)
        told = eventually(lambda: "s3cr3t" in (fresh.directory / "bird/bird.conf").read_text() and status(fresh))
    assert told["config"]["spec"]["bgp"]["peers"][0]["passwordSecretRef"] == reference
    assert "s3cr3t" not in json.dumps(told) and "s3cr3t" not in fresh.log_text()


def test_a_session_is_down_while_there_is_no_bird(fresh: Node) -> None:
    fresh.write("nodeconfig", with_spec(bgp={"asn": 64513, "peers": [PEER]}))
    fresh.start(*HTTP)
    (session,) = status(fresh)["sessions"]
    assert {"peer": "tor", "up": False, "imported": 0, "families": {}, "last_error": ""}.items() <= session.items()
    assert "BIRD" in session["state"]


def test_configuration_has_the_nodeconfigs_spec(fresh: Node) -> None:
    fresh.start(*HTTP)
    assert status(fresh)["config"]["spec"] == NODE_CONFIG["spec"]


def policy(name: str, **spec: object) -> dict[str, object]:
    spec = {"podSelector": {}, "policyTypes": ["Ingress"], **spec}
    metadata = {"namespace": "shop", "name": name, "annotations": {"flock.fritzlab.net/audit": "true"}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata if name == "tried" else {"namespace": "shop", "name": name},
        "spec": spec,
    }


GUARD = {
    "apiVersion": "policy.networking.k8s.io/v1alpha2",
    "kind": "ClusterNetworkPolicy",
    "metadata": {"name": "guard"},
    "spec": {
        "tier": "Admin",
        "priority": 7,
        "subject": {"namespaces": {}},
        "ingress": [{"action": "Accept", "from": [{"namespaces": {}}]}],
    },
}


def test_policies_are_listed_with_how_many_pods_they_select_and_what_is_wrong(fresh: Node) -> None:
    other = policy("other", podSelector={"matchLabels": {"app": "db"}})
    refused = policy("refused", ingress=[{"ports": [{"port": 99999999}]}])
    fresh.write("policies", policy("all"), policy("tried"), other, refused, GUARD)
    fresh.start(*HTTP)
    fresh.pod("a", args="K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web")
    told = status(fresh)
    rows = {row["name"]: row for row in told["policyList"]}
    guard = {"kind": "ClusterNetworkPolicy", "tier": "Admin", "priority": 7, "pods": 1, "problem": "", "audit": False}
    assert rows["guard"].items() >= guard.items()
    usual = {"kind": "NetworkPolicy", "tier": None, "priority": None, "pods": 1, "problem": "", "audit": False}
    assert rows["shop/all"].items() >= usual.items()
    assert rows["shop/tried"]["audit"] and rows["shop/other"]["pods"] == 0
    assert "port" in rows["shop/refused"]["problem"]
    assert told["podList"][0]["policies"] == ["Admin guard", "shop/all", "shop/refused", "shop/tried"]
    assert told["policies"] == 4 and told["clusterPolicies"] == 1


def test_a_bird_that_hangs_keeps_no_status_waiting(fresh: Node) -> None:
    fresh.write("nodeconfig", with_spec(bgp={"asn": 64513, "peers": [PEER]}))
    with socket.socket(socket.AF_UNIX) as bird:
        bird.bind(str(fresh.run_dir / "bird.ctl"))
        bird.listen()
        fresh.start(*HTTP)
        connection = bird.accept()[0]
        with connection:
            connection.sendall(b"0001 BIRD 2.0.12 ready.\n")
            for _ in range(3):
                (session,) = status(fresh)["sessions"]
                assert session["peer"] == "tor" and not session["up"]


def test_a_crowd_that_asks_for_it_costs_pods_nothing_and_is_answered(fresh: Node) -> None:
    fresh.start(*HTTP)
    for number in range(5):
        fresh.pod(f"p{number}")
    crowd = [Reader(fresh, "/status.json") for _ in range(50)]
    fresh.pod("q")
    for reader in crowd:
        assert json.loads(reader.body())["pods"]["committed"] >= 5
        reader.socket.close()

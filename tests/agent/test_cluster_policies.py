"""ClusterNetworkPolicies of an API server: known late, never lost, refused in words, and asked about by name."""

from collections.abc import Iterator
from typing import Any

import pytest
from clustered import UID, Clustered, clustered, pod
from looking import addresses_of

import apiserver
from harness import Node, eventually

PATH = apiserver.PATHS["ClusterNetworkPolicy"]
NODES = "/api/v1/nodes?"
EVERYWHERE = {"networks": ["0.0.0.0/0", "::/0"]}


@pytest.fixture
def cluster(fresh: Node) -> Iterator[Clustered]:
    """shop/web is there; the test starts the agent."""
    fresh.hurry = {"flock.edge.kube.lastknown.RECALL_AFTER": 1.0, "flock.edge.kube.lastknown.SAVE_AFTER": 0.1}
    with clustered(fresh) as made:
        made.configure()
        made.api.put(pod("web", labels={"app": "web"}))
        yield made


def policy(name: str, *peers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """Denies egress to these."""
    rules = [{"name": "no way", "action": "Deny", "to": list(peers)}] if peers else []
    spec = {"tier": "Admin", "priority": 1, "subject": {"namespaces": {}}, "egress": rules, **spec}
    return {"kind": "ClusterNetworkPolicy", "metadata": {"name": name}, "spec": spec}


def known(cluster: Clustered) -> int:
    count: int = cluster.node.ask("status")["clusterPolicies"]
    return count


def why(cluster: Clustered, destination: str) -> Any:
    question = {"op": "policy.why", "args": f"shop/web\n{destination}\n80/TCP"}
    told = cluster.node.rpc(question)["result"]
    assert "not in the kernel" not in told["text"]
    return next(answer for answer in told["answers"] if ":" not in answer["source"]["address"])


def decided_by(cluster: Clustered, destination: str) -> str:
    text: str = why(cluster, destination)["egress"]["decided_by"]
    return text


def events(cluster: Clustered) -> list[dict[str, Any]]:
    return [event for event in cluster.api.all("Event") if event["reason"] == "FlockPolicyRefused"]


def test_a_definition_that_comes_late_needs_no_restart_and_no_word(cluster: Clustered) -> None:
    cluster.api.errors[PATH] = 404
    cluster.start()
    cluster.add("web", uid=UID)
    assert not cluster.problems() and known(cluster) == 0
    cluster.api.put(policy("guard", EVERYWHERE))
    cluster.api.errors.clear()
    eventually(lambda: known(cluster) == 1, what="it is noticed", within=60)
    assert "guard egress[0]" in decided_by(cluster, "198.51.100.1")


def test_a_server_that_does_not_know_its_definitions_yet_opens_nothing_at_a_start(cluster: Clustered) -> None:
    cluster.api.put(policy("guard", EVERYWHERE))
    cluster.start()
    cluster.add("web", uid=UID)
    memory = cluster.node.state_dir / "cluster.json"
    eventually(lambda: memory.exists() and '"guard"' in memory.read_text(), what="it is remembered")
    cluster.node.stop()
    cluster.api.errors[PATH] = 404
    cluster.start()
    assert "guard egress[0]" in decided_by(cluster, "198.51.100.1")
    assert "404" in cluster.problems()


def test_all_nodes_are_followed_once_a_policy_of_a_pod_here_names_them(cluster: Clustered) -> None:
    addresses = [{"type": "InternalIP", "address": "198.51.100.2"}]
    cluster.api.put({"kind": "Node", "metadata": {"name": "n2"}, "status": {"addresses": addresses}})
    cluster.start()
    cluster.add("web", uid=UID)
    assert not [path for path in cluster.api.asked(NODES) if "fieldSelector" not in path]
    cluster.api.put(policy("nodes", {"nodes": {}}))
    eventually(lambda: "nodes egress[0]" in decided_by(cluster, "198.51.100.2"), what="the node is a peer")
    assert not decided_by(cluster, "198.51.100.3")


def test_a_pod_that_may_not_speak_to_its_node_finds_no_other_address_of_it(cluster: Clustered) -> None:
    """Neither one its Node does not list nor the gateway's; and the node still reaches the pod."""
    cluster.node.ip("link", "set", "lo", "up")
    cluster.node.ip("addr", "add", "198.51.100.77/32", "dev", "lo")
    cluster.api.put({"kind": "Node", "metadata": {"name": "n1"}, "status": {"addresses": []}})
    cluster.start()
    result = cluster.add("web", uid=UID)
    ways = ("198.51.100.77", "fe80::1%eth0")
    assert all(cluster.node.ping(way, inside="web") for way in ways)
    cluster.api.put(policy("nodes", {"nodes": {}}))
    eventually(lambda: not cluster.node.ping(ways[0], inside="web"), what="the policy")
    assert not any(cluster.node.ping(way, inside="web") for way in ways * 3)
    assert "nodes egress[0]" in decided_by(cluster, ways[0])
    assert all(cluster.node.ping(address) for address in addresses_of(result))


def test_a_pod_that_is_deleted_by_force_and_runs_on_stays_denied_by_its_own_node(cluster: Clustered) -> None:
    """Its object is gone, or a namesake's with other labels; its processes have the time that its tenant gave them."""
    meant = {"pods": {"podSelector": {"matchLabels": {"app": "web"}}}}
    cluster.api.put(policy("kept", EVERYWHERE, subject=meant), policy("other"))
    cluster.start()
    cluster.add("web", uid=UID)
    assert not cluster.node.ping("198.18.0.1", inside="web")
    cluster.api.delete("Pod", "web", "shop")
    cluster.api.delete("ClusterNetworkPolicy", "other")
    eventually(lambda: known(cluster) == 1, what="a later change")
    assert not cluster.node.ping("198.18.0.1", inside="web")
    cluster.api.put(pod("web", uid="another", labels={"app": "free"}), policy("third"))
    eventually(lambda: known(cluster) == 2, what="a later change")
    assert not cluster.node.ping("198.18.0.1", inside="web")


def test_while_nodes_cannot_be_listed_what_denies_them_denies_everybody(cluster: Clustered) -> None:
    cluster.start()
    cluster.add("web", uid=UID)
    cluster.api.errors[f"{NODES}limit"] = 403
    cluster.api.put(policy("nodes", {"nodes": {}}))
    eventually(lambda: "nodes egress[0]" in decided_by(cluster, "198.51.100.3"), what="it is closed")
    assert "denies everybody meanwhile" in cluster.problems()
    cluster.api.errors.clear()
    eventually(lambda: not decided_by(cluster, "198.51.100.3"), what="the list", within=60)
    assert "denies everybody" not in cluster.problems()


def test_whom_an_earlier_life_never_followed_is_denied_while_the_server_is_away(cluster: Clustered) -> None:
    evil = {"namespaces": {"matchLabels": {"kubernetes.io/metadata.name": "evil"}}}
    cluster.api.put({"kind": "Namespace", "metadata": {"name": "evil", "labels": evil["namespaces"]["matchLabels"]}})
    cluster.api.put(policy("guard", evil))
    cluster.start()
    memory = cluster.node.state_dir / "cluster.json"
    eventually(lambda: memory.exists() and '"guard"' in memory.read_text(), what="it is remembered")
    cluster.node.stop()
    cluster.api.errors["/"] = 503
    cluster.start()
    cluster.add("web", uid=UID)
    assert "guard egress[0]" in decided_by(cluster, "198.51.100.3"), "who knows who that is"
    assert "denies everybody meanwhile" in cluster.problems()
    cluster.api.errors.clear()
    eventually(lambda: not decided_by(cluster, "198.51.100.3"), what="the list", within=60)
    assert "denies everybody" not in cluster.problems()


def test_nodes_that_refuse_the_same_policy_write_one_event(cluster: Clustered) -> None:
    """Another life on another node, as the API server sees it."""
    cluster.api.put(policy("guard", EVERYWHERE, subject="everybody"))
    cluster.start()
    (event,) = eventually(lambda: events(cluster), what="an event")
    cluster.node.stop()
    cluster.start()
    eventually(lambda: "spec.subject" in cluster.problems(), what="it is refused again")
    eventually(lambda: len(cluster.api.asked("/api/v1/namespaces/default/events", "POST")) > 1, what="it is told again")
    assert [event["metadata"]["name"] for event in events(cluster)] == [event["metadata"]["name"]]


def test_what_is_refused_is_said_with_its_kind_in_status_event_and_number(cluster: Clustered) -> None:
    cluster.start()
    cluster.add("web", uid=UID)
    cluster.api.put(policy("guard", EVERYWHERE))
    eventually(lambda: known(cluster) == 1, what="the good one is known")
    cluster.api.put(policy("guard", EVERYWHERE, tier="Upper"))
    (event,) = eventually(lambda: events(cluster), what="an event")
    assert event["metadata"]["namespace"] == "default"
    assert event["involvedObject"]["kind"] == "ClusterNetworkPolicy" and event["involvedObject"]["name"] == "guard"
    assert "spec.tier" in event["message"] and "its last good version stays in force" in event["message"]
    assert "ClusterNetworkPolicy guard: spec.tier" in cluster.problems()
    kept = cluster.node.state_dir / "policies.json"
    eventually(lambda: kept.exists() and '"guard"' in kept.read_text(), what="the good one is on disk")
    cluster.node.stop()
    cluster.start()
    assert "its last good version stays in force" in cluster.problems()
    assert "guard egress[0]" in decided_by(cluster, "198.51.100.1")


def test_the_last_good_version_outlives_a_memory_that_is_older_than_the_policy(cluster: Clustered) -> None:
    """And a start by that memory, which knows of no policy: its object is there once the server is back."""
    memory, kept = cluster.node.state_dir / "cluster.json", cluster.node.state_dir / "policies.json"
    cluster.start()
    cluster.add("web", uid=UID)
    eventually(lambda: memory.exists() and '"NodeConfig"' in memory.read_text(), what="a memory")
    older = memory.read_bytes()
    cluster.api.put(policy("guard", EVERYWHERE))
    eventually(lambda: known(cluster) == 1, what="the good one is known")
    cluster.api.put(policy("guard", EVERYWHERE, subject="everybody"))
    eventually(lambda: kept.exists() and '"guard"' in kept.read_text(), what="the good one is on disk")
    cluster.node.stop()
    memory.write_bytes(older)
    cluster.api.errors["/"] = 503
    cluster.start()
    eventually(lambda: "last known state" in cluster.problems(), what="a start by memory")
    cluster.node.ask("policy.show")
    assert '"guard"' in kept.read_text()
    cluster.api.errors.clear()
    eventually(lambda: "spec.subject" in cluster.problems(), what="the server is back")
    assert "its last good version stays in force" in cluster.problems()
    assert "guard egress[0]" in decided_by(cluster, "198.51.100.1")


def test_what_closes_or_is_closed_in_part_says_so(cluster: Clustered) -> None:
    cluster.start()
    cluster.add("web", uid=UID)
    cluster.api.put(policy("names", {"domainNames": ["example.org"]}))
    eventually(lambda: "domainNames" in cluster.problems(), what="its limits")
    assert "it denies all egress; the rest of it is in force" in cluster.problems()
    cluster.api.put(policy("bad", priority=-1))
    eventually(lambda: "it denies everything to and from its subjects" in cluster.problems(), what="the closed one")
    cluster.api.put(policy("mute", subject={}))
    eventually(lambda: "nobody knows whom it is about, so it does nothing" in cluster.problems(), what="the mute one")

"""What ADD is told: annotations of the runtime and of the manifest, and the node's own configuration."""

from typing import Any

from asking import pod_manifest
from looking import (
    OWN,
    Traffic,
    addresses_of,
    assert_sound,
    failure,
    flockctl,
    outcome,
    settle,
)

from harness import NODE_CONFIG, CniFailure, Node, eventually, with_spec

# --- where annotations come from -----------------------------------------------------------------------------------


def test_annotations_of_the_manifest_are_taken(node: Node) -> None:
    node.write("pods", pod_manifest("a", annotations={OWN + "ipv4": "false"}))
    assert len(addresses_of(node.pod("a"))) == 1


def test_annotations_handed_over_by_the_runtime_come_before_the_manifests(node: Node) -> None:
    node.write("pods", pod_manifest("a", annotations={OWN + "ipv4": "false"}), pod_manifest("b"))
    assert len(addresses_of(node.pod("a", annotations={OWN + "ipv4": "true"}))) == 2
    assert len(addresses_of(node.pod("b", annotations={OWN + "ipv6": "false"}))) == 1


def test_a_manifest_written_just_before_add_counts(node: Node) -> None:
    for number in range(10):
        node.write(f"pod{number}", pod_manifest(f"p{number}", annotations={OWN + "ipv6": "false"}))
        assert ":" not in "".join(addresses_of(node.pod(f"p{number}")))


def test_a_container_without_manifest_or_cni_args_gets_the_nodes_defaults(fresh: Node) -> None:
    fresh.write("nodeconfig", with_spec(defaults={"ipv4": False}))
    fresh.start()
    for name, args in (("nomanifest", None), ("noargs", ""), ("others", "IgnoreUnknown=1;FOO=bar")):
        [address] = addresses_of(fresh.pod(name, args=args))
        assert ":" in address and fresh.ping(address)
    assert fresh.allocations()["noargs"]["pod_name"] == "noargs"
    assert_sound(fresh)


def test_an_annotation_changed_after_add_is_shown_as_pending(node: Node) -> None:
    import json

    node.write("pods", pod_manifest("a"))
    node.pod("a")
    node.write("pods", pod_manifest("a", annotations={OWN + "ipv4": "false", "other/key": "x"}))

    def pending() -> Any:
        [row] = json.loads(flockctl(node, "pods", "-o", "json").stdout)
        return row["pending_annotations"]

    assert eventually(pending) == [OWN + "ipv4"]
    assert "ipv4" in flockctl(node, "pods").stdout
    assert len(addresses_of(node.cni("ADD", "a"))) == 2
    node.cni("DEL", "a")
    assert len(addresses_of(node.cni("ADD", "a"))) == 1


def test_the_seventeenth_replica_gets_a_random_address_with_a_warning(fresh: Node) -> None:
    """Sixteen replicas fill the sixteen nibbles, however unlucky; the next is not refused."""
    config = {**NODE_CONFIG, "metadata": {"name": "n1", "annotations": {OWN + "ip-algo": "namespace,app,image"}}}
    fresh.write("nodeconfig", config)
    owner = [{"kind": "ReplicaSet", "name": "web-abc", "controller": True}]
    labels = {"pod-template-hash": "abc"}
    names = [f"web-abc-{n}" for n in range(17)]
    fresh.write("pods", *(pod_manifest(n, ownerReferences=owner, labels=labels) for n in names))
    fresh.start()
    six = [addresses_of(fresh.pod(name))[0] for name in names]
    assert len({a[:-1] for a in six[:16]}) == 1 and len(set(six)) == 17
    assert six[16][:-1] != six[0][:-1]
    assert "WARNING" in fresh.log_text() and "random" in fresh.log_text()


# --- the node's configuration --------------------------------------------------------------------------------------


def test_without_a_nodeconfig_add_is_told_to_try_again_and_works_once_it_is_there(fresh: Node) -> None:
    (fresh.manifests / "nodeconfig.json").unlink()
    fresh.start(wait=False)
    eventually(lambda: (fresh.run_dir / "flock.sock").exists())
    fresh.namespace("a")
    failed = failure(fresh, "ADD", "a")
    assert failed.code == 11 and "NodeConfig" in failed.msg
    assert failure(fresh, "STATUS").code == 50
    assert flockctl(fresh, "status").returncode == 1
    fresh.cni("DEL", "a")
    fresh.write("nodeconfig", {**NODE_CONFIG, "metadata": {"name": "another"}})
    assert failure(fresh, "STATUS").code == 50
    waiting = fresh.cni_start("ADD", "a")
    fresh.write("nodeconfig", NODE_CONFIG)
    assert not isinstance(outcome(waiting), CniFailure)
    assert flockctl(fresh, "status").returncode == 0


def test_a_bad_nodeconfig_keeps_the_last_good_one_in_force(node: Node) -> None:
    node.write("nodeconfig", with_spec(cidr4=["192.0.2.0/33"]))
    eventually(lambda: node.ask("status")["degraded"], what="the bad NodeConfig is shown")
    assert "spec.cidr4" in " ".join(node.ask("status")["degraded"])
    result = node.pod("a")
    assert addresses_of(result)[1].startswith("192.0.2.")
    assert node.cni("STATUS") is None
    node.write("nodeconfig", with_spec(cidr4=["198.51.100.0/24"]))
    second = node.pod("b")
    assert addresses_of(second)[1].startswith("198.51.100.")
    (node.manifests / "nodeconfig.json").unlink()
    assert node.pod("c")


def test_a_changed_nodeconfig_leaves_running_pods_alone(node: Node) -> None:
    first = node.pod("a")
    with Traffic(node, addresses_of(first)[1]) as traffic:
        assert node.ping(addresses_of(first)[0])
        node.write("nodeconfig", {**NODE_CONFIG, "spec": {"cidr6": ["2001:db8:9::/64"], "cidr4": ["198.51.100.0/24"]}})
        second = node.pod("b")
        assert addresses_of(second)[0].startswith("2001:db8:9:")
        assert node.ping(addresses_of(second)[0], inside="a")
        _, lost = traffic.stop()
    assert not lost
    settle(node)
    assert node.cni("ADD", "a") == first

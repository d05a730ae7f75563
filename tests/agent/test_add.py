"""ADD: the result, repetition, concurrency, failure and take-over.  Issue 2, Deliver 7, 8 and 10."""

from typing import Any

import pytest
from looking import (
    HOST_MAC,
    OWN,
    Traffic,
    addresses_of,
    assert_sound,
    failure,
    flockctl,
    outcome,
    pod_routes,
    pod_side,
    settle,
    undisturbed,
)

from harness import NODE_CONFIG, CniFailure, Node, eventually

FIXED = "2001:db8:53::7"
ADDRESS_IN_USE = 103


def with_spec(**changes: Any) -> dict[str, Any]:
    return {**NODE_CONFIG, "spec": {**NODE_CONFIG["spec"], **changes}}


GRANTING = with_spec(
    addresses={"allowed": [{"prefixes": ["2001:db8:53::/64", "198.51.100.0/24"]}]},
    anycast={"allowed": [{"prefixes": ["2001:db8:53::/64"]}]},
)


def pod_manifest(name: str, *, annotations: dict[str, str] | None = None, **metadata: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": "default", "annotations": annotations or {}, **metadata}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [{"image": "nginx"}]}}


# --- the result --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["0.4.0", "1.0.0", "1.1.0"])
def test_the_result_tells_all_of_it(node: Node, version: str) -> None:
    """Fault 17: the sandbox is the namespace's path, and host interface, gateways and routes are there."""
    result = node.pod("a", version=version)
    entry = node.allocations()["a"]
    host, pod = result["interfaces"]
    assert result["cniVersion"] == version
    assert host["name"] in node.links() and host["mac"] == HOST_MAC and not host.get("sandbox")
    assert (pod["name"], pod["sandbox"], pod["mac"]) == ("eth0", node.path("a"), entry["mac"])
    assert [(i["address"], i["gateway"], i["interface"]) for i in result["ips"]] == [
        (entry["ip6"] + "/128", "fe80::1", 1),
        (entry["ip4"] + "/32", "169.254.1.1", 1),
    ]
    assert [(r["dst"], r["gw"]) for r in result["routes"]] == [("::/0", "fe80::1"), ("0.0.0.0/0", "169.254.1.1")]
    assert [i.get("version") for i in result["ips"]] == (["6", "4"] if version == "0.4.0" else [None, None])
    assert ("mtu" in pod) is (version == "1.1.0")


def test_dns_of_the_configuration_is_handed_on(node: Node) -> None:
    dns = {"nameservers": ["2001:db8::53"], "search": ["cluster.local"]}
    assert node.pod("a", dns=dns)["dns"] == dns


def test_primaries_come_before_extra_addresses(fresh: Node) -> None:
    fresh.write("nodeconfig", GRANTING)
    fresh.start()
    asked = {OWN + "addresses": "198.51.100.7,2001:db8:53::9,198.51.100.8"}
    result = fresh.pod("a", annotations=asked)
    assert addresses_of(result) == ["2001:db8:53::9", "198.51.100.7", "198.51.100.8"]
    assert [i.get("gateway") for i in result["ips"]] == ["fe80::1", "169.254.1.1", None]


# --- repetition and concurrency ------------------------------------------------------------------------------------


def test_a_second_add_gives_the_same_result_and_changes_nothing(node: Node) -> None:
    first = node.pod("a")
    before = (node.state_dir / "allocations.json").read_bytes(), node.links()
    with undisturbed(node, *addresses_of(first)):
        assert node.cni("ADD", "a") == first
    assert before == ((node.state_dir / "allocations.json").read_bytes(), node.links())


def test_a_second_add_after_a_restart_gives_the_same_result(node: Node) -> None:
    first = node.pod("a")
    node.kill()
    node.start()
    assert node.cni("ADD", "a") == first


def test_twenty_adds_of_one_container_at_once_make_one_pod(node: Node) -> None:
    node.namespace("a")
    results = [outcome(p) for p in [node.cni_start("ADD", "a") for _ in range(20)]]
    assert all(r == results[0] for r in results) and not isinstance(results[0], CniFailure)
    assert_sound(node)
    assert len(node.allocations()) == 1


def test_a_hundred_adds_at_once_share_nothing(node: Node) -> None:
    names = [f"p{n}" for n in range(100)]
    for name in names:
        node.namespace(name)
    results = [outcome(p) for p in [node.cni_start("ADD", name) for name in names]]
    assert len({a for r in results for a in addresses_of(r)}) == 200
    assert_sound(node)
    assert not [x for x in (outcome(p) for p in [node.cni_start("DEL", name) for name in names]) if x]
    assert_sound(node)
    assert not node.allocations()


def test_add_and_del_racing_end_in_a_pod_or_in_nothing(node: Node) -> None:
    node.namespace("a")
    for _ in range(15):
        started = [node.cni_start(verb, "a") for verb in ("ADD", "DEL", "ADD", "DEL", "CHECK", "ADD")]
        outcomes = [outcome(p) for p in started]
        assert not isinstance(outcomes[1], CniFailure) and not isinstance(outcomes[3], CniFailure)
        for added in (outcomes[0], outcomes[2], outcomes[5]):
            assert not isinstance(added, CniFailure), added
        assert_sound(node)


def test_another_interface_of_the_same_container_is_refused(node: Node) -> None:
    first = node.pod("a")
    failed = failure(node, "ADD", "a", ifname="net1")
    assert failed.code >= 100 and "eth0" in failed.msg and "net1" in failed.msg
    assert node.cni("ADD", "a") == first
    assert_sound(node)


def test_a_container_whose_namespace_was_replaced_is_set_up_there_with_its_addresses(node: Node) -> None:
    first = node.pod("a")
    node.namespace("b")
    second = node.cni("ADD", "a", netns=node.path("b"))
    assert addresses_of(second) == addresses_of(first)
    assert all(map(node.ping, addresses_of(second)))
    assert_sound(node)


def test_a_link_that_was_deleted_comes_back_with_the_next_add(node: Node) -> None:
    first = node.pod("a")
    node.ip("link", "del", first["interfaces"][0]["name"])
    assert node.cni("ADD", "a") == first
    assert all(map(node.ping, addresses_of(first)))
    settle(node)


# --- failure -----------------------------------------------------------------------------------------------------


def test_a_failed_add_leaves_nothing_and_its_repetition_works(node: Node) -> None:
    """Fault 15: a retried ADD does not leak the first addresses."""
    node.namespace("a")
    node.ip("link", "add", "eth0", "type", "veth", "peer", "name", "other", inside="a")
    for _ in range(5):
        failure(node, "ADD", "a")
    assert not node.allocations() and not node.links() and not pod_routes(node)
    assert all(p["used"] == 0 for p in node.ask("status")["pools"])
    node.ip("link", "del", "eth0", inside="a")
    assert node.cni("ADD", "a")
    assert_sound(node)


def test_an_exhausted_pool_says_which_and_how_full_and_leaks_nothing(fresh: Node) -> None:
    fresh.write("nodeconfig", {**NODE_CONFIG, "spec": {"cidr6": ["2001:db8:1::/64"], "cidr4": ["192.0.2.0/30"]}})
    fresh.start()
    fresh.pod("a")
    fresh.namespace("b")
    for _ in range(3):
        failed = failure(fresh, "ADD", "b")
        assert failed.code == 104 and "192.0.2.0/30" in failed.msg and "1 of 1" in failed.msg
    used = {p["cidr"]: p["used"] for p in fresh.ask("status")["pools"]}
    assert used == {"2001:db8:1::/64": 1, "192.0.2.0/30": 1}
    assert_sound(fresh)
    fresh.cni("DEL", "a")
    # the only address is cooling down: the oldest is used nevertheless
    assert "192.0.2.2" in addresses_of(fresh.cni("ADD", "b"))


@pytest.mark.parametrize(
    ("annotations", "code", "said"),
    [
        ({OWN + "ipv4": "perhaps"}, 101, OWN + "ipv4"),
        ({OWN + "cidr6": "2001:db8:2::/64"}, 101, OWN + "cidr6"),
        ({OWN + "addresses": "10.0.0.1.1"}, 101, OWN + "addresses"),
        ({OWN + "addresses": "203.0.113.5"}, 102, OWN + "addresses"),
        ({OWN + "anycast": "198.18.0.1"}, 102, OWN + "anycast"),
        ({OWN + "anycast": "fe80::5"}, None, OWN + "anycast"),
        ({OWN + "ipv4": "false", OWN + "ipv6": "false"}, None, "ipv"),
    ],
)
def test_a_bad_annotation_names_itself_and_changes_nothing(
    fresh: Node, annotations: dict[str, str], code: int | None, said: str
) -> None:
    fresh.write("nodeconfig", GRANTING)
    fresh.start()
    fresh.namespace("a")
    failed = failure(fresh, "ADD", "a", annotations=annotations)
    assert said in failed.msg
    assert failed.code == code if code else failed.code in (101, 102)
    assert not fresh.allocations() and pod_side(fresh.path("a")) == {"lo": set()}
    assert fresh.cni("ADD", "a", annotations={})


def test_bad_cni_args_name_the_variable(node: Node) -> None:
    node.namespace("a")
    failed = failure(node, "ADD", "a", args="K8S_POD_NAME=../../etc;K8S_POD_NAMESPACE=x")
    assert failed.code == 4 and "CNI_ARGS" in failed.msg and not node.allocations()


# --- explicit addresses --------------------------------------------------------------------------------------------


@pytest.fixture
def granting(fresh: Node) -> Node:
    fresh.write("nodeconfig", GRANTING)
    fresh.start()
    return fresh


ASKED = {OWN + "addresses": FIXED}
SAME_POD = "K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0"


def test_an_address_moves_to_the_next_sandbox_of_the_same_pod(granting: Node) -> None:
    """And the late DELs of the old one (fault 21), in any form, leave the new one's route alone."""
    granting.pod("old", annotations=ASKED, args=SAME_POD)
    new = granting.pod("new", annotations=ASKED, args=SAME_POD)
    assert FIXED in addresses_of(new) and granting.ping(FIXED)
    assert set(granting.allocations()) == {"new"}
    with undisturbed(granting, *addresses_of(new)):
        granting.cni("DEL", "old", args=SAME_POD)
        granting.cni("DEL", "old", netns="", args=SAME_POD)
    assert pod_side(granting.path("old")) == {"lo": set()}
    assert_sound(granting)


def test_an_address_moves_from_a_pod_whose_namespace_is_gone(granting: Node) -> None:
    granting.pod("old", annotations=ASKED)
    granting.remove_namespace("old")
    new = granting.pod("new", annotations=ASKED)
    assert granting.ping(FIXED) and FIXED in addresses_of(new)
    granting.cni("DEL", "old", netns="")
    assert granting.ping(FIXED)
    assert_sound(granting)


def test_an_address_of_another_living_pod_is_refused_by_a_code_of_its_own(granting: Node) -> None:
    old = granting.pod("old", annotations=ASKED)
    granting.namespace("new")
    with undisturbed(granting, *addresses_of(old)):
        failed = failure(granting, "ADD", "new", annotations=ASKED)
    assert failed.code == ADDRESS_IN_USE and FIXED in failed.msg and "default/old" in failed.msg
    assert_sound(granting)
    granting.cni("DEL", "old")
    granting.cni("ADD", "new", annotations=ASKED)
    assert granting.ping(FIXED)


def test_two_containers_without_a_name_are_not_the_same_pod(granting: Node) -> None:
    granting.pod("old", annotations=ASKED, args="")
    granting.namespace("new")
    assert failure(granting, "ADD", "new", annotations=ASKED, args="").code == ADDRESS_IN_USE


def test_ten_pods_that_ask_for_one_address_at_once_get_it_once(granting: Node) -> None:
    names = [f"p{n}" for n in range(10)]
    for name in names:
        granting.namespace(name)
    outcomes = [outcome(p) for p in [granting.cni_start("ADD", name, annotations=ASKED) for name in names]]
    refused = [x for x in outcomes if isinstance(x, CniFailure)]
    assert len(refused) == 9 and {x.code for x in refused} == {ADDRESS_IN_USE}
    assert_sound(granting)


def test_an_anycast_address_is_shared_but_never_with_one_who_holds_it_alone(granting: Node) -> None:
    shared = {OWN + "anycast": FIXED}
    granting.pod("a", annotations=shared)
    granting.pod("b", annotations=shared)
    granting.namespace("c")
    assert failure(granting, "ADD", "c", annotations=ASKED).code == ADDRESS_IN_USE
    granting.cni("DEL", "a")
    granting.cni("DEL", "b")
    granting.cni("ADD", "c", annotations=ASKED)
    assert failure(granting, "ADD", "a", annotations=shared).code == ADDRESS_IN_USE
    assert_sound(granting)


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
    assert fresh.allocations()["noargs"]["pod_name"] == ""
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
    """Fault 24: sixteen replicas fill the sixteen nibbles, however unlucky; the next is not refused."""
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

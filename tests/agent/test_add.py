"""ADD: the result, repetition, concurrency and failure."""

import pytest
from asking import GRANTING
from looking import (
    HOST_MAC,
    OWN,
    addresses_of,
    assert_sound,
    failure,
    outcome,
    pod_routes,
    pod_side,
    settle,
    undisturbed,
)

from harness import NODE_CONFIG, CniFailure, Node

# --- the result --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["0.4.0", "1.0.0", "1.1.0"])
def test_the_result_tells_all_of_it(node: Node, version: str) -> None:
    """The sandbox is the namespace's path, and host interface, gateways and routes are there."""
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
    before = node.allocations(), node.links()
    with undisturbed(node, *addresses_of(first)):
        assert node.cni("ADD", "a") == first
    assert before == (node.allocations(), node.links())


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
    """A retried ADD does not leak the first addresses."""
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

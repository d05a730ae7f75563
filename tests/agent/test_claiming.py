"""Addresses asked for by name: whose they are, who comes first, and how many one namespace may have."""

from typing import Any

import pytest
from looking import OWN, addresses_of, assert_sound, failure, outcome, pod_side

from harness import NODE_CONFIG, Node, eventually

NOT_GRANTED, IN_USE, ANOTHER_NAMESPACES, TOO_MANY = 102, 103, 110, 111
SHARED = "192.0.2.53"
FIXED = "192.0.2.77"


def spec(**more: Any) -> dict[str, Any]:
    return {**NODE_CONFIG, "spec": {**NODE_CONFIG["spec"], **more}}


def of(namespace: str, name: str) -> str:
    return f"K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name}"


def anycast(*addresses: str) -> dict[str, str]:
    return {OWN + "anycast": ",".join(addresses)}


def fixed(*addresses: str) -> dict[str, str]:
    return {OWN + "addresses": ",".join(addresses)}


def refused(node: Node, namespace: str, name: str, annotations: dict[str, str]) -> Any:
    node.namespace(name)
    failed = failure(node, "ADD", name, args=of(namespace, name), annotations=annotations)
    assert name not in node.allocations() and pod_side(node.path(name)) == {"lo": set()}
    return failed


def pod(node: Node, namespace: str, name: str, annotations: dict[str, str]) -> list[str]:
    return addresses_of(node.pod(name, args=of(namespace, name), annotations=annotations))


# --- one namespace's at a time ---


def test_replicas_share_an_anycast_address_of_the_nodes_cidr_and_no_other_namespace_joins_them(node: Node) -> None:
    pod(node, "shop", "a", anycast(SHARED))
    pod(node, "shop", "b", anycast(SHARED))
    failed = refused(node, "evil", "c", anycast(SHARED))
    assert failed.code == ANOTHER_NAMESPACES and SHARED in failed.msg
    assert_sound(node)


def test_of_two_namespaces_that_ask_at_once_one_gets_the_address(node: Node) -> None:
    names = [f"p{n}" for n in range(10)]
    for name in names:
        node.namespace(name)
    whose = {name: ("shop", "evil")[n % 2] for n, name in enumerate(names)}
    started = {n: node.cni_start("ADD", n, args=of(whose[n], n), annotations=anycast(SHARED)) for n in names}
    outcomes = {n: outcome(process) for n, process in started.items()}
    got = {whose[n] for n, result in outcomes.items() if isinstance(result, dict)}
    assert len(got) == 1
    assert {getattr(result, "code", 0) for n, result in outcomes.items() if whose[n] not in got} == {ANOTHER_NAMESPACES}
    assert_sound(node)


def test_nor_does_one_that_wants_it_for_itself(node: Node) -> None:
    pod(node, "shop", "a", anycast(SHARED))
    assert refused(node, "evil", "b", fixed(SHARED)).code == IN_USE


def test_a_refusal_keeps_the_other_tenants_names_to_the_agents_log(node: Node) -> None:
    pod(node, "shop", "secret-a", anycast(SHARED))
    pod(node, "shop", "secret-b", fixed(FIXED))
    for annotations in (anycast(SHARED), fixed(FIXED), anycast(FIXED)):
        name = f"x{len(node.pod_paths())}"
        said = refused(node, "evil", name, annotations)
        assert "shop" not in str(said.error) and "secret" not in str(said.error)
    assert "shop/secret-a" in node.log_text() and "shop/secret-b" in node.log_text()


def test_the_next_namespace_waits_until_the_address_has_cooled_down_and_its_own_does_not(fresh: Node) -> None:
    fresh.start("--cooldown", "600")
    for annotations in (anycast(SHARED), fixed(FIXED), fixed("2001:db8:1::77"), anycast("2001:db8:1::53")):
        name = f"p{len(fresh.pod_paths())}"
        pod(fresh, "shop", name, annotations)
        fresh.cni("DEL", name)
        failed = refused(fresh, "evil", f"{name}x", annotations)
        assert failed.code == ANOTHER_NAMESPACES and "cool" in failed.msg
        fresh.cni("ADD", name, args=of("shop", name), annotations=annotations)
        fresh.cni("DEL", name)
        pod(fresh, "shop", f"{name}y", annotations)
    assert_sound(fresh)


def test_what_a_pool_gave_cools_down_for_those_who_name_it_too_across_a_restart(fresh: Node) -> None:
    fresh.start("--cooldown", "600")
    six, four = pod(fresh, "shop", "a", {})
    fresh.cni("DEL", "a")
    fresh.kill()
    fresh.start("--cooldown", "600")
    for number, address in enumerate((six, four)):
        assert refused(fresh, "evil", f"e{number}", fixed(address)).code == ANOTHER_NAMESPACES
    assert {six, four} <= set(pod(fresh, "shop", "b", fixed(six, four)))


def test_a_pool_of_one_address_is_no_way_around_the_cool_down(fresh: Node) -> None:
    fresh.start("--cooldown", "600")
    narrow = {OWN + "cidr4": "192.0.2.76/30"}  # one usable address: .78
    assert "192.0.2.78" in pod(fresh, "shop", "a", narrow)
    fresh.cni("DEL", "a")
    assert refused(fresh, "evil", "b", narrow).code == 104
    assert "192.0.2.78" in pod(fresh, "shop", "c", narrow)


def test_a_sandbox_that_is_gone_stands_in_nobodys_way_but_its_address_cools_down(fresh: Node) -> None:
    fresh.start("--cooldown", "1")
    pod(fresh, "shop", "a", anycast(SHARED))
    fresh.remove_namespace("a")
    assert refused(fresh, "dns", "b", anycast(SHARED)).code == ANOTHER_NAMESPACES
    assert "a" not in fresh.allocations()

    def later() -> Any:
        found = outcome(fresh.cni_start("ADD", "b", args=of("dns", "b"), annotations=anycast(SHARED)))
        return isinstance(found, dict)

    assert eventually(later, what="the address is free again")


# --- granted inside the CIDRs ---

FOR_SHOP = [
    {"prefixes": [f"{SHARED}/32", "2001:db8:1::53/128"], "namespaceSelector": {"matchLabels": {"team": "shop"}}}
]


@pytest.fixture
def granting(fresh: Node) -> Node:
    fresh.write("nodeconfig", spec(anycast={"allowed": FOR_SHOP}))
    for name, team in (("shop", "shop"), ("outlet", "shop"), ("evil", "evil")):
        fresh.write(
            f"ns-{name}",
            {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name, "labels": {"team": team}}},
        )
    fresh.start()
    return fresh


def test_what_a_grant_names_is_for_those_it_selects_even_when_a_stranger_comes_first(granting: Node) -> None:
    for number, annotations in enumerate((anycast(SHARED), fixed(SHARED), anycast("2001:db8:1::53"))):
        failed = refused(granting, "evil", f"e{number}", annotations)
        assert failed.code == NOT_GRANTED and "allowed" in failed.msg
    pod(granting, "shop", "a", anycast(SHARED))
    pod(granting, "outlet", "b", anycast(SHARED))  # granted to both, so they share it
    assert_sound(granting)


def test_the_pool_gives_out_nothing_that_a_grant_names(fresh: Node) -> None:
    small = {"cidr4": ["192.0.2.0/29"], "cidr6": []}
    fresh.write("nodeconfig", spec(**small, anycast={"allowed": [{"prefixes": ["192.0.2.3/32"]}]}))
    fresh.start()
    assert [pod(fresh, "evil", f"p{n}", {}) for n in range(4)] == [[f"192.0.2.{n}"] for n in (2, 4, 5, 6)]
    failed = refused(fresh, "evil", "late", {})
    assert failed.code == 104 and "4 of 4" in failed.msg
    narrow = {OWN + "cidr4": "192.0.2.0/30"}
    assert refused(fresh, "evil", "narrow", narrow).code == 104


def test_a_grant_around_the_whole_cidr_does_not_close_its_pool(fresh: Node) -> None:
    wide = [{"prefixes": ["0.0.0.0/0", "::/0"], "namespaceSelector": {"matchLabels": {"team": "shop"}}}]
    fresh.write("nodeconfig", spec(addresses={"allowed": wide}))
    fresh.start()
    assert len(pod(fresh, "evil", "a", {})) == 2


# --- what nobody gets ---


@pytest.mark.parametrize("address", ["192.0.2.0", "192.0.2.1", "192.0.2.255", "2001:db8:1::", "2001:db8:1::1"])
def test_network_gateway_and_broadcast_addresses_are_nobodys_by_name_either(node: Node, address: str) -> None:
    for number, annotations in enumerate((fixed(address), anycast(address))):
        failed = refused(node, "shop", f"p{number}", annotations)
        assert failed.code == NOT_GRANTED and address in failed.msg


# --- how many ---


def test_four_pods_with_64_addresses_each_do_not_empty_a_pool(node: Node) -> None:
    everything = [f"192.0.2.{n}" for n in range(2, 255)]
    for number in range(3):
        asked = fixed(*everything[number * 64 : number * 64 + 64])
        assert refused(node, "evil", f"e{number}", asked).code == TOO_MANY
    pod(node, "evil", "e3", fixed(*everything[192:]))  # 61, a quarter at most
    assert refused(node, "evil", "e4", fixed(*everything[:3])).code == TOO_MANY
    assert len(pod(node, "shop", "web", {})) == 2


def test_a_namespace_names_a_quarter_of_a_pool_and_others_still_theirs(node: Node) -> None:
    named = [f"192.0.2.{n}" for n in range(100, 163)]
    pod(node, "evil", "many", fixed(*named[:60]))
    pod(node, "evil", "three", anycast(*named[60:]))
    pod(node, "evil", "again", anycast(*named[60:]))  # shared: no address more
    failed = refused(node, "evil", "more", fixed("192.0.2.200"))
    assert failed.code == TOO_MANY and "63" in failed.msg and "192.0.2.0/24" in failed.msg
    assert "192.0.2.200" in pod(node, "shop", "web", fixed("192.0.2.200"))
    node.cni("DEL", "many")
    assert "192.0.2.201" in pod(node, "evil", "less", fixed("192.0.2.201"))


def test_the_count_outlives_the_agent(node: Node) -> None:
    pod(node, "evil", "many", fixed(*[f"192.0.2.{n}" for n in range(100, 163)]))
    node.kill()
    node.start()
    assert refused(node, "evil", "more", fixed("192.0.2.200")).code == TOO_MANY


def test_the_bounds_are_the_operators_to_set(fresh: Node) -> None:
    fresh.write("nodeconfig", spec(limits={"claimsPerNamespace": 3, "poolPercentPerNamespace": 100}))
    fresh.start()
    pod(fresh, "shop", "a", fixed("192.0.2.7", "192.0.2.8", "2001:db8:1::7"))
    failed = refused(fresh, "shop", "b", fixed("192.0.2.9"))
    assert failed.code == TOO_MANY and "spec.limits.claimsPerNamespace" in str(failed.error)


def test_a_failed_add_gives_back_what_it_had_named(fresh: Node) -> None:
    fresh.write("nodeconfig", spec(limits={"claimsPerNamespace": 2}))
    fresh.start()
    fresh.namespace("a")
    for _ in range(3):
        failure(
            fresh,
            "ADD",
            "a",
            netns="/run/netns/no-such",
            args=of("shop", "a"),
            annotations=fixed("192.0.2.7", "192.0.2.8"),
        )
    assert "192.0.2.7" in addresses_of(
        fresh.cni("ADD", "a", args=of("shop", "a"), annotations=fixed("192.0.2.7", "192.0.2.8"))
    )

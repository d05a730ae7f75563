"""The configuration in force: taken in when the objects change, told to who follows it, kept when it is taken away."""

from typing import Any

import pytest
from looking import addresses_of
from telling import tell, told

from flock.agent.configured import Configured
from flock.agent.happened import Happened
from flock.edge.cache import Cache
from harness import CniFailure, Node, eventually, with_spec


def config(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "n1"}, "spec": {"cidr4": ["192.0.2.0/24"], **spec}}


def configured() -> tuple[Configured, Cache]:
    cache = told()
    return Configured(cache=cache, happened=Happened()), cache


def test_who_follows_hears_of_another_configuration_once_and_finds_it_in_force() -> None:
    owner, cache = configured()
    heard: list[Any] = []
    owner.subscribe(lambda: heard.append(owner.config and owner.config.mtu))
    for own in (
        None,
        config(mtu=1400),
        config(mtu=1400),
        config(mtu="large"),
        None,
        config(mtu=1400),
        config(mtu=9000),
    ):
        tell(cache, own)
        owner.take_in()
        owner.take_in()
    assert heard == [1400, 9000]


def test_nothing_in_force_has_a_reason_and_something_in_force_may_have_a_problem() -> None:
    owner, cache = configured()
    owner.take_in()
    assert (owner.missing, owner.problem) == ("no NodeConfig named n1", "")
    tell(cache, config(mtu="large"))
    owner.take_in()
    assert "spec.mtu" in owner.missing and owner.missing == owner.problem
    tell(cache, config())
    owner.take_in()
    assert (owner.missing, owner.problem) == ("", "")
    tell(cache, None)
    owner.take_in()
    assert owner.missing == "" and "deleted" in owner.problem and owner.config is not None


def test_a_nodeconfig_of_another_name_is_named_where_there_is_none_of_this_one() -> None:
    owner, cache = configured()
    cache.pass_over("nodeconfig.yaml", ("myhost",))
    assert owner.missing == "no NodeConfig named n1; there is one named myhost in nodeconfig.yaml"
    cache.pass_over("more.yaml", ("a", "b", "c"))
    assert owner.missing.endswith("; there is one named a in more.yaml, b in more.yaml, c in more.yaml")
    cache.pass_over("more.yaml", ())
    cache.pass_over("nodeconfig.yaml", ())
    assert owner.missing == "no NodeConfig named n1"


def test_a_host_whose_name_is_no_object_s_is_told_to_say_another() -> None:
    owner = Configured(cache=Cache(node="MyHost"), happened=Happened())
    told = "metadata.name: 'MyHost' is no DNS name (small letters); set FLOCK_NODE in /etc/default/flock"
    assert owner.missing == told


@pytest.mark.parametrize(
    ("spec", "barren"),
    [
        ({"cidr4": []}, True),
        ({}, False),
        ({"cidr4": [], "addresses": {"allowed": [{"prefixes": ["203.0.113.0/24"]}]}}, False),
    ],
)
def test_what_gives_no_pod_an_address_is_told(spec: dict[str, Any], barren: bool) -> None:
    owner, cache = configured()
    assert owner.barren == ""
    tell(cache, config(**spec))
    owner.take_in()
    assert owner.barren.startswith("spec.defaults: pods get neither IPv6 nor IPv4 on this node; see cidr6") == barren


def test_a_node_without_a_cidr_is_not_ready_until_it_has_one(fresh: Node) -> None:
    fresh.write("nodeconfig", with_spec(cidr6=[], cidr4=[]))
    fresh.start(wait=False)
    reason = "spec.defaults: pods get neither IPv6 nor IPv4 on this node"
    eventually(lambda: reason in not_ready(fresh), what="the reason")
    fresh.write("nodeconfig", with_spec())
    eventually(fresh.is_ready, what="a CIDR")
    fresh.pod("a")
    fresh.write("nodeconfig", with_spec(cidr6=[], cidr4=[]))
    eventually(lambda: reason in not_ready(fresh), what="the reason, later")
    with pytest.raises(CniFailure, match="pods get neither IPv6 nor IPv4"):
        fresh.pod("b")


def not_ready(node: Node) -> str:
    try:
        return " ".join(node.ask("status")["not_ready"])
    except OSError:
        return ""


@pytest.mark.parametrize("good", [True, False], ids=["another is in force", "none is"])
def test_of_a_file_that_cannot_be_read_no_earlier_mistake_is_told(fresh: Node, good: bool) -> None:
    def told() -> str:
        status = fresh.ask("status")
        return " ".join([*status["not_ready"], *status["degraded"], fresh.ask("config")["problem"]])

    if not good:
        fresh.write("nodeconfig", with_spec(mtu="large"))
    fresh.start(wait=good)
    fresh.write("nodeconfig", with_spec(mtu="large"))
    eventually(lambda: "spec.mtu" in not_ready_or_degraded(fresh), what="the first mistake")
    (fresh.manifests / "nodeconfig.json").write_text("spec: [")
    eventually(lambda: "spec.mtu" not in told(), what="the first mistake is gone")
    assert "nodeconfig.json: line 2: " in told() and ("the last good one stays in force" in told()) == good
    (fresh.manifests / "nodeconfig.json").unlink()
    eventually(lambda: "line 2" not in told(), what="the file is gone")


def not_ready_or_degraded(node: Node) -> str:
    try:
        status = node.ask("status")
    except OSError:
        return ""
    return " ".join([*status["not_ready"], *status["degraded"]])


def test_a_host_s_own_network_for_containers_is_a_degraded_line_and_a_finding(fresh: Node) -> None:
    fresh.ip("link", "add", "up0", "type", "bridge")
    fresh.ip("link", "set", "up0", "up")
    fresh.ip("addr", "add", "192.0.2.7/24", "dev", "up0")
    fresh.start()
    said = "spec.cidr4[0]: 192.0.2.0/24 is the network of up0; neighbours will not find containers"
    assert said in fresh.ask("status")["degraded"]
    assert said in [finding["finding"] for finding in fresh.ask("doctor")]
    fresh.ip("addr", "del", "192.0.2.7/24", "dev", "up0")
    eventually(lambda: said not in fresh.ask("status")["degraded"], what="another network")


def test_a_pod_cidr_that_is_none_is_shown_and_the_last_good_configuration_serves(fresh: Node) -> None:
    fresh.write("nodeconfig", {"apiVersion": "flock.fritzlab.net/v1alpha1", "kind": "NodeConfig",
                               "metadata": {"name": "n1"}, "spec": {"mtu": 1400}})  # fmt: skip

    def node_object(cidr: str) -> None:
        fresh.write("node", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
                             "spec": {"podCIDRs": [cidr]}})  # fmt: skip

    node_object("192.0.2.0/24")
    fresh.start()
    node_object("192.0.2.0/33")
    eventually(lambda: "Node spec.podCIDRs" in " ".join(fresh.ask("status")["degraded"]), what="the refusal is shown")
    assert addresses_of(fresh.pod("a"))[0].startswith("192.0.2.")
    node_object("198.51.100.0/24")
    eventually(lambda: "podCIDRs" not in str(fresh.ask("status")["degraded"]), what="the refusal is over")
    assert addresses_of(fresh.pod("b"))[0].startswith("198.51.100.")
